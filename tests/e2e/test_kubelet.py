"""The work of a real kubelet: image pulls, memory and disk limits, restarts in place and grace periods."""

from typing import Any

import pytest

from rallypoint.testing.cluster.cluster import Cluster
from rallypoint.testing.cluster.images import BASE
from rallypoint.testing.cluster.workloads import Workloads, job

NOT_PULLED = ({"ErrImagePull"}, {"ImagePullBackOff"})
ROLE = {"image": BASE, "resources": {"limits": {"memory": "64Mi"}}}


def state(pod: dict[str, Any]) -> dict[str, Any]:
    """Of its only container: what it waits for, or how it has ended."""
    (container,) = pod["status"].get("containerStatuses", [{"state": {}}])
    return {**container["state"].get("waiting", {}), **container["state"].get("terminated", {})}


def reasons(workloads: Workloads, job: str) -> set[str]:
    """Why the job's containers wait or have ended."""
    return {state(pod).get("reason", "") for pod in workloads.pods(job).values()}


def marking(workloads: Workloads, script: str) -> dict[str, Any]:
    """A role on node-1 whose program sees the files of earlier programs in ``/mark``."""
    mark = {"name": "mark", "hostPath": {"path": f"/run/{workloads.namespace}", "type": "DirectoryOrCreate"}}
    return {
        "image": BASE,
        "command": ["sh", "-c", script],
        "volumeMounts": [{"name": "mark", "mountPath": "/mark"}],
        "pod": {"volumes": [mark], "nodeSelector": {"kubernetes.io/hostname": "node-1"}},
    }


def marks(cluster: Cluster, workloads: Workloads) -> list[str]:
    return cluster.nodes["node-1"].run("sh", "-c", f"ls /run/{workloads.namespace} || true").split()


def test_a_job_with_an_image_that_cannot_be_pulled_waits_until_its_deadline(workloads: Workloads) -> None:
    nowhere = {"image": "registry.local/nowhere:1"}
    workloads.apply(job("PyTorchJob", "pull", {"Master": nowhere}, runPolicy={"activeDeadlineSeconds": 20}))

    workloads.wait("the pull to fail", lambda: reasons(workloads, "pull") in NOT_PULLED)
    assert not workloads.condition("PyTorchJob", "pull", "Failed")

    workloads.wait_for("PyTorchJob", "pull", "Failed")
    workloads.wait("its pod to go", lambda: not workloads.pods("pull"))


def test_a_container_that_exceeds_its_memory_limit_fails_the_job(workloads: Workloads) -> None:
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
    flaky = marking(workloads, "[ -e /mark/there ] || { touch /mark/there; exit 130; }")
    flaky["restartPolicy"] = policy
    workloads.apply(job("PyTorchJob", "flaky", {"Master": flaky}, runPolicy={"cleanPodPolicy": "None"}))

    workloads.wait_for("PyTorchJob", "flaky", "Succeeded")

    (status,) = workloads.pods("flaky")["flaky-master-0"]["status"]["containerStatuses"]
    assert status["restartCount"] == int(restarted_in_place)


def test_a_program_that_fails_permanently_is_not_restarted(workloads: Workloads) -> None:
    broken = {"image": BASE, "command": ["sh", "-c", "exit 3"], "restartPolicy": "ExitCode"}
    workloads.apply(job("PyTorchJob", "broken", {"Master": broken}, runPolicy={"cleanPodPolicy": "None"}))

    workloads.wait_for("PyTorchJob", "broken", "Failed")

    (status,) = workloads.pods("broken")["broken-master-0"]["status"]["containerStatuses"]
    assert status["restartCount"] == 0
    assert status["state"]["terminated"]["exitCode"] == 3


DISK = {"limits": {"ephemeral-storage": "16Mi"}}
FILLS = (
    "[ -e /mark/there ] && exit 0; touch /mark/there; dd if=/dev/zero of=/fill bs=1M count=64; sleep infinity"
)


