"""Plans of jobs whose nodes are lost."""

from typing import Any

import pytest

from api.meta import PODS
from api.nodes import NodeState
from controller.domain import Count, Deletion
from controller.reconcile.plan import problems
from tests.support.builders import pytorch_job
from tests.support.in_memory_cluster import InMemoryCluster, running_cluster

ANY: dict[str, Any] = {"action": "RestartJob"}
LOST = {"name": "lost", "action": "RestartJobAndIgnoreMaxRestarts", "onReasons": ["NodeLost"]}
WORKERS = {"worker-0": "n0", "worker-1": "n1"}


def cluster_with(
    *rules: dict[str, Any], policy: str = "OnFailure", seconds: int | None = 60, **fields: Any
) -> InMemoryCluster:
    """Return a cluster with a running job, each pod on a node of its own, whose pods terminate gracefully."""
    run_policy: dict[str, Any] = {**fields, **({"nodeLostSeconds": seconds} if seconds else {})}
    if rules:
        run_policy["failurePolicy"] = {"rules": rules}
    cluster = running_cluster(policy, graceful=True, run_policy=run_policy)
    cluster.set_phase("Running", "master-0", assigned_node="n9", node="n9")
    for name, node in WORKERS.items():
        cluster.set_phase("Running", name, assigned_node=node, node=node)
    cluster.settle()
    return cluster


def lose(cluster: InMemoryCluster, node: str = "n1", seconds: float = 60.0) -> None:
    cluster.nodes = {node: NodeState(node, seconds)}


def test_a_lost_pod_is_deleted_once_the_status_knows_of_it() -> None:
    cluster = cluster_with()
    uid = cluster.pods["train-worker-1"].uid
    lose(cluster)

    recorded, deleted = cluster.step(), cluster.step()

    assert (recorded.delete, recorded.requeue_after_seconds) == ((), 0)
    assert deleted.delete == (Deletion(PODS, "train-worker-1", uid, is_forced=True),)
    assert cluster.counters["Worker"] == {"active": 1, "failed": 1}
    assert cluster.conditions == "Created T, Restarting T"


def test_its_replacement_follows_and_goes_elsewhere() -> None:
    cluster = cluster_with()
    lose(cluster)
    cluster.step()
    cluster.step()

    (plan,) = cluster.settle()

    (child,) = [child for child in plan.create if child.resource == PODS]
    assert child.name == "train-worker-1"
    assert "n1" in str(child.body()["spec"]["affinity"]["nodeAffinity"])
    assert cluster.reasons.count("NodeLost") == 1


def test_no_pod_of_a_name_is_created_before_the_lost_one_is_gone() -> None:
    cluster = cluster_with()
    cluster.nodes = {"n1": NodeState("n1", 59.0)}
    cluster.remove("worker-1")

    cluster.settle()

    assert cluster.pods["train-worker-1"].deleting
    assert cluster.created_pods.count("train-worker-1") == 1


def test_a_job_that_must_not_be_restarted_fails_and_its_lost_pod_stays() -> None:
    cluster = cluster_with(policy="Never")
    lose(cluster)

    cluster.settle()

    assert cluster.conditions == "Created T, Running F, Failed T"
    assert not cluster.pods["train-worker-1"].deleting


def test_a_rule_restarts_the_whole_job_for_a_lost_node() -> None:
    cluster = cluster_with(LOST, ANY)
    cluster.wait(300)
    lose(cluster, seconds=70)

    cluster.settle()

    (attempt,) = cluster.status.attempts or []
    assert (attempt.pod, attempt.node, attempt.reason) == ("train-worker-1", "n1", "NodeLost")
    assert attempt.rule == "lost"
    assert attempt.end_time is not None
    assert (cluster.now - attempt.end_time).total_seconds() == 70
    assert cluster.status.restarts_count_towards_max is None
    assert "train-worker-1" not in cluster.pods
    assert all(pod.deleting for pod in cluster.pods.values())
    cluster.go("master-0", "worker-0")
    cluster.settle()
    assert {pod.attempt for pod in cluster.pods.values()} == {1}


def test_the_lost_node_precedes_the_failures_that_it_causes() -> None:
    cluster = cluster_with(LOST, {"action": "FailJob"})
    cluster.wait(300)
    lose(cluster, seconds=70)
    cluster.set_phase("Failed", "worker-0", code=1)

    cluster.settle()

    assert [attempt.rule for attempt in cluster.status.attempts or ()] == ["lost"]


