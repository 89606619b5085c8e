"""What ``why`` says of jobs that hung, and of those whose progress is unknown."""

from typing import Any

import pytest

from rallypoint.diagnosis import Cause, JobSnapshot, diagnose
from tests.support.snapshots import CREATED, NOW, RUNNING, Object, at, container, event, job, master, pod

STACK = {"pods": ["j-worker-0"], "text": "process 1, stopped: python\n    step (train.py:3)"}
ATTEMPT = {"number": 0, "pod": "j-worker-0", "reason": "NoProgress", "endTime": at(20), "stacks": [STACK]}
TEXT = "stack at the time of the hang: process 1, stopped: python | step (train.py:3)"


def with_attempt(type_: str, **fields: Any) -> Object:
    condition = {
        "type": type_,
        "status": "True",
        "reason": f"PyTorchJob{type_}",
        "message": "m",
        "lastTransitionTime": at(10),
    }
    found = job(CREATED, condition)
    return {**found, "status": {**found["status"], "attempts": [{**ATTEMPT, **fields}]}}


def causes(of: Object, **known: Any) -> list[Cause]:
    worker = pod("j-worker-0", "Running", containerStatuses=[container(running={"startedAt": at(40)})])
    return [*diagnose(JobSnapshot(of, NOW, pods=[worker, master()], **known)).causes]


@pytest.mark.parametrize("type_", ["Failed", "Restarting"])
def test_what_the_named_pod_did_is_a_note(type_: str) -> None:
    note = next(cause for cause in causes(with_attempt(type_)) if cause.about == ("j-worker-0",))

    assert (note.text, note.blocks) == (TEXT, False)
    assert note.next_step.startswith("all stacks: rallypoint describe pytorchjob j -n ")


@pytest.mark.parametrize("fields", [{"reason": "OOMKilled"}, {"stacks": None}], ids=str)
def test_other_attempts_have_no_such_note(fields: dict[str, Any]) -> None:
    assert "hung" not in str(causes(with_attempt("Failed", **fields)))


def test_unknown_progress_is_a_note() -> None:
    of = job(CREATED, RUNNING)
    text = 'hang detection is not working: pods "j-worker-0" is forbidden'
    (note,) = causes(of, events=[event(of, "PyTorchJobProgressUnknown", text, kind="PyTorchJob")])

    assert (note.text, note.blocks) == (f"PyTorchJobProgressUnknown: {text}", False)
    assert "grant the operator the right" in note.next_step
