"""A status being rewritten: what each change writes, tells and counts."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from controller.domain import Count, Counts, Event, Severity
from controller.kind.status_builder import StatusBuilder
from controller.kinds.pytorch import PYTORCH
from rallypoint.testing.builders import NOON, pytorch_job

LATER = NOON + timedelta(seconds=90)
STAMP = "2026-01-01T12:00:00Z"
SELECTOR = "training.kubeflow.org/job-name=train,training.kubeflow.org/operator-name=pytorchjob-controller,training.kubeflow.org/replica-type="


def condition(type_: str, status: str = "True", reason: str | None = None) -> dict[str, Any]:
    return {
        "type": type_,
        "status": status,
        "reason": f"PyTorchJob{reason or type_}",
        "message": "before",
        "lastUpdateTime": STAMP,
        "lastTransitionTime": STAMP,
    }


def builder(*conditions: dict[str, Any], **status: Any) -> StatusBuilder:
    before = {"conditions": list(conditions), "startTime": STAMP, **status}
    return StatusBuilder(PYTORCH, pytorch_job(status=before), LATER)


def shown(of: StatusBuilder) -> str:
    return ", ".join(f"{one.type} {one.status[0]}" for one in of.status.conditions or ())


@pytest.mark.parametrize(
    ("change", "told", "counted"),
    [
        pytest.param(lambda one: one.created(), None, [Count.CREATED], id="created"),
        pytest.param(lambda one: one.running("m"), None, [], id="running"),
        pytest.param(lambda one: one.restarting("m"), None, [], id="restarting"),
        pytest.param(lambda one: one.suspended(), "Suspended", [], id="suspended"),
        pytest.param(lambda one: one.succeeded("m"), "Succeeded", [Count.SUCCESSFUL], id="succeeded"),
        pytest.param(lambda one: one.failed("m"), "Failed", [Count.FAILED], id="failed"),
    ],
)
def test_a_change_is_told_and_counted_once(
    change: Callable[[StatusBuilder], None], told: str | None, counted: list[Count]
) -> None:
    one = builder()
    change(one)
    change(one)

    assert [event.reason for event in one.events] == ([f"PyTorchJob{told}"] if told else [])
    assert one.counted == counted


@pytest.mark.parametrize(
    ("change", "type_"),
    [
        pytest.param(StatusBuilder.running, "Running", id="running"),
        pytest.param(StatusBuilder.restarting, "Restarting", id="restarting"),
    ],
)
def test_running_and_restarting_are_written_with_their_words(
    change: Callable[[StatusBuilder, str], None], type_: str
) -> None:
    one = builder(condition("Created"))
    change(one, "words")
    (_, last) = one.status.conditions or []

    assert (last.type, last.status, last.reason, last.message) == (
        type_,
        "True",
        f"PyTorchJob{type_}",
        "words",
    )


def test_the_job_s_own_status_is_never_touched() -> None:
    job = pytorch_job(
        status={"conditions": [condition("Running")], "replicaStatuses": {"Worker": {"active": 2}}}
    )
    before = job.to_wire()
    one = StatusBuilder(PYTORCH, job, LATER)

    one.created()
    one.suspended()
    one.resumed()
    one.use_restarts("Worker", 1, ["uid"])
    one.succeeded("m")
    one.failed("m")
    one.recount_active({})

    assert job.to_wire() == before


def test_a_job_without_status_gets_one() -> None:
    one = StatusBuilder(PYTORCH, pytorch_job(), LATER)
    one.created()
    one.started()

    assert one.status.to_wire() == {
        "conditions": [
            {
                "type": "Created",
                "status": "True",
                "reason": "PyTorchJobCreated",
                "message": "PyTorchJob train is created.",
                "lastUpdateTime": "2026-01-01T12:01:30Z",
                "lastTransitionTime": "2026-01-01T12:01:30Z",
            }
        ],
        "startTime": "2026-01-01T12:01:30Z",
    }


def test_a_created_condition_of_any_status_is_left_alone() -> None:
    one = builder(condition("Created", "False"))
    one.created()

    assert (shown(one), one.counted) == ("Created F", [])


def test_the_start_is_written_once() -> None:
    one = builder()
    one.started()

    assert one.status.start_time == NOON


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("True", "Running F, Suspended T", id="a running job stops running"),
        pytest.param("False", "Running F, Suspended T", id="one that does not run stays so"),
    ],
)
def test_suspending(before: str, after: str) -> None:
    one = builder(condition("Running", before))
    one.suspended()

    assert shown(one) == after
    assert [(each.reason, each.message) for each in (one.status.conditions or [])[-1:]] == [
        ("PyTorchJobSuspended", "PyTorchJob train is suspended.")
    ]


def test_running_is_rewritten_only_where_it_was_true() -> None:
    one = builder(condition("Running", "False", "Running"))
    one.suspended()

    assert (one.status.conditions or [])[0].reason == "PyTorchJobRunning"


def test_resuming_starts_the_clock_and_the_counters_anew() -> None:
    one = builder(condition("Suspended"), replicaStatuses={"Worker": {"active": 1, "succeeded": 1}})
    one.resumed()

    assert shown(one) == "Suspended F"
    assert one.status.start_time == LATER
    assert one.status.to_wire()["replicaStatuses"] == {"Worker": {"succeeded": 1}}
    assert one.events == [Event(Severity.NORMAL, "PyTorchJobResumed", "PyTorchJob train is resumed.")]


@pytest.mark.parametrize(
    "before", [[], [condition("Suspended", "False", "Resumed")]], ids=["never", "before"]
)
def test_a_job_that_is_not_suspended_is_not_resumed(before: list[dict[str, Any]]) -> None:
    one = builder(*before)
    one.resumed()

    assert (one.status.start_time, one.events) == (NOON, [])


def test_success_folds_what_is_active_into_what_has_succeeded() -> None:
    one = builder(replicaStatuses={"Master": {"succeeded": 1}, "Worker": {"active": 2, "failed": 1}})
    one.succeeded("m")

    assert one.status.to_wire()["replicaStatuses"] == {
        "Master": {"succeeded": 1},
        "Worker": {"succeeded": 2, "failed": 1},
    }
    assert one.status.completion_time == LATER


def test_failure_keeps_the_counters_of_the_moment() -> None:
    one = builder(replicaStatuses={"Worker": {"active": 2}})
    one.failed("m", Severity.WARNING, "FailedValidation")

    assert one.status.to_wire()["replicaStatuses"] == {"Worker": {"active": 2}}
    assert one.events == [Event(Severity.WARNING, "PyTorchJobFailedValidation", "m")]


@pytest.mark.parametrize("end", [StatusBuilder.succeeded, StatusBuilder.failed], ids=["success", "failure"])
def test_the_completion_time_is_never_overwritten(end: Callable[[StatusBuilder, str], None]) -> None:
    one = builder(completionTime=STAMP)
    end(one, "m")

    assert one.status.completion_time == NOON


def test_a_failed_job_tells_and_counts_nothing_more() -> None:
    one = builder(condition("Failed"))
    one.succeeded("m")

    assert (shown(one), one.events, one.counted) == ("Failed T", [], [])


def test_counters_are_written_anew_and_zeros_left_out() -> None:
    one = builder(replicaStatuses={"Worker": {"active": 9, "restarts": 2}, "Gone": {"active": 1}})
    roles = PYTORCH.roles(pytorch_job())

    one.count_roles(
        roles, {"Master": Counts(), "Worker": Counts(active=1, succeeded=2, failed=3, vanished=4)}
    )

    assert one.status.to_wire()["replicaStatuses"] == {
        "Master": {"selector": f"{SELECTOR}master"},
        "Worker": {"active": 1, "succeeded": 2, "failed": 3, "selector": f"{SELECTOR}worker", "restarts": 2},
    }


@pytest.mark.parametrize(
    ("before", "after"), [pytest.param(None, 2, id="none"), pytest.param(3, 5, id="some")]
)
def test_used_restarts_are_added_to_those_before(before: int | None, after: int) -> None:
    one = builder(replicaStatuses={"Worker": {} if before is None else {"restarts": before}})
    one.use_restarts("Worker", 2, ["uid"])

    assert one.status.to_wire()["replicaStatuses"] == {"Worker": {"restarts": after, "replacing": ["uid"]}}


def test_nothing_used_and_nothing_replaced_is_not_written() -> None:
    one = builder(replicaStatuses={"Worker": {"replacing": ["uid"]}})
    one.use_restarts("Worker", 0, [])

    assert one.status.to_wire()["replicaStatuses"] == {"Worker": {}}


def test_a_message_that_nobody_can_store_is_cut() -> None:
    one = builder()
    one.failed("x" * 10_000)

    (condition,) = one.status.to_wire()["conditions"]
    assert condition["message"] == "x" * 4095 + "…"


def test_fields_of_others_stay_in_the_status() -> None:
    one = builder(byAnother={"x": 1})
    one.running("m")

    assert one.plan().status is one.status
    assert one.status.to_wire()["byAnother"] == {"x": 1}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param([], "Running F", id="one that has not run"),
        pytest.param([condition("Running", "False")], "Running F", id="one that ran once"),
        pytest.param([condition("Running")], "Running T", id="one that runs goes on"),
        pytest.param([condition("Restarting")], "Restarting T", id="one that restarts, too"),
        pytest.param([condition("Suspended")], "Suspended T", id="one that is suspended does not run anyway"),
    ],
)
def test_a_job_that_waits_for_somebody(before: list[dict[str, Any]], after: str) -> None:
    one = builder(*before)
    one.blocked("free the name")

    assert shown(one) == after


def test_what_holds_stays_last() -> None:
    """Kubectl shows the last condition: Running is not to be read of a job that does not run."""
    one = builder(condition("Created"), condition("Suspended", "False"))
    one.blocked("free the name")

    assert shown(one) == "Suspended F, Running F, Created T"


def test_what_a_job_waits_for_is_the_newest() -> None:
    """And other words change nothing under the reason that they had."""
    one = builder()
    for text in ("worker 1", "worker 2"):
        one.waits_for(text)
    assert (one.status.conditions or [])[0].message == "worker 2"

    for text in ("a", "b"):
        one.running(text)
    assert (one.status.conditions or [])[0].message == "a"
