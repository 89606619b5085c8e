"""The operator in its own pods: least privilege, failover and upgrades during a job."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rallypoint.testing.cluster import images
from rallypoint.testing.cluster.cluster import Cluster
from rallypoint.testing.cluster.images import BASE
from rallypoint.testing.cluster.installation import DEPLOY, NAMESPACE, apply, wait
from rallypoint.testing.cluster.workloads import Workloads, job

LEASE = "1ca428e5.training-operator.kubeflow.org"
NEXT = "docker.io/library/rallypoint:next"
WAITS = "until [ -e /tmp/go ]; do [ -e /tmp/fail ] && exit 130; sleep 0.2; done"
PATIENT: dict[str, Any] = {"image": BASE, "command": ["sh", "-c", WAITS], "restartPolicy": "ExitCode"}
"""A container that ends on request or fails as if it were interrupted."""
KILL = "p=${one%/cgroup}; if grep -q controller $p/cmdline; then kill -9 ${p#/proc/}; fi"
POLICY = {"cleanPodPolicy": "None", "backoffLimit": 3}
"""With a limit, what has been restarted is counted in the status."""


def operator_pods(cluster: Cluster) -> dict[str, Any]:
    output = cluster.kubectl("-n", NAMESPACE, "get", "pods", "-l", "app=training-operator", "-o", "json")
    return {pod["metadata"]["name"]: pod for pod in json.loads(output)["items"]}


def leader(cluster: Cluster) -> str:
    """The name of the pod that works."""
    return holder(cluster).partition("_")[0]


def holder(cluster: Cluster) -> str:
    """What the process that works calls itself."""
    return cluster.kubectl("-n", NAMESPACE, "get", "lease", LEASE, "-o", "jsonpath={.spec.holderIdentity}")


def start_patient(workloads: Workloads) -> dict[str, Any]:
    """Start a master and two workers that run until the test ends them; return their pods."""
    roles = {"Master": PATIENT, "Worker": {"replicas": 2, **PATIENT}}
    workloads.apply(job("PyTorchJob", "patient", roles, runPolicy=POLICY))
    workloads.wait("three pods to run", lambda: active(workloads) == [1, 2])
    return workloads.pods("patient")


def active(workloads: Workloads) -> list[int]:
    """Return the running pods of each role by the job's status."""
    replica_statuses = workloads.get("PyTorchJob", "patient").get("status", {}).get("replicaStatuses", {})
    return [replica_statuses.get(role, {}).get("active", 0) for role in ("Master", "Worker")]


def finish(workloads: Workloads) -> None:
    for pod in workloads.pods("patient"):
        workloads.kubectl("exec", pod, "-c", "pytorch", "--", "touch", "/tmp/go")


def lives(pods: dict[str, Any]) -> dict[str, tuple[str, int]]:
    """Which pod each is, and how often its container has been restarted."""
    return {
        name: (pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["restartCount"])
        for name, pod in pods.items()
    }


def kernel_view(cluster: Cluster, pod: str) -> dict[str, str]:
    """What the kernel says of a replica's first process."""
    output = cluster.kubectl(
        "-n", NAMESPACE, "exec", pod, "--", "python", "-c", "print(open('/proc/1/status').read())"
    )
    return dict(line.split(":\t", 1) for line in output.splitlines() if ":\t" in line)


def working_set_bytes(cluster: Cluster) -> dict[str, int]:
    """Memory of each replica as the kubelet counts it."""
    summaries = [
        cluster.plane.request("GET", f"/api/v1/nodes/{name}/proxy/stats/summary") for name in cluster.nodes
    ]
    return {
        pod["podRef"]["name"]: pod["memory"]["workingSetBytes"]
        for summary in summaries
        for pod in summary["pods"]
        if pod["podRef"]["namespace"] == NAMESPACE and "memory" in pod
    }


def test_replicas_run_on_different_nodes_with_least_privilege(cluster: Cluster) -> None:
    pods = operator_pods(cluster)

    assert {pod["spec"]["nodeName"] for pod in pods.values()} == set(cluster.nodes)
    for name in pods:
        kernel_status = kernel_view(cluster, name)
        assert kernel_status["Uid"].split() == ["65532"] * 4
        assert (kernel_status["CapEff"], kernel_status["NoNewPrivs"], kernel_status["Seccomp"]) == (
            "0" * 16,
            "1",
            "2",
        )
        write = ("-n", NAMESPACE, "exec", name, "--", "python", "-c", "open('/opt/rallypoint/x', 'w')")
        with pytest.raises(subprocess.CalledProcessError) as refused:
            cluster.kubectl(*write)
        assert "Read-only file system" in refused.value.stderr


