"""``bench lost-nodes``: the power of a node is cut under a job with ``nodeLostSeconds``. Measures when its worker runs elsewhere, unattended."""

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console

from bench import record
from bench.figures import table
from bench.subparsers import Subparsers
from controller.runtime.nodes import POLL_SECONDS, STANDSTILL_SECONDS
from rallypoint.testing.cluster import installation
from rallypoint.testing.cluster.cluster import Cluster
from rallypoint.testing.cluster.images import BASE
from rallypoint.testing.cluster.workloads import Workloads, job
from rallypoint.testing.controlplane import ProcessFailed, Unavailable

LOST_SECONDS = 30
TIMEOUT_SECONDS = 180.0
LABELS = {
    "deleted_s": "off → pod object deleted, s",
    "running_s": "off → new pod runs on the other node, s",
    "job_running_s": "off → job Running again, s",
    "not_ready_s": "off → Kubernetes reports the node as not Ready, s",
}
LEADER, STANDBY = "with the leader of the operator", "with its standby"
_LEASE = "/apis/coordination.k8s.io/v1/namespaces/{}/leases/1ca428e5.training-operator.kubeflow.org"
_WORKER = "cut-worker-0"


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "lost-nodes", help="cut the power of a node under a job; needs Linux and root"
    )
    parser.add_argument("--runs", type=int, default=10, help="power cuts; default: 10")
    parser.add_argument("--no-record", action="store_true", help="show the figures without recording them")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Return the exit status: 0, or 1 if the measurement failed."""
    console, load_before = Console(stderr=True, highlight=False), record.load_average()
    found: dict[str, list[dict[str, float]]] = {LEADER: [], STANDBY: []}
    try:
        with Cluster() as cluster:
            installation.install(cluster)
            version = cluster.plane.request("GET", "/version")["gitVersion"]
            for number in range(args.runs):
                place = (LEADER, STANDBY)[number % 2]
                found[place].append(power_cut(cluster, place))
                console.print(f"power cut {number}, the node {place}: {found[place][-1]}")
    except (ProcessFailed, Unavailable) as error:
        console.print(f"not measured: {error}", style="red", markup=False)
        return 1
    shown = {f"{place}, {len(runs)} cuts": runs for place, runs in found.items()}
    Console(file=sys.stdout, width=140).print(table("a node without power", LABELS, shown))
    if not args.no_record:
        result = record.document(load_before, version, node_lost_seconds=LOST_SECONDS, lost_nodes=found)
        console.print(f"recorded in {record.save('lost-nodes', result)}")
    return 0


def power_cut(cluster: Cluster, place: str) -> dict[str, float]:
    """Cut the power of the worker's node until the worker runs on the other one and Kubernetes has noticed; then restore it.

    Raises:
        ProcessFailed: a consequence does not show in time.
    """
    leader = _leader_node(cluster)
    (other,) = set(cluster.nodes) - {leader}
    cut, stays = (leader, other) if place == LEADER else (other, leader)
    with Workloads(cluster) as workloads:
        workloads.apply(job_on(cut, stays))
        workloads.wait("the worker to run", lambda: _runs_on(workloads, cut))
        workloads.wait_for("PyTorchJob", "cut", "Running")
        first, before = _pod(workloads)["metadata"]["uid"], _running_since(workloads)
        since = time.monotonic()
        cluster.nodes[cut].power_off()
        figures: Mapping[str, Callable[[], bool]] = {
            "deleted_s": lambda: _pod(workloads).get("metadata", {}).get("uid") != first,
            "running_s": lambda: _runs_on(workloads, stays),
            "job_running_s": lambda: _running_since(workloads) not in {before, ""},
            "not_ready_s": lambda: not cluster.is_ready(cut),
        }
        durations: dict[str, float] = {}

        def check() -> bool:
            for figure, is_so in figures.items():
                if figure not in durations and is_so():
                    durations[figure] = time.monotonic() - since
            return durations.keys() == figures.keys()

        try:
            workloads.wait("a new worker", check, seconds=TIMEOUT_SECONDS)
        finally:
            cluster.nodes[cut].power_on()
        cluster.plane.wait("the node to be back", lambda: cluster.is_ready(cut), seconds=TIMEOUT_SECONDS)
    # New pods avoid the node for as long as its last state counts.
    time.sleep(STANDSTILL_SECONDS + POLL_SECONDS)
    installation.wait(cluster)
    installation.spread(cluster)
    return durations


def job_on(cut: str, stays: str) -> dict[str, Any]:
    """Return a job whose worker prefers the node that is cut; both roles can run on either."""
    container = {"image": BASE, "command": ["sleep", "infinity"], "restartPolicy": "ExitCode"}
    roles = {
        role: {
            **container,
            "pod": {"affinity": {"nodeAffinity": _prefers(node)}, "terminationGracePeriodSeconds": 1},
        }
        for role, node in (("Master", stays), ("Worker", cut))
    }
    return job("PyTorchJob", "cut", roles, runPolicy={"nodeLostSeconds": LOST_SECONDS})


def _prefers(node: str) -> dict[str, Any]:
    term = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    preference = {"weight": 100, "preference": {"matchExpressions": [term]}}
    return {"preferredDuringSchedulingIgnoredDuringExecution": [preference]}


def _leader_node(cluster: Cluster) -> str:
    """Return the node of the operator's leading replica, whose identity begins with the name of its pod."""
    lease = cluster.plane.request("GET", _LEASE.format(installation.NAMESPACE))
    pods = cluster.plane.request("GET", f"/api/v1/namespaces/{installation.NAMESPACE}/pods")["items"]
    holder = lease["spec"]["holderIdentity"]
    return next(
        str(pod["spec"]["nodeName"]) for pod in pods if holder.startswith(f"{pod['metadata']['name']}_")
    )


def _pod(workloads: Workloads) -> dict[str, Any]:
    """Return the worker's pod, or an empty object while there is none."""
    listed = workloads.cluster.plane.request("GET", f"/api/v1/namespaces/{workloads.namespace}/pods")["items"]
    return next((pod for pod in listed if pod["metadata"]["name"] == _WORKER), {})


def _runs_on(workloads: Workloads, node: str) -> bool:
    pod = _pod(workloads)
    return bool(pod.get("status", {}).get("phase") == "Running" and pod["spec"]["nodeName"] == node)


def _running_since(workloads: Workloads) -> str:
    """Return when the job became Running, empty while it is not."""
    return str(workloads.condition("PyTorchJob", "cut", "Running").get("lastTransitionTime", ""))
