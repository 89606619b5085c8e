"""Plans for invalid jobs, before and after the start."""

import pytest

from controller.domain import Event, Problem, Severity
from controller.kinds.pytorch import PYTORCH
from controller.reconcile.plan import refuse
from tests.support.builders import NOON, pytorch_job
from tests.support.in_memory_cluster import (
    InMemoryCluster,
    Step,
    pending_cluster,
    phase,
    running_cluster,
)

ALL_CHILDREN = ["train-master-0", "train-worker-0", "train-worker-1"]


def test_an_invalid_job_fails_before_the_first_pod() -> None:
    cluster = pending_cluster(masters=2, workers=-1)

    text = (
        "PyTorchJob failed validation because spec.pytorchReplicaSpecs[Master].replicas: Forbidden: must be 1; "
        "spec.pytorchReplicaSpecs[Worker].replicas: Forbidden: must be at least 1"
    )
    assert cluster.conditions == "Created T, Failed T"
    assert [(condition.reason, condition.message) for condition in cluster.status.conditions or ()][1:] == [
        ("PyTorchJobFailedValidation", text)
    ]
    assert cluster.events == [Event(Severity.WARNING, "PyTorchJobFailedValidation", text)]
    assert (cluster.created_pods, cluster.status.start_time, cluster.status.completion_time) == (
        [],
        None,
        NOON,
    )


def test_a_job_without_replicas_cannot_start() -> None:
    assert pending_cluster(masters=None, workers=0).conditions == "Created T, Failed T"


def test_a_suspended_job_is_validated_when_it_is_resumed() -> None:
    cluster = pending_cluster(masters=2, run_policy={"suspend": True})
    assert cluster.conditions == "Created T, Suspended T"

    cluster.update_spec(pytorch_job(masters=2))
    cluster.settle()

    assert cluster.conditions == "Created T, Suspended T, Failed T"


def test_a_running_job_that_becomes_invalid_is_reported_once() -> None:
    cluster = running_cluster()
    cluster.update_spec(pytorch_job(masters=2))

    cluster.settle()
    cluster.settle()

    assert [(event.reason, event.message) for event in cluster.events] == [
        (
            "PyTorchJobFailedValidation",
            (
                "the changed spec has no effect because it is invalid: spec.pytorchReplicaSpecs[Master].replicas: Forbidden: must be 1; "
                "the job keeps its current pods; none is created, replaced or deleted"
            ),
        )
    ]
    assert cluster.conditions == "Created T, Running T"


@pytest.mark.parametrize(
    ("end", "conditions"),
    [
        pytest.param(phase("Succeeded"), "Created T, Running F, Succeeded T", id="it succeeds"),
        pytest.param(
            phase("Failed", "worker-0", code=1), "Created T, Running F, Failed T", id="it fails permanently"
        ),
        pytest.param(lambda cluster: cluster.wait(60), "Created T, Running F, Failed T", id="its time is up"),
    ],
)
def test_a_running_job_that_becomes_invalid_still_ends(end: Step, conditions: str) -> None:
    cluster = running_cluster("ExitCode", run_policy={"activeDeadlineSeconds": 60})
    contradiction = {"minReplicas": 2, "maxReplicas": 1}
    worker = {"restartPolicy": "ExitCode"}
    deadline = {"activeDeadlineSeconds": 60}
    cluster.update_spec(
        pytorch_job(workers=20, worker=worker, run_policy=deadline, elasticPolicy=contradiction)
    )
    end(cluster)
    cluster.settle()

    assert cluster.conditions == conditions
    assert len(cluster.created_pods) == 3


def test_a_running_job_that_becomes_invalid_creates_and_deletes_nothing() -> None:
    cluster = running_cluster()
    cluster.update_spec(pytorch_job(workers=-1))
    cluster.set_phase("Failed", "worker-0", code=1)
    cluster.go("worker-1")

    plan = cluster.step()

    assert (plan.create, plan.delete) == ((), ())
    cluster.update_spec(pytorch_job())
    cluster.settle()
    assert cluster.created_pods[-2:] == ["train-worker-1", "train-worker-0"]


def test_a_job_with_an_unreadable_spec_fails_and_names_the_fields() -> None:
    cluster = InMemoryCluster(pytorch_job(masters=None, workers=None))
    cluster.malformed = (Problem("spec.nprocPerNode", "Invalid value: Input should be a valid string"),)
    cluster.settle()

    assert (cluster.status.conditions or [])[-1].message == (
        "PyTorchJob failed validation because spec.nprocPerNode: Invalid value: Input should be a valid string"
    )


def test_a_running_job_with_an_unreadable_spec_keeps_its_pods_and_counters() -> None:
    cluster = running_cluster()
    before = cluster.counters
    cluster.update_spec(pytorch_job(masters=None, workers=None))
    cluster.malformed = (Problem("spec", "Invalid value"),)
    cluster.settle()

    assert (list(cluster.pods), cluster.counters) == (ALL_CHILDREN, before)
    assert cluster.reasons == ["PyTorchJobFailedValidation"]


def test_a_rejected_child_fails_the_job_and_leaves_no_children() -> None:
    cluster = pending_cluster()
    cluster.apply(refuse(PYTORCH, cluster.job, Problem("Pod train-worker-1", "spec.x: bad"), cluster.now))
    cluster.settle()

    assert (cluster.status.conditions or [])[-1].message == (
        "PyTorchJob failed validation because Pod train-worker-1: spec.x: bad"
    )
    assert (cluster.pods, cluster.services) == ({}, {})
