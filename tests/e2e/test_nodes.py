"""Nodes that lose a program, their power or their pods during a job, and nodes with and without GPUs."""

import json
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

from rallypoint.testing.cluster.cluster import Cluster
from rallypoint.testing.cluster.images import BASE
from rallypoint.testing.cluster.installation import spread
from rallypoint.testing.cluster.workloads import LEAVES_SOON, Workloads, job

PATIENT: dict[str, Any] = {
    "image": BASE,
    "command": ["sh", "-c", "until [ -e /tmp/go ]; do sleep 0.2; done"],
    "restartPolicy": "ExitCode",
}
"""A container that ends on request; its pod is created again when it is killed."""


def pinned_to(node: str, **pod: Any) -> dict[str, Any]:
    return patient(nodeSelector={"kubernetes.io/hostname": node}, **pod)


def patient(**pod: Any) -> dict[str, Any]:
    return {**PATIENT, "pod": {"terminationGracePeriodSeconds": 1, **pod}}


def start(workloads: Workloads, roles: dict[str, Any]) -> dict[str, Any]:
    """The job ``patient`` once all its pods run; these."""
    workloads.apply(job("PyTorchJob", "patient", roles, runPolicy={"cleanPodPolicy": "None"}))
    workloads.wait("pods to run", lambda: running(workloads) == set(POD_NAMES))
    return workloads.pods("patient")


POD_NAMES = ("patient-master-0", "patient-worker-0")


def running(workloads: Workloads) -> set[str]:
    """Pods that run and are not to go."""
    return {
        name
        for name, pod in workloads.pods("patient").items()
        if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
    }


def finish(workloads: Workloads, *pods: str) -> None:
    for pod in pods:
        workloads.kubectl("exec", pod, "-c", "pytorch", "--", "touch", "/tmp/go")


def uid(pods: dict[str, Any], name: str) -> str:
    return str(pods[name]["metadata"]["uid"]) if name in pods else ""


@pytest.mark.parametrize("killed", [("kubelet",), ("kubelet", "containerd")], ids="+".join)
def test_pods_outlive_the_kubelet_and_containerd(
    cluster: Cluster, workloads: Workloads, killed: tuple[str, ...]
) -> None:
    before = start(workloads, {"Master": pinned_to("node-1"), "Worker": pinned_to("node-2")})
    running = workloads.condition("PyTorchJob", "patient", "Running")
    for program in killed:
        cluster.nodes["node-2"].kill(program)

    workloads.wait("the node to be back", lambda: answers(workloads))
    assert workloads.condition("PyTorchJob", "patient", "Running") == running
    finish(workloads, *POD_NAMES)
    workloads.wait_for("PyTorchJob", "patient", "Succeeded")

    after = workloads.pods("patient")
    assert [uid(after, name) for name in POD_NAMES] == [uid(before, name) for name in POD_NAMES]


def answers(workloads: Workloads) -> bool:
    try:
        workloads.kubectl("exec", POD_NAMES[1], "-c", "pytorch", "--", "true")
    except subprocess.CalledProcessError:
        return False
    return True


