"""The decision about what cannot be run, before and after the start."""

import pytest

from controller.domain import Event, Problem, Severity
from controller.kinds.pytorch import PYTORCH
from controller.reconcile.plan import refuse
from rallypoint.testing.builders import NOON, pytorch_job
from rallypoint.testing.in_memory_cluster import Life, Step, life_of, phase, running

ALL_CHILDREN = ["train-master-0", "train-worker-0", "train-worker-1"]


def test_an_invalid_job_fails_before_the_first_pod() -> None:
    life = life_of(masters=2, workers=-1)

    text = (
        "PyTorchJob failed validation because spec.pytorchReplicaSpecs[Master].replicas: Forbidden: must be 1; "
        "spec.pytorchReplicaSpecs[Worker].replicas: Forbidden: must be at least 1"
    )
    assert life.conditions == "Created T, Failed T"
    assert [(condition.reason, condition.message) for condition in life.status.conditions or ()][1:] == [
        ("PyTorchJobFailedValidation", text)
    ]
    assert life.events == [Event(Severity.WARNING, "PyTorchJobFailedValidation", text)]
    assert (life.made, life.status.start_time, life.status.completion_time) == ([], None, NOON)


def test_a_job_without_replicas_cannot_start() -> None:
    assert life_of(masters=None, workers=0).conditions == "Created T, Failed T"


def test_a_suspended_job_is_validated_when_it_is_resumed() -> None:
    life = life_of(masters=2, run_policy={"suspend": True})
    assert life.conditions == "Created T, Suspended T"

    life.respecify(pytorch_job(masters=2))
    life.settle()

    assert life.conditions == "Created T, Suspended T, Failed T"


def test_a_running_job_that_becomes_invalid_is_reported_once() -> None:
    life = running()
    life.respecify(pytorch_job(masters=2))

    life.settle()
    life.settle()

    assert life.reasons == ["PyTorchJobFailedValidation"]
    assert life.conditions == "Created T, Running T"


@pytest.mark.parametrize(
    ("end", "conditions"),
    [
        pytest.param(phase("Succeeded"), "Created T, Running F, Succeeded T", id="it succeeds"),
        pytest.param(
            phase("Failed", "worker-0", code=1), "Created T, Running F, Failed T", id="it fails for good"
        ),
        pytest.param(lambda life: life.wait(60), "Created T, Running F, Failed T", id="its time is up"),
    ],
)
def test_a_running_job_that_becomes_invalid_still_ends(end: Step, conditions: str) -> None:
    life = running("ExitCode", run_policy={"activeDeadlineSeconds": 60})
    contradiction = {"minReplicas": 2, "maxReplicas": 1}
    worker = {"restartPolicy": "ExitCode"}
    deadline = {"activeDeadlineSeconds": 60}
    life.respecify(pytorch_job(workers=20, worker=worker, run_policy=deadline, elasticPolicy=contradiction))
    end(life)
    life.settle()

    assert life.conditions == conditions
    assert len(life.made) == 3


def test_a_running_job_that_becomes_invalid_creates_and_deletes_nothing() -> None:
    life = running()
    life.respecify(pytorch_job(workers=-1))
    life.become("Failed", "worker-0", code=1)
    life.go("worker-1")

    plan = life.step()

    assert (plan.create, plan.delete) == ((), ())
    life.respecify(pytorch_job())
    life.settle()
    assert life.made[-2:] == ["train-worker-1", "train-worker-0"]


def test_a_job_with_an_unreadable_spec_fails_and_names_the_fields() -> None:
    life = Life(pytorch_job(masters=None, workers=None))
    life.malformed = (Problem("spec.nprocPerNode", "Invalid value: Input should be a valid string"),)
    life.settle()

    assert (life.status.conditions or [])[-1].message == (
        "PyTorchJob failed validation because spec.nprocPerNode: Invalid value: Input should be a valid string"
    )


def test_a_running_job_with_an_unreadable_spec_keeps_its_pods_and_counters() -> None:
    life = running()
    before = life.counters
    life.respecify(pytorch_job(masters=None, workers=None))
    life.malformed = (Problem("spec", "Invalid value"),)
    life.settle()

    assert (list(life.pods), life.counters) == (ALL_CHILDREN, before)
    assert life.reasons == ["PyTorchJobFailedValidation"]


def test_a_rejected_child_fails_the_job_and_leaves_no_children() -> None:
    life = life_of()
    life.apply(refuse(PYTORCH, life.job, Problem("Pod train-worker-1", "spec.x: bad"), life.now))
    life.settle()

    assert (life.status.conditions or [])[-1].message == (
        "PyTorchJob failed validation because Pod train-worker-1: spec.x: bad"
    )
    assert (life.pods, life.services) == ({}, {})
