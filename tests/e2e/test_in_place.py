"""Jobs that restart in place in real pods: the kubelet restarts one container, and all commands begin again."""

from typing import Any

import pytest

from api.labels import RESTART_ATTEMPT
from rallypoint.testing.cluster.images import BASE
from rallypoint.testing.cluster.workloads import Workloads, example, job, templates

POLICY = {"maxRestarts": 3, "rules": [{"action": "RestartJob"}], "restartStrategy": "InPlaceRestart"}
SCRIPT = """
echo attempt $RALLYPOINT_RESTART_ATTEMPT rank $RANK
if [ $RALLYPOINT_RESTART_ATTEMPT -lt 2 ]; then
    # The second failure is that of the coordinator.
    if [ $RALLYPOINT_RESTART_ATTEMPT = 0 ] && [ $RANK = 2 ]; then sleep 3; exit 7; fi
    if [ $RALLYPOINT_RESTART_ATTEMPT = 1 ] && [ $RANK = 0 ]; then sleep 3; exit 8; fi
    sleep 300
fi
sleep 1
"""


def restarts(workloads: Workloads, name: str) -> dict[str, int]:
    """Return how often the main container of each pod has been restarted."""
    return {
        pod: body["status"]["containerStatuses"][0]["restartCount"]
        for pod, body in workloads.pods(name).items()
    }


def uids(workloads: Workloads, name: str) -> set[str]:
    return {pod["metadata"]["uid"] for pod in workloads.pods(name).values()}


def test_eight_pods_restart_in_place_twice(workloads: Workloads) -> None:
    container = {"image": BASE, "command": ["sh", "-c", SCRIPT]}
    roles = {"Master": {"replicas": 1, **container}, "Worker": {"replicas": 7, **container}}
    policy = {"runPolicy": {"cleanPodPolicy": "None", "failurePolicy": POLICY}}
    workloads.apply(job("PyTorchJob", "stays", roles, **policy))
    workloads.wait_for("PyTorchJob", "stays", "Running")
    before = uids(workloads, "stays")

    workloads.wait_for("PyTorchJob", "stays", "Succeeded")

    status = workloads.get("PyTorchJob", "stays")["status"]
    assert [
        (attempt["number"], attempt["pod"], attempt["exitCode"], attempt["inPlace"])
        for attempt in status["attempts"]
    ] == [(0, "stays-worker-1", 7, True), (1, "stays-master-0", 8, True)]
    assert (status["restarts"], status["restartsCountTowardsMax"]) == (2, 2)
    assert uids(workloads, "stays") == before
    assert {name: count for name, count in restarts(workloads, "stays").items() if count} == {
        "stays-master-0": 1,
        "stays-worker-1": 1,
    }
    assert "attempt 2 rank 7" in workloads.logs("stays-worker-6")


def test_an_image_without_python_restarts_by_recreation(workloads: Workloads) -> None:
    """PATH names a folder that does not exist."""
    script = "[ $RALLYPOINT_RESTART_ATTEMPT = 0 ] && [ $RANK = 1 ] && exit 7; /bin/sleep 2"
    container = {
        "image": BASE,
        "command": ["/bin/sh", "-c", script],
        "env": [{"name": "PATH", "value": "/bin-without-python"}],
    }
    roles = {"Master": {"replicas": 1, **container}, "Worker": {"replicas": 1, **container}}
    policy = {"runPolicy": {"cleanPodPolicy": "None", "failurePolicy": POLICY}}
    workloads.apply(job("PyTorchJob", "bare", roles, **policy))

    workloads.wait_for("PyTorchJob", "bare", "Succeeded")

    (attempt,) = workloads.get("PyTorchJob", "bare")["status"]["attempts"]
    assert (attempt["exitCode"], attempt.get("inPlace")) == (7, None)
    labels = {pod["metadata"]["labels"][RESTART_ATTEMPT] for pod in workloads.pods("bare").values()}
    assert labels == {"1"}
    assert "no python3 in this image" in workloads.logs("bare-worker-0")


RANK_FAILS_ONCE = (
    "[ $RALLYPOINT_RESTART_ATTEMPT = 0 ] && [ $OMPI_COMM_WORLD_RANK = 2 ] && exit 7; exec /opt/pi/pi"
)


@pytest.mark.parametrize(
    "manifest",
    [
        "mpi/pi.yaml",
        pytest.param("mpi/pi-v1.yaml", marks=pytest.mark.full),
        pytest.param("mpi/pi-v1alpha2.yaml", marks=pytest.mark.full),
    ],
)
@pytest.mark.usefixtures("rights_of_mpi_v1")
def test_a_rank_that_fails_restarts_the_ranks_of_an_mpijob_in_place(
    workloads: Workloads, manifest: str
) -> None:
    (document,) = example(manifest)
    document["spec"].pop("backoffLimit", None)
    document["spec"]["runPolicy"] = {"cleanPodPolicy": "None", "failurePolicy": POLICY}
    document["metadata"]["annotations"] = {"kubeflow.org/mpi-wait-for-workers": "true"}
    name = document["metadata"]["name"]
    mpirun = ["mpirun", "-n", "4", "-x", "RALLYPOINT_RESTART_ATTEMPT"]
    first(document, "Launcher").update(command=[*mpirun, "sh", "-c", RANK_FAILS_ONCE])
    workloads.apply(document)

    workloads.wait_for("mpijobs", name, "Succeeded", seconds=180)

    (attempt,) = workloads.get("mpijobs", name)["status"]["attempts"]
    assert (attempt["role"], attempt["exitCode"], attempt["inPlace"]) == ("Launcher", 7, True)
    pods = workloads.pods(name)
    assert {pod["metadata"]["labels"][RESTART_ATTEMPT] for pod in pods.values()} == {"0"}
    assert sum(restarts(workloads, name).values()) == 1
    assert "pi 3.141592653590 on 4 ranks" in workloads.logs_of("role=Launcher")


def first(document: dict[str, Any], role: str) -> dict[str, Any]:
    """Return the first container of a role's template."""
    container: dict[str, Any] = templates(document)[role]["spec"]["containers"][0]
    return container