def test_a_worker_is_created_again_when_its_node_is_drained(cluster: Cluster, workloads: Workloads) -> None:
    before = start(workloads, {"Master": pinned_to("node-1"), "Worker": patient(affinity=prefers("node-2"))})
    assert before[POD_NAMES[1]]["spec"]["nodeName"] == "node-2"
    try:
        cluster.kubectl("drain", "node-2", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=120s")
        workloads.wait(
            "a new worker",
            lambda: (
                POD_NAMES[1] in running(workloads)
                and uid(workloads.pods("patient"), POD_NAMES[1]) != uid(before, POD_NAMES[1])
            ),
        )
    finally:
        cluster.kubectl("uncordon", "node-2")
        spread(cluster)

    after = workloads.pods("patient")
    assert after[POD_NAMES[1]]["spec"]["nodeName"] == "node-1"
    assert uid(after, POD_NAMES[0]) == uid(before, POD_NAMES[0])
    finish(workloads, *POD_NAMES)
    workloads.wait_for("PyTorchJob", "patient", "Succeeded")


def test_a_drain_fails_a_job_whose_pods_are_not_to_be_restarted(
    cluster: Cluster, workloads: Workloads
) -> None:
    """The job fails as soon as a pod is deleted: see decision 8."""
    stays = {"Master": pinned_to("node-1"), "Worker": {**pinned_to("node-2"), "restartPolicy": "Never"}}
    start(workloads, stays)
    try:
        cluster.kubectl("drain", "node-2", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=120s")
        workloads.wait_for("PyTorchJob", "patient", "Failed")
    finally:
        cluster.kubectl("uncordon", "node-2")
        spread(cluster)

    message = workloads.condition("PyTorchJob", "patient", "Failed")["message"]
    assert message.endswith(" is failed because 1 Worker replica(s) failed.")
    assert not workloads.condition("PyTorchJob", "patient", "Restarting")


def prefers(node: str) -> dict[str, Any]:
    term = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    preferred = [{"weight": 100, "preference": {"matchExpressions": [term]}}]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}


@pytest.mark.full
def test_a_worker_is_created_again_when_its_node_returns_after_a_power_cut(
    cluster: Cluster, workloads: Workloads
) -> None:
    """Its pod is only gone for sure when its own kubelet says so; until then there is no second one of that name."""
    before = start(
        workloads, {"Master": pinned_to("node-1"), "Worker": pinned_to("node-2", tolerations=[LEAVES_SOON])}
    )
    with without_power(cluster, workloads):
        assert uid(workloads.pods("patient"), POD_NAMES[1]) == uid(before, POD_NAMES[1])
        workloads.wait_for("PyTorchJob", "patient", "Restarting")
        cause = workloads.why("PyTorchJob", "patient")["causes"][0]
        assert cause["about"] == [POD_NAMES[1]]
        assert "node node-2 is not Ready: Kubelet stopped posting node status." in cause["text"]
    workloads.wait(
        "a new worker",
        lambda: (
            POD_NAMES[1] in running(workloads)
            and uid(workloads.pods("patient"), POD_NAMES[1]) != uid(before, POD_NAMES[1])
        ),
    )

    assert uid(workloads.pods("patient"), POD_NAMES[0]) == uid(before, POD_NAMES[0])
    finish(workloads, *POD_NAMES)
    workloads.wait_for("PyTorchJob", "patient", "Succeeded")


@pytest.mark.full
def test_a_power_cut_fails_a_job_whose_pods_are_not_to_be_restarted(
    cluster: Cluster, workloads: Workloads
) -> None:
    """While its node is off; what comes back with the node is removed, and is not made again."""
    stays = {**pinned_to("node-2", tolerations=[LEAVES_SOON]), "restartPolicy": "Never"}
    start(workloads, {"Master": pinned_to("node-1"), "Worker": stays})
    with without_power(cluster, workloads):
        workloads.wait_for("PyTorchJob", "patient", "Failed")
    workloads.wait("the lost pod to go", lambda: POD_NAMES[1] not in workloads.pods("patient"))

    message = workloads.condition("PyTorchJob", "patient", "Failed")["message"]
    assert message.endswith(" is failed because 1 Worker replica(s) failed.")
    assert POD_NAMES[0] in running(workloads)


@contextmanager
def without_power(cluster: Cluster, workloads: Workloads) -> Generator[None]:
    """Stop the second node; the block starts when its pod is being deleted."""
    node = cluster.nodes["node-2"]
    node.power_off()
    try:
        workloads.wait("the deletion of its pod", lambda: POD_NAMES[1] not in running(workloads))
        yield
    finally:
        node.power_on()


GPUS = "/status/capacity/nvidia.com~1gpu"


def test_a_job_waits_for_gpus_until_a_node_has_them(cluster: Cluster, workloads: Workloads) -> None:
    """The test writes the GPUs into the node's status, without a device plugin."""
    asks = {"image": BASE, "command": ["true"], "resources": {"limits": {"nvidia.com/gpu": 2}}}
    workloads.apply(job("PyTorchJob", "gpus", {"Master": asks}, runPolicy={"cleanPodPolicy": "None"}))
    workloads.wait("the scheduler to refuse", lambda: "Insufficient nvidia.com/gpu" in unscheduled(workloads))
    waiting = workloads.get("PyTorchJob", "gpus")["status"]
    try:
        patch_node(cluster, {"op": "add", "path": GPUS, "value": "2"})
        workloads.wait_for("PyTorchJob", "gpus", "Succeeded")
    finally:
        patch_node(cluster, {"op": "remove", "path": GPUS})

    assert [condition["type"] for condition in waiting["conditions"]] == ["Created"]
    assert workloads.pods("gpus")["gpus-master-0"]["spec"]["nodeName"] == "node-2"


def unscheduled(workloads: Workloads) -> str:
    """Why the scheduler places the job's only pod nowhere."""
    conditions = [
        condition
        for pod in workloads.pods("gpus").values()
        for condition in pod["status"].get("conditions", [])
    ]
    return "".join(
        condition.get("message", "") for condition in conditions if condition["type"] == "PodScheduled"
    )


def patch_node(cluster: Cluster, change: dict[str, Any]) -> None:
    cluster.kubectl(
        "patch", "node", "node-2", "--subresource=status", "--type=json", "-p", json.dumps([change])
    )
