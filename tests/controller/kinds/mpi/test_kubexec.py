"""The files that MPI reads where ``kubectl exec`` starts ranks, byte for byte."""

from typing import Any

import pytest

from api.mpijob import MPIJob
from controller.domain import Role
from controller.kinds.mpi import kubexec
from controller.kinds.mpi.names import slots

GPUS: dict[str, Any] = {"limits": {"nvidia.com/gpu": 1}}


def job(name: str = "j", **spec: Any) -> MPIJob:
    return MPIJob.model_validate({"metadata": {"name": name, "namespace": "ml", "uid": "u"}, "spec": spec})


def launcher(resources: dict[str, Any] | None = None) -> Role:
    container = {"name": "mpi", "image": "img", "resources": resources or {}}
    return Role("Launcher", 1, "Never", {"spec": {"containers": [container]}})


@pytest.mark.parametrize(
    ("per_worker", "resources", "expected"),
    [
        pytest.param(None, None, "j-worker-0 slots=1\nj-worker-1 slots=1\n", id="a single rank per worker"),
        pytest.param(2, None, "j-worker-0 slots=2\nj-worker-1 slots=2\n", id="slotsPerWorker"),
        pytest.param(
            None,
            GPUS,
            "j-launcher slots=1\nj-worker-0 slots=1\nj-worker-1 slots=1\n",
            id="a launcher with GPUs comes first",
        ),
    ],
)
def test_the_hostfile(per_worker: int | None, resources: dict[str, Any] | None, expected: str) -> None:
    of = job(slotsPerWorker=per_worker)

    assert kubexec.hostfile(kubexec.hosts(of, launcher(resources), range(2)), slots(of)) == expected


def test_the_hostfile_without_workers_is_empty() -> None:
    assert kubexec.hostfile(kubexec.hosts(job(), launcher(), ()), 1) == ""


@pytest.mark.parametrize(
    ("main_container", "option"),
    [
        pytest.param(None, "", id="the default container"),
        pytest.param("trainer", " --container trainer", id="mainContainer"),
    ],
)
def test_agent(main_container: str | None, option: str) -> None:
    assert kubexec.agent(job(mainContainer=main_container)) == (
        f'#!/bin/sh\nset -x\nPOD_NAME=$1\nshift\n/opt/kube/kubectl exec ${{POD_NAME}}{option} -- /bin/sh -c "$*"'
    )


@pytest.mark.parametrize(
    ("running", "resources", "expected"),
    [
        pytest.param([], None, "#!/bin/sh", id="none runs"),
        pytest.param(
            ["j-worker-0", "j-worker-1"],
            None,
            "#!/bin/sh\necho j-worker-0:1\necho j-worker-1:1",
            id="both run",
        ),
        pytest.param(
            ["j-worker-0"],
            GPUS,
            "#!/bin/sh\necho j-launcher:1\n\necho j-worker-0:1",
            id="a blank line after a launcher with GPUs",
        ),
        pytest.param([], GPUS, "#!/bin/sh\necho j-launcher:1\n", id="a launcher with GPUs alone"),
    ],
)
def test_discovery(running: list[str], resources: dict[str, Any] | None, expected: str) -> None:
    assert kubexec.discovery(job(), launcher(resources), running) == expected


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        pytest.param({"nvidia.com/gpu": 1}, True, id="nvidia"),
        pytest.param({"amd.com/gpu": 1}, True, id="amd"),
        pytest.param({"example.com/gpu-share": 1}, True, id="a fraction of a GPU"),
        pytest.param({"cpu": 4, "memory": "1Gi"}, False, id="none"),
    ],
)
def test_a_launcher_has_gpus_by_the_names_of_its_limits(limits: dict[str, Any], expected: bool) -> None:
    assert kubexec.has_gpus(launcher({"limits": limits})) is expected


def test_requests_without_limits_are_no_gpus() -> None:
    assert not kubexec.has_gpus(launcher({"requests": {"nvidia.com/gpu": 1}}))
