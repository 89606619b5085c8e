"""Plans of jobs that hang: what their failure policy says, or else their failure."""

from typing import Any

import pytest

from api import conditions
from api.children import Exit
from api.job import ConditionType
from api.meta import PODS
from controller.domain import Hang
from tests.support.builders import NOON
from tests.support.in_memory_cluster import InMemoryCluster, pending_cluster, running_cluster

ALL_PODS = ["train-master-0", "train-worker-0", "train-worker-1"]
STACK = (("train-worker-1",), "process 7, stopped: python train.py")
HANG = Hang(
    "worker", "train-worker-1", "uid-1", "node-1", "no line in the logs from 3 pods for 61 s", (STACK,)
)


def hung_cluster(*rules: dict[str, Any], **fields: Any) -> InMemoryCluster:
    policy = {"failurePolicy": {"rules": rules, **fields}} if rules else {}
    cluster = running_cluster("OnFailure", run_policy={"progressDeadlineSeconds": 60, **policy})
    cluster.hang = HANG
    return cluster


def test_a_hang_without_a_failure_policy_fails_the_job_and_frees_what_it_holds() -> None:
    cluster = hung_cluster()

    cluster.step()
    cluster.hang = None
    cluster.settle()

    failed = next(found for found in cluster.status.conditions or () if found.type == "Failed")
    assert (failed.status, failed.reason) == ("True", "PyTorchJobNoProgress")
    assert HANG.message in (failed.message or "")
    assert cluster.reasons.count("PyTorchJobNoProgress") == 1
    assert not cluster.pods


@pytest.mark.parametrize("rules", [(), ({"action": "RestartJob"},)], ids=["without rules", "with a rule"])
def test_success_precedes_a_hang(rules: tuple[dict[str, Any], ...]) -> None:
    cluster = hung_cluster(*rules)
    cluster.set_phase("Succeeded", "master-0", code=0)

    cluster.step()

    assert cluster.conditions.endswith("Succeeded T")


def test_a_reconcile_follows_the_status_in_which_the_job_begins_to_run() -> None:
    """Only then the job is observed, and nothing else need happen to its pods."""
    cluster = pending_cluster(run_policy={"progressDeadlineSeconds": 60})
    cluster.set_phase("Running")

    begun, follower = cluster.step(), cluster.step()

    assert begun.requeue_after_seconds == 0
    assert conditions.is_true(cluster.status, ConditionType.RUNNING)
    assert follower.requeue_after_seconds is None


def test_the_history_names_the_pod_and_keeps_its_stack() -> None:
    cluster = hung_cluster()
    cluster.step()

    (attempt,) = cluster.status.attempts or []

    assert (attempt.number, attempt.pod, attempt.node, attempt.reason, attempt.action) == (
        *(0, "train-worker-1", "node-1", "NoProgress", "FailJob"),
    )
    assert [(found.pods, found.text) for found in attempt.stacks or ()] == [(["train-worker-1"], STACK[1])]


def test_a_rule_restarts_a_job_that_hangs() -> None:
    cluster = hung_cluster({"action": "RestartJob", "onReasons": ["NoProgress"]}, maxRestarts=3)

    cluster.step()
    cluster.hang = None
    plans = cluster.settle()

    (attempt,) = cluster.status.attempts or []
    assert (attempt.reason, attempt.message, attempt.role) == ("NoProgress", HANG.message, "Worker")
    assert attempt.stacks is not None
    assert cluster.status.restarts == 1
    assert [child.name for child in plans[-1].create if child.resource == PODS] == ALL_PODS


def test_a_hang_counts_towards_the_limit_of_restarts() -> None:
    cluster = hung_cluster({"action": "RestartJob"}, maxRestarts=0)

    cluster.settle()

    assert cluster.reasons[-1] == "PyTorchJobMaxRestartsExceeded"
    assert (cluster.status.attempts or [])[-1].reason == "NoProgress"


@pytest.mark.parametrize(
    ("rule", "fields", "reason"),
    [
        pytest.param({"action": "FailJob"}, {}, "PyTorchJobFailurePolicy", id="fails the job"),
        pytest.param({"action": "RestartJob"}, {"maxRestarts": 0}, "PyTorchJobMaxRestartsExceeded", id="may not restart it"),
    ],
)  # fmt: skip
def test_a_hang_frees_what_the_job_holds_when_a_rule(
    rule: dict[str, Any], fields: dict[str, Any], reason: str
) -> None:
    cluster = hung_cluster(rule, **fields)

    cluster.step()
    cluster.hang = None
    cluster.settle()

    assert cluster.reasons[-1] == reason
    assert not cluster.pods


def test_a_job_that_fails_by_its_own_fault_after_a_hang_keeps_its_pods() -> None:
    rules = ({"action": "RestartJob", "onReasons": ["NoProgress"]}, {"action": "FailJob"})
    cluster = hung_cluster(*rules)
    cluster.step()
    cluster.hang = None
    cluster.settle()
    cluster.set_phase("Failed", "worker-0", code=1)

    cluster.settle()

    assert cluster.reasons[-1] == "PyTorchJobFailurePolicy"
    assert sorted(cluster.pods) == ALL_PODS


def test_a_hang_that_no_rule_matches_fails_the_job() -> None:
    cluster = hung_cluster({"action": "RestartJob", "onReasons": ["OOMKilled"]}, {"action": "RestartPod"})

    cluster.step()

    assert cluster.reasons[-1] == "PyTorchJobNoProgress"


def test_a_pod_that_really_failed_precedes_the_hang() -> None:
    rules = (
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [3]}},
        {"action": "RestartJob"},
    )
    cluster = hung_cluster(*rules)
    cluster.set_phase("Failed", "worker-0", exits=(Exit("pytorch", 3, finished_at=NOON),))

    cluster.step()

    assert cluster.reasons[-1] == "PyTorchJobFailurePolicy"
    assert [found.pod for found in cluster.status.attempts or ()] == ["train-worker-0"]


def test_a_rule_leaves_a_job_that_hangs_alone() -> None:
    cluster = hung_cluster({"action": "Ignore", "onReasons": ["NoProgress"]})

    assert cluster.settle() == []
    assert sorted(cluster.pods) == ALL_PODS
