"""Running jobs whose spec was changed to an invalid one."""

from datetime import timedelta
from typing import Any

from rallypoint.diagnosis import Cause, JobSnapshot, diagnose
from tests.support.builders import template
from tests.support.snapshots import CREATED, NOW, RUNNING, Object, at, container, event, job, master, pod


def started(container_name: str, workers: int = 1) -> Object:
    found = job(CREATED, RUNNING, workers=workers)
    containers = [{**template()["spec"]["containers"][0], "name": container_name}]
    role = {"template": {"spec": {"containers": containers}}}
    specs = found["spec"]["pytorchReplicaSpecs"]
    return {
        **found,
        "apiVersion": "kubeflow.org/v1",
        "spec": {**found["spec"], "pytorchReplicaSpecs": {name: {**specs[name], **role} for name in specs}},
        "status": {**found["status"], "startTime": at(50)},
    }


def causes(of: Object, **known: Any) -> list[Cause]:
    worker = pod("j-worker-0", "Running", containerStatuses=[container(running={"startedAt": at(40)})])
    return [*diagnose(JobSnapshot(of, NOW, pods=[worker, master()], **known)).causes]


def test_a_changed_spec_without_effect_is_the_cause_before_the_missing_pods() -> None:
    """The event has expired."""
    (cause,) = causes(started("main", workers=3))

    assert cause.blocks
    assert cause.text.startswith(
        "the changed spec has no effect because it is invalid: "
        "spec.pytorchReplicaSpecs[Master].template.spec.containers: Required value: must have at least one container with name pytorch"
    )
    assert cause.next_step == "correct the spec; the job continues meanwhile"


def test_the_event_of_a_changed_spec_says_since_when() -> None:
    of = started("main")
    (cause,) = causes(of, events=[event(of, "PyTorchJobFailedValidation", "m", kind="PyTorchJob", ago=7)])

    assert cause.since == NOW - timedelta(seconds=7)


def test_a_corrected_spec_is_no_cause() -> None:
    of = started("pytorch")

    assert causes(of, events=[event(of, "PyTorchJobFailedValidation", "m", kind="PyTorchJob")]) == []


def test_the_event_explains_missing_pods_if_only_the_settings_of_the_operator_refuse_them() -> None:
    of = started("pytorch", workers=3)
    (cause,) = causes(of, events=[event(of, "PyTorchJobFailedValidation", "too many", kind="PyTorchJob")])

    assert cause.text == "2 of 4 pods do not exist: PyTorchJobFailedValidation: too many"
