"""Running jobs whose spec was changed to an invalid one."""

from datetime import timedelta
from typing import Any

import pytest

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


def failed_validation(of: Object, **fields: Any) -> Object:
    return event(of, "PyTorchJobFailedValidation", "m", kind="PyTorchJob", **fields)


def test_a_changed_spec_without_effect_is_the_cause_before_the_missing_pods() -> None:
    of = started("main", workers=3)
    (cause,) = causes(of, events=[failed_validation(of, ago=7)])

    assert cause.blocks
    assert cause.text.startswith(
        "the changed spec has no effect because it is invalid: "
        "spec.pytorchReplicaSpecs[Master].template.spec.containers: Required value: must have at least one container with name pytorch"
    )
    assert cause.since == NOW - timedelta(seconds=7)
    assert cause.next_step == "correct the spec; the job continues meanwhile"


def test_an_invalid_spec_without_an_event_is_a_note() -> None:
    """The event has expired, or another operator runs the job by other rules."""
    (note,) = causes(started("main"))

    assert not note.blocks
    assert note.text.startswith(
        "the spec is invalid by the rules of Rallypoint: spec.pytorchReplicaSpecs[Master]"
    )


@pytest.mark.parametrize(
    "policy", [{"suspend": True}, {"managedBy": "kueue.x-k8s.io/multikueue"}], ids=",".join
)
def test_an_invalid_spec_of_a_suspended_job_or_another_controller_is_no_cause(policy: Object) -> None:
    of = started("main")
    of["spec"]["runPolicy"] = policy

    assert "invalid" not in str(causes(of, events=[failed_validation(of)]))


def test_a_corrected_spec_is_no_cause() -> None:
    of = started("pytorch")

    assert causes(of, events=[failed_validation(of)]) == []


def test_the_event_explains_missing_pods_if_only_the_settings_of_the_operator_refuse_them() -> None:
    of = started("pytorch", workers=12_000)
    (cause,) = causes(of, events=[event(of, "PyTorchJobFailedValidation", "too many", kind="PyTorchJob")])

    assert cause.text == "11999 of 12001 pods do not exist: PyTorchJobFailedValidation: too many"


def test_a_size_that_settings_of_the_operator_allow_is_no_problem() -> None:
    (cause,) = causes(started("pytorch", workers=12_000))

    assert cause.text == "11999 of 12001 pods do not exist, and no condition or event says why"
