"""What only a kubelet does: it pulls images, kills what takes too much memory, and restarts containers where they are."""

from typing import Any

import pytest

from controller.testing.cluster.images import BASE
from controller.testing.cluster.workloads import Workloads, job

NOT_PULLED = ({"ErrImagePull"}, {"ImagePullBackOff"})
ROLE = {"image": BASE, "resources": {"limits": {"memory": "64Mi"}}}


def state(pod: dict[str, Any]) -> dict[str, Any]:
    """Of its only container: what it waits for, or how it has ended."""
    (container,) = pod["status"].get("containerStatuses", [{"state": {}}])
    return {**container["state"].get("waiting", {}), **container["state"].get("terminated", {})}


def reasons(workloads: Workloads, job: str) -> set[str]:
    """Why the job's containers wait or have ended."""
    return {state(pod).get("reason", "") for pod in workloads.pods(job).values()}


def test_an_image_that_cannot_be_pulled_is_waited_for_until_the_deadline(workloads: Workloads) -> None:
    nowhere = {"image": "registry.local/nowhere:1"}
    workloads.apply(job("PyTorchJob", "pull", {"Master": nowhere}, runPolicy={"activeDeadlineSeconds": 20}))

    workloads.wait("the pull to fail", lambda: reasons(workloads, "pull") in NOT_PULLED)
    assert not workloads.condition("PyTorchJob", "pull", "Failed")

    workloads.wait_for("PyTorchJob", "pull", "Failed")
    workloads.wait("its pod to go", lambda: not workloads.pods("pull"))


def test_a_container_that_takes_too_much_memory_fails_the_job(workloads: Workloads) -> None:
    greedy = {**ROLE, "command": ["python", "-c", "x = bytearray(256 * 1024 * 1024); print(len(x))"]}
    workloads.apply(job("PyTorchJob", "greedy", {"Master": greedy}, runPolicy={"cleanPodPolicy": "None"}))

    workloads.wait_for("PyTorchJob", "greedy", "Failed")

    ended = state(workloads.pods("greedy")["greedy-master-0"])
    assert (ended["reason"], ended["exitCode"]) == ("OOMKilled", 137)


@pytest.mark.parametrize(
    ("policy", "restarted_in_place"),
    [
        pytest.param("OnFailure", True, id="the kubelet restarts the container"),
        pytest.param("ExitCode", False, id="the operator replaces the pod"),
    ],
)
def test_a_program_that_fails_once_succeeds(
    workloads: Workloads, policy: str, restarted_in_place: bool
) -> None:
    """It fails with 130, as if interrupted, as long as the mark is missing that a second start finds on the node."""
    script = "[ -e /mark/there ] || { touch /mark/there; exit 130; }"
    mark = {"name": "mark", "hostPath": {"path": f"/run/{workloads.namespace}", "type": "DirectoryOrCreate"}}
    flaky = {
        "image": BASE,
        "command": ["sh", "-c", script],
        "restartPolicy": policy,
        "volumeMounts": [{"name": "mark", "mountPath": "/mark"}],
        "pod": {"volumes": [mark], "nodeSelector": {"kubernetes.io/hostname": "node-1"}},
    }
    workloads.apply(job("PyTorchJob", "flaky", {"Master": flaky}, runPolicy={"cleanPodPolicy": "None"}))

    workloads.wait_for("PyTorchJob", "flaky", "Succeeded")

    (status,) = workloads.pods("flaky")["flaky-master-0"]["status"]["containerStatuses"]
    assert status["restartCount"] == int(restarted_in_place)


def test_a_program_that_fails_for_good_is_not_started_again(workloads: Workloads) -> None:
    broken = {"image": BASE, "command": ["sh", "-c", "exit 3"], "restartPolicy": "ExitCode"}
    workloads.apply(job("PyTorchJob", "broken", {"Master": broken}, runPolicy={"cleanPodPolicy": "None"}))

    workloads.wait_for("PyTorchJob", "broken", "Failed")

    (status,) = workloads.pods("broken")["broken-master-0"]["status"]["containerStatuses"]
    assert status["restartCount"] == 0
    assert status["state"]["terminated"]["exitCode"] == 3