@pytest.mark.full
@pytest.mark.parametrize(
    ("policy", "end"),
    [
        pytest.param("Never", "Failed", id="and fails the job"),
        pytest.param("ExitCode", "Succeeded", id="and is made anew"),
        pytest.param("OnFailure", "Succeeded", id="and is made anew under OnFailure, too"),
    ],
)
def test_a_pod_that_exceeds_its_disk_limit_is_evicted(
    cluster: Cluster, workloads: Workloads, policy: str, end: str
) -> None:
    """By its first program; a second one ends at once."""
    greedy = {**marking(workloads, FILLS), "restartPolicy": policy, "resources": DISK}
    workloads.apply(job("PyTorchJob", "greedy", {"Master": greedy}, runPolicy={"cleanPodPolicy": "None"}))

    workloads.wait_for("PyTorchJob", "greedy", end)

    events = workloads.kubectl("get", "events", "--field-selector=reason=Evicted", "-o", "name")
    assert len(events.splitlines()) == 1
    pod = workloads.pods("greedy")["greedy-master-0"]
    assert pod["status"].get("reason") == ("Evicted" if end == "Failed" else None)


@pytest.mark.parametrize("ending", ["deleted", "suspended"])
def test_a_program_gets_its_termination_grace_period(
    cluster: Cluster, workloads: Workloads, ending: str
) -> None:
    """The program records the signal and, some seconds later, its own end."""
    script = "trap 'touch /mark/told; sleep 3; touch /mark/saved; exit 0' TERM; touch /mark/there; sleep infinity & wait"
    workloads.apply(job("PyTorchJob", "saves", {"Master": marking(workloads, script)}))
    workloads.wait("the program to be there", lambda: "there" in marks(cluster, workloads))

    if ending == "deleted":
        workloads.kubectl("delete", "pytorchjob", "saves", "--wait=false")
    else:
        suspend = '{"spec": {"runPolicy": {"suspend": true}}}'
        workloads.kubectl("patch", "pytorchjob", "saves", "--type=merge", "-p", suspend)
    workloads.wait("its pod to go", lambda: not workloads.pods("saves"))

    assert marks(cluster, workloads) == ["saved", "there", "told"]
    if ending == "suspended":
        workloads.wait_for("PyTorchJob", "saves", "Suspended")


def test_workers_start_when_the_name_of_their_master_resolves(workloads: Workloads) -> None:
    """The operator's own init container waits for that: the name is there once the master is Ready, which takes some seconds here."""
    pod = {"terminationGracePeriodSeconds": 1}
    role = {"image": BASE, "command": ["sleep", "infinity"], "pod": pod}
    slow = {"name": "slow", "image": BASE, "command": ["sleep", "3"]}
    roles = {
        "Master": {**role, "pod": {**pod, "initContainers": [slow]}},
        "Worker": {**role, "command": ["getent", "hosts", "order-master-0"]},
    }
    workloads.apply(job("PyTorchJob", "order", roles))

    workloads.wait(
        "the worker to end", lambda: "exitCode" in state(workloads.pods("order")["order-worker-0"])
    )

    pods = workloads.pods("order")
    (waited,) = pods["order-worker-0"]["status"]["initContainerStatuses"]
    (master,) = pods["order-master-0"]["status"]["containerStatuses"]
    assert waited["name"] == "init-pytorch"
    assert waited["state"]["terminated"]["finishedAt"] >= master["state"]["running"]["startedAt"]
    assert state(pods["order-worker-0"])["exitCode"] == 0


def test_an_init_container_that_fails_fails_the_job(workloads: Workloads) -> None:
    prepare = {"name": "prepare", "image": BASE, "command": ["sh", "-c", "exit 4"]}
    role = {"image": BASE, "command": ["true"], "pod": {"initContainers": [prepare]}}
    workloads.apply(job("PyTorchJob", "unready", {"Master": role}, runPolicy={"cleanPodPolicy": "None"}))

    workloads.wait_for("PyTorchJob", "unready", "Failed")

    (prepared,) = workloads.pods("unready")["unready-master-0"]["status"]["initContainerStatuses"]
    assert prepared["state"]["terminated"]["exitCode"] == 4