def test_a_pod_that_terminates_forever_ends_when_its_node_is_out_of_service() -> None:
    """Without nodeLostSeconds, only certain evidence counts. The rules had matched the deletion at once."""
    cluster = cluster_with({**ANY, "onReasons": ["Deleted"]}, seconds=None)
    lose(cluster, seconds=9999)
    cluster.remove("worker-1")
    cluster.settle()
    cluster.go("master-0", "worker-0")
    cluster.settle()
    assert [*cluster.pods] == ["train-worker-1"]

    cluster.nodes = {"n1": NodeState("n1", is_out_of_service=True)}
    cluster.settle()

    assert len(cluster.pods) == 3
    assert cluster.status.restarts == 1


def test_a_rule_replaces_a_lost_pod_whatever_the_policy_of_its_role() -> None:
    cluster = cluster_with({"action": "RestartPod", "onReasons": ["NodeLost"]}, policy="Never")
    lose(cluster)

    cluster.settle()

    assert cluster.conditions == "Created T, Running T"
    assert cluster.created_pods.count("train-worker-1") == 2


def test_a_restart_counts_once_for_two_pods_of_a_lost_node() -> None:
    cluster = cluster_with(LOST)
    cluster.set_phase("Running", "worker-0", assigned_node="n1", node="n1")
    lose(cluster)

    cluster.settle()

    assert cluster.status.restarts == 1
    assert cluster.counts.count(Count.RESTARTED) == 1
    assert [*cluster.pods] == ["train-master-0"]


def test_a_suspended_job_does_not_wait_for_a_lost_node() -> None:
    cluster = cluster_with(suspend=False)
    lose(cluster)
    cluster.update_spec(pytorch_job(run_policy={"suspend": True, "nodeLostSeconds": 60}))

    cluster.settle()

    assert "train-worker-1" not in cluster.pods
    assert cluster.conditions.endswith("Suspended T")


def test_unset_nothing_changes() -> None:
    cluster = cluster_with(seconds=None)
    cluster.nodes = {"n1": NodeState("n1", 9999, is_gone=True, is_out_of_service=True)}

    assert cluster.settle() == []
    assert cluster.conditions == "Created T, Running T"


def test_a_job_says_once_that_nodes_cannot_be_read() -> None:
    cluster = cluster_with()
    cluster.nodes_error = "nodes cannot be read: forbidden"
    cluster.settle()
    cluster.step()

    assert cluster.reasons.count("NodesUnknown") == 1
    assert cluster.conditions == "Created T, Running T"


@pytest.mark.parametrize("seconds", [0, 29])
def test_a_job_with_too_short_a_time_is_invalid(seconds: int) -> None:
    cluster = running_cluster()
    job = pytorch_job(run_policy={"nodeLostSeconds": seconds})

    assert [problem.field for problem in problems(cluster.kind, job, cluster.options)] == [
        "spec.runPolicy.nodeLostSeconds"
    ]


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({}, id="the kind decides about success"),
        pytest.param({"successPolicy": {"rules": [{"roles": ["Worker"]}]}}, id="a policy decides about success"),
    ],
)  # fmt: skip
def test_lost_pods_that_a_rule_ignores_are_replaced(given: dict[str, Any]) -> None:
    rules = [{"action": "Ignore", "onReasons": ["NodeLost"]}]
    policy = {"nodeLostSeconds": 60, "failurePolicy": {"rules": rules}, **given}
    cluster = running_cluster("OnFailure", run_policy=policy)
    cluster.set_phase("Running", "worker-0", "worker-1", assigned_node="n1", node="n1")
    cluster.nodes = {"n1": NodeState("n1", 70)}
    lost = {cluster.pods[name].uid for name in ("train-worker-0", "train-worker-1")}

    cluster.settle()

    assert {*cluster.pods} == {"train-master-0", "train-worker-0", "train-worker-1"}
    assert not lost & {pod.uid for pod in cluster.pods.values()}
    assert "Failed T" not in cluster.conditions
    assert "FailureIgnored" not in cluster.reasons


def test_the_record_of_an_attempt_has_the_problems_of_its_node() -> None:
    cluster = cluster_with(ANY, seconds=None)
    cluster.nodes = {"n1": NodeState("n1", problems=("KernelDeadlock", "nvidia.com/gpu-xid-error"))}
    cluster.set_phase("Failed", "worker-1", code=1, node="n1")

    cluster.settle()
    cluster.nodes = {}
    cluster.settle()

    (attempt,) = cluster.status.attempts or []
    assert attempt.node_problems == ["KernelDeadlock", "nvidia.com/gpu-xid-error"]


def test_an_attempt_on_a_healthy_node_has_no_problems() -> None:
    cluster = cluster_with(ANY, seconds=None)
    cluster.nodes = {"n0": NodeState("n0", problems=("KernelDeadlock",))}
    cluster.set_phase("Failed", "worker-1", code=1, node="n1")

    cluster.settle()

    assert [attempt.node_problems for attempt in cluster.status.attempts or []] == [None]
