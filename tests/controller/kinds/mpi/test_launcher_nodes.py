"""Plans of MPIJobs of v2beta1 and v1alpha2 whose workers lose their nodes. ``test_launcher_recovery.py`` has lost launchers."""

from typing import Any

import pytest

from api.meta import PODS
from api.nodes import NodeState
from controller.kinds.mpi.launcher_flavor import LauncherFlavor
from controller.kinds.mpi.v1alpha2 import V1ALPHA2
from controller.kinds.mpi.v2beta1 import V2BETA1
from tests.support.in_memory_cluster import InMemoryCluster
from tests.support.mpi import mpi_job

FLAVORS = pytest.mark.parametrize(
    "kind", [pytest.param(V2BETA1, id="v2beta1"), pytest.param(V1ALPHA2, id="v1alpha2")]
)
LOST = {"action": "RestartJob", "onReasons": ["NodeLost"]}


def cluster_with(kind: LauncherFlavor, **run_policy: Any) -> InMemoryCluster:
    """A job that runs, each of its pods on a node of its own; pods terminate gracefully."""
    version = "v2beta1" if kind is V2BETA1 else "v1alpha2"
    job = mpi_job(flavor=version, runPolicy={"nodeLostSeconds": 60, **run_policy})
    cluster = InMemoryCluster(job, kind=kind, graceful=True)  # type: ignore[arg-type]  # has no use for the rest
    cluster.settle()
    for name in ("worker-0", "worker-1"):
        node = f"n-{name}"
        cluster.set_phase("Running", name, ready=True, assigned_node=node, node=node)
    cluster.settle()
    cluster.launch(assigned_node="n-launcher", node="n-launcher")
    cluster.settle()
    return cluster


def lose(cluster: InMemoryCluster, node: str) -> None:
    cluster.nodes = {node: NodeState(node, 70)}


@FLAVORS
def test_a_worker_on_a_lost_node_is_replaced_elsewhere(kind: LauncherFlavor) -> None:
    cluster = cluster_with(kind)
    lose(cluster, "n-worker-1")

    plans = cluster.settle()

    forced = [deletion.name for plan in plans for deletion in plan.delete if deletion.is_forced]
    assert forced == ["pi-worker-1"]
    bodies = [child.body() for plan in plans for child in plan.create if child.resource == PODS]
    assert [body["metadata"]["name"] for body in bodies] == ["pi-worker-1"]
    assert "n-worker-1" in str(bodies[0]["spec"]["affinity"])
    assert "NodeLost" in cluster.reasons


@FLAVORS
def test_a_rule_restarts_the_job_for_a_lost_worker(kind: LauncherFlavor) -> None:
    cluster = cluster_with(kind, failurePolicy={"rules": [LOST, {"action": "FailJob"}]})
    lose(cluster, "n-worker-1")

    cluster.settle()

    (attempt,) = cluster.status.attempts or []
    assert (attempt.pod, attempt.node, attempt.reason) == ("pi-worker-1", "n-worker-1", "NodeLost")
    assert cluster.status.restarts == 1
    assert "pi-worker-1" not in cluster.pods
