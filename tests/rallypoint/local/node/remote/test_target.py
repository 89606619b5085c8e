"""The target of a command of an MPI pod, and the pods that it is allowed to reach."""

from typing import Any

import pytest

from rallypoint.local.node.network.addresses import Addresses
from rallypoint.local.node.network.dns import PodNetwork
from rallypoint.local.node.remote.command_line import Call
from rallypoint.local.node.remote.target import (
    CommandNotStarted,
    Forbidden,
    PodNotCreatedYet,
    PodNotFound,
    Unreachable,
    error_message,
    find,
    is_equipped,
)

OPERATOR = "training.kubeflow.org/operator-name"
JOB = "training.kubeflow.org/job-name"


def pod(name: str, job: str = "pi", namespace: str = "hpc", **spec: Any) -> dict[str, Any]:
    containers = spec.pop("containers", [{"name": "first"}, {"name": "second"}])
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": name, "labels": {JOB: job}},
        "spec": {"hostname": name, "subdomain": job, "containers": containers, **spec},
        "status": {},
    }


@pytest.fixture
def network() -> PodNetwork:
    """A job's launcher and its worker 0, which have addresses, and a worker of another job."""
    network = PodNetwork(Addresses("127.9"))
    launcher = pod("pi-launcher", dnsConfig={"searches": ["pi.hpc.svc.cluster.local"]})
    for number, manifest in enumerate([launcher, pod("pi-worker-0"), pod("e-worker-0", "e")]):
        network.put_pod({**manifest, "status": {"podIP": f"127.9.2.{number}"}})
    return network


def call(network: PodNetwork, host: str, **fields: str) -> tuple[str, str]:
    found = find(network, network.pods["hpc", "pi-launcher"], Call(host, ["true"], **fields))  # type: ignore[arg-type]
    return found.pod["metadata"]["name"], found.container


@pytest.mark.parametrize(
    "host",
    [
        "pi-worker-0.pi.hpc.svc",
        "pi-worker-0.pi.hpc.svc.cluster.local",
        "pi-worker-0.pi",
        "pi-worker-0",
        "127.9.2.1",
    ],
)
def test_a_worker_is_found_by_all_its_names(network: PodNetwork, host: str) -> None:
    assert call(network, host) == ("pi-worker-0", "first")


def test_the_container(network: PodNetwork) -> None:
    """The one that is named, else the one that is marked, else the first."""
    marked = pod("pi-worker-1")
    marked["metadata"]["annotations"] = {"kubectl.kubernetes.io/default-container": "second"}
    network.put_pod(marked)

    assert call(network, "pi-worker-1") == ("pi-worker-1", "second")
    assert call(network, "pi-worker-1", container="first") == ("pi-worker-1", "first")
    with pytest.raises(CommandNotStarted, match="container third is not valid for pod pi-worker-1"):
        call(network, "pi-worker-1", container="third")


@pytest.mark.parametrize(
    ("host", "fields", "error"),
    [
        pytest.param("elsewhere", {}, PodNotFound, id="an unknown name"),
        pytest.param("pi-worker-7.pi.hpc.svc", {}, PodNotCreatedYet, id="a worker that can still start"),
        pytest.param("e-worker-0.e", {}, Forbidden, id="a worker of another job"),
        pytest.param("pi-worker-0", {"namespace": "other"}, Forbidden, id="another namespace"),
    ],
)
def test_unreachable_targets_are_rejected(
    network: PodNetwork, host: str, fields: dict[str, str], error: type[Unreachable]
) -> None:
    with pytest.raises(Unreachable) as raised:
        call(network, host, **fields)

    assert type(raised.value) is error


def test_each_tool_has_its_own_error_message() -> None:
    what = Call("w", ["true"])

    assert (
        error_message("ssh", what, PodNotCreatedYet())
        == "ssh: Could not resolve hostname w: Name or service not known"
    )
    assert error_message("kubectl", what, PodNotFound()) == 'Error from server (NotFound): pods "w" not found'
    assert error_message("ssh", what, CommandNotStarted("no shell")) == "ssh: no shell"


@pytest.mark.parametrize(
    ("labels", "answer"),
    [
        ({OPERATOR: "mpi-operator", JOB: "pi"}, True),
        ({OPERATOR: "mpijob-controller", JOB: "pi"}, True),
        ({"mpi_job_name": "pi"}, True),
        ({OPERATOR: "pytorchjob-controller", JOB: "pi"}, False),
        ({}, False),
    ],
)
def test_pods_of_mpi_jobs_have_the_tools(labels: dict[str, str], answer: bool) -> None:
    assert is_equipped({"metadata": {"labels": labels}}) == answer
