"""Part of ``bench cluster``: a node loses power while a job runs on it. Measures when users see each consequence."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from rallypoint.diagnosis.objects import is_condition_true
from rallypoint.testing.cluster.cluster import Cluster
from rallypoint.testing.cluster.images import BASE
from rallypoint.testing.cluster.workloads import LEAVES_SOON, Workloads, job

TIMEOUT_SECONDS = 180.0
LABELS = {
    "not_ready_s": "off → node NotReady, pod not Ready, s",
    "deletion_requested_s": "off → pod has a deletionTimestamp, s",
    "job_restarting_s": "off → job Restarting, s",
    "node_ready_s": "on → node Ready, s",
    "old_pod_gone_s": "on → old pod is gone, s",
    "new_pod_running_s": "on → new pod runs, s",
    "job_running_s": "on → job Running, s",
}
_LOST = "cut-worker-0"
_NODE = "node-2"


def power_cut(cluster: Cluster) -> dict[str, float]:
    """Cut the power of the worker's node until the job is Restarting, then restore it.

    The job has a master and a worker under ``restartPolicy: ExitCode``.

    Raises:
        ProcessFailed: a consequence does not show within three minutes.
    """
    with Workloads(cluster) as workloads:
        workloads.apply(_job())
        workloads.wait("the job to run", lambda: _runs(workloads) and _condition(workloads, "Running"))
        lost = _uid(workloads)
        since = time.monotonic()
        cluster.nodes[_NODE].power_off()
        off = _durations(
            workloads,
            since,
            {
                "not_ready_s": lambda: not _node_ready(cluster) and not _pod_ready(workloads),
                "deletion_requested_s": lambda: "deletionTimestamp" in _pod(workloads)["metadata"],
                "job_restarting_s": lambda: _condition(workloads, "Restarting"),
            },
        )
        since = time.monotonic()
        cluster.nodes[_NODE].power_on()
        on = _durations(
            workloads,
            since,
            {
                "node_ready_s": lambda: _node_ready(cluster),
                "old_pod_gone_s": lambda: _uid(workloads) != lost,
                "new_pod_running_s": lambda: _uid(workloads) not in {lost, ""} and _runs(workloads),
                "job_running_s": lambda: _condition(workloads, "Running"),
            },
        )
    return off | on


def _durations(
    workloads: Workloads, since: float, figures: Mapping[str, Callable[[], bool]]
) -> dict[str, float]:
    """Return when each condition first held, in seconds from ``since``."""
    durations: dict[str, float] = {}

    def check() -> bool:
        for figure, is_so in figures.items():
            if figure not in durations and is_so():
                durations[figure] = time.monotonic() - since
        return durations.keys() == figures.keys()

    workloads.wait(" and ".join(figures), check, seconds=TIMEOUT_SECONDS)
    return durations


def _job() -> dict[str, Any]:
    container = {"image": BASE, "command": ["sleep", "infinity"], "restartPolicy": "ExitCode"}
    pods = {
        node: {"nodeSelector": {"kubernetes.io/hostname": node}, "terminationGracePeriodSeconds": 1}
        for node in ("node-1", _NODE)
    }
    worker = {**container, "pod": {**pods[_NODE], "tolerations": [LEAVES_SOON]}}
    return job("PyTorchJob", "cut", {"Master": {**container, "pod": pods["node-1"]}, "Worker": worker})


def _pod(workloads: Workloads) -> dict[str, Any]:
    """Return the worker's pod, or an empty object while there is none."""
    listed = workloads.cluster.plane.request("GET", f"/api/v1/namespaces/{workloads.namespace}/pods")["items"]
    return next((pod for pod in listed if pod["metadata"]["name"] == _LOST), {"metadata": {}})


def _uid(workloads: Workloads) -> str:
    return str(_pod(workloads)["metadata"].get("uid", ""))


def _runs(workloads: Workloads) -> bool:
    return bool(_pod(workloads).get("status", {}).get("phase") == "Running")


def _pod_ready(workloads: Workloads) -> bool:
    return is_condition_true(_pod(workloads), "Ready")


def _node_ready(cluster: Cluster) -> bool:
    return is_condition_true(cluster.plane.request("GET", f"/api/v1/nodes/{_NODE}"), "Ready")


def _condition(workloads: Workloads, type_: str) -> bool:
    path = f"/apis/kubeflow.org/v1/namespaces/{workloads.namespace}/pytorchjobs/cut"
    return is_condition_true(workloads.cluster.plane.request("GET", path), type_)