def test_replicas_take_less_memory_than_they_request(cluster: Cluster) -> None:
    cluster.plane.wait("both to be counted", lambda: len(working_set_bytes(cluster)) == 2)

    assert max(working_set_bytes(cluster).values()) < 96 * 1024 * 1024


def delete(cluster: Cluster, pod: str) -> None:
    cluster.kubectl("-n", NAMESPACE, "delete", "pod", pod, "--grace-period=0", "--force")


def crash(cluster: Cluster, pod: str) -> None:
    """Its process is killed in its node, and gives back no Lease."""
    found = operator_pods(cluster)[pod]
    script = f"for one in $(grep -l {found['metadata']['uid']} /proc/[0-9]*/cgroup); do {KILL}; done"
    cluster.nodes[found["spec"]["nodeName"]].run("sh", "-c", script)


@pytest.mark.parametrize("end", [delete, crash])
def test_another_replica_takes_over_when_the_leader_ends(
    cluster: Cluster, workloads: Workloads, end: Callable[[Cluster, str], None]
) -> None:
    before = start_patient(workloads)
    first = holder(cluster)
    end(cluster, leader(cluster))

    finish(workloads)
    workloads.wait_for("PyTorchJob", "patient", "Succeeded")

    assert holder(cluster) not in {first, ""}
    assert lives(workloads.pods("patient")) == lives(before)
    wait(cluster)


def test_an_upgrade_leaves_running_jobs_alone(cluster: Cluster, workloads: Workloads, tmp_path: Path) -> None:
    """By ``kubectl apply`` of a manifest with another image, in a namespace that enforces the Pod Security profile ``restricted``."""
    for node in cluster.nodes.values():
        node.run("ctr", "-n", "k8s.io", "images", "tag", "--force", images.operator_name(), NEXT)
    first = start_patient(workloads)
    workloads.kubectl("exec", "patient-worker-1", "--", "touch", "/tmp/fail")
    workloads.wait("a new worker", lambda: replaced(workloads, first) == {"patient-worker-1"})
    workloads.wait("the event to be recorded", lambda: is_recorded(workloads))
    before, status = workloads.pods("patient"), workloads.get("PyTorchJob", "patient")["status"]
    old = set(operator_pods(cluster))

    manifest = tmp_path / "standalone.yaml"
    shipped = DEPLOY.read_text()
    manifest.write_text(shipped.replace(f"image: {short(images.operator_name())}", f"image: {short(NEXT)}"))
    apply(cluster, manifest)
    workloads.apply(job("PyTorchJob", "meanwhile", {"Master": {"image": BASE, "command": ["true"]}}))
    wait(cluster)
    cluster.plane.wait("the old replicas to go", lambda: not old & set(operator_pods(cluster)))
    cluster.plane.wait("a new one to lead", lambda: leader(cluster) in operator_pods(cluster))
    assert {pod["spec"]["nodeName"] for pod in operator_pods(cluster).values()} == set(cluster.nodes)
    workloads.wait_for("PyTorchJob", "meanwhile", "Succeeded")

    assert workloads.get("PyTorchJob", "patient")["status"] == status
    assert status["replicaStatuses"]["Worker"]["restarts"] == 1
    finish(workloads)
    workloads.wait_for("PyTorchJob", "patient", "Succeeded")
    assert lives(workloads.pods("patient")) == lives(before)
    assert stable_fields(workloads.get("PyTorchJob", "patient")["status"]) == stable_fields(status)


def is_recorded(workloads: Workloads) -> bool:
    """Whether the status says of a worker that it has been restarted, and that all is well again."""
    running = workloads.condition("PyTorchJob", "patient", "Running")
    worker = workloads.get("PyTorchJob", "patient")["status"]["replicaStatuses"]["Worker"]
    return bool(running) and {**worker, "selector": ""} == {"active": 2, "restarts": 1, "selector": ""}


def replaced(workloads: Workloads, before: dict[str, Any]) -> set[str]:
    """Pods that run in the place of those of before."""
    pods = workloads.pods("patient")
    return {
        name
        for name, pod in before.items()
        if name in pods
        and pods[name]["metadata"]["uid"] != pod["metadata"]["uid"]
        and pods[name]["status"]["phase"] == "Running"
    }


def stable_fields(status: dict[str, Any]) -> list[Any]:
    """What the end of a job does not change."""
    (created,) = (condition for condition in status["conditions"] if condition["type"] == "Created")
    return [status["startTime"], created, status["replicaStatuses"]["Worker"]["restarts"]]


def short(image: str) -> str:
    return image.removeprefix("docker.io/library/")
