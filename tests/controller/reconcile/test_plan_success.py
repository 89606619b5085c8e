"""Plans of jobs with a success policy."""

from typing import Any

import pytest

from controller.kind import Options, ReplicaKind
from controller.kinds.jax import JAX
from controller.kinds.paddle import PADDLE
from controller.kinds.tensorflow import TENSORFLOW
from controller.kinds.xgboost import XGBOOST
from controller.reconcile.plan import problems
from tests.support.builders import job_of, pytorch_job
from tests.support.in_memory_cluster import InMemoryCluster, running_cluster

FIRST_WORKER: dict[str, Any] = {"roles": ["Worker"], "succeededIndexes": "0"}


def cluster_with(*rules: dict[str, Any], policy: str = "OnFailure", **fields: Any) -> InMemoryCluster:
    return running_cluster(policy, run_policy={"successPolicy": {"rules": rules}, **fields})


def test_the_job_succeeds_when_a_rule_is_met() -> None:
    cluster = cluster_with(FIRST_WORKER)
    cluster.set_phase("Succeeded", "worker-0", code=0)
    cluster.settle()

    done = (cluster.status.conditions or [])[-1]
    assert (done.type, done.message) == (
        "Succeeded",
        "PyTorchJob train is successfully completed: rule 1 of successPolicy is met.",
    )


def test_the_success_of_the_master_decides_nothing_any_more() -> None:
    cluster = cluster_with(FIRST_WORKER)
    cluster.set_phase("Succeeded", "master-0", code=0)
    cluster.settle()

    assert cluster.conditions == "Created T, Running T"
    assert cluster.counters["Master"] == {"succeeded": 1}


@pytest.mark.parametrize(
    ("policy", "conditions"),
    [("Never", "Failed T"), ("OnFailure", "Running T")],
)
def test_failures_after_the_success_of_the_master_still_count(policy: str, conditions: str) -> None:
    cluster = cluster_with(FIRST_WORKER, policy=policy)
    cluster.set_phase("Succeeded", "master-0", code=0)
    cluster.set_phase("Failed", "worker-0", code=1)
    cluster.settle()

    assert conditions in cluster.conditions


def test_success_precedes_a_failure() -> None:
    cluster = cluster_with(FIRST_WORKER, policy="Never", failurePolicy={"rules": [{"action": "FailJob"}]})
    cluster.set_phase("Succeeded", "worker-0", code=0)
    cluster.set_phase("Failed", "worker-1", code=1)
    cluster.settle()

    assert "Succeeded T" in cluster.conditions


def test_a_job_fails_when_ignored_pods_leave_too_few() -> None:
    cluster = cluster_with(FIRST_WORKER, failurePolicy={"rules": [{"action": "Ignore"}]})
    cluster.set_phase("Failed", "worker-1", code=1)
    cluster.settle()
    assert "Failed T" not in cluster.conditions
    cluster.set_phase("Failed", "worker-0", code=1)
    cluster.settle()

    assert cluster.reasons[-1] == "PyTorchJobFailurePolicy"


def test_scaling_below_the_count_has_no_effect() -> None:
    rules = {"successPolicy": {"rules": [{"roles": ["Worker"], "succeededCount": 2}]}}
    cluster = running_cluster(run_policy=rules)
    cluster.update_spec(pytorch_job(workers=1, run_policy=rules))
    cluster.settle()

    assert "PyTorchJobFailedValidation" in cluster.reasons
    assert "train-worker-1" in cluster.pods


@pytest.mark.parametrize("kind", [JAX, PADDLE, TENSORFLOW, XGBOOST], ids=lambda kind: kind.resource.kind)
def test_every_kind_has_it(kind: ReplicaKind[Any]) -> None:
    rules = {"rules": [{"roles": ["Worker"], "succeededCount": 1}]}
    roles: dict[str, Any] = {"Worker": {"replicas": 2}, **({"Master": {}} if kind is XGBOOST else {})}
    job = job_of(kind, runPolicy={"successPolicy": rules}, **roles)
    cluster = InMemoryCluster(job, kind=kind)  # pyright: ignore[reportArgumentType] - as in ``kinds.ALL``
    cluster.settle()
    cluster.set_phase("Running")
    cluster.settle()
    assert "Running T" in cluster.conditions
    cluster.set_phase("Succeeded", "worker-1", code=0)
    cluster.settle()

    assert "Succeeded T" in cluster.conditions


def test_a_job_with_two_success_policies_is_refused() -> None:
    rules = {"successPolicy": {"rules": [FIRST_WORKER]}}
    job = job_of(TENSORFLOW, Worker={}, runPolicy=rules, successPolicy="AllWorkers")

    assert [problem.field for problem in problems(TENSORFLOW, job, Options())] == ["spec.successPolicy"]
