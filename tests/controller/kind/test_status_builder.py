"""StatusBuilder: the conditions, events and counters of each change."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from controller.domain import Count, Counts, Event, Severity
from controller.kind.status_builder import StatusBuilder
from controller.kinds.pytorch import PYTORCH
from tests.support.builders import NOON, pytorch_job

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
    return ", ".join(f"{condition.type} {condition.status[0]}" for condition in of.status.conditions or ())


@pytest.mark.parametrize(
    ("change", "reason_suffix", "counted"),
    [
        pytest.param(lambda status_builder: status_builder.created(), None, [Count.CREATED], id="created"),
        pytest.param(lambda status_builder: status_builder.running("m"), None, [], id="running"),
        pytest.param(lambda status_builder: status_builder.restarting("m"), None, [], id="restarting"),
        pytest.param(lambda status_builder: status_builder.suspended(), "Suspended", [], id="suspended"),
        pytest.param(
            lambda status_builder: status_builder.succeeded("m"),
            "Succeeded",
            [Count.SUCCESSFUL],
            id="succeeded",
        ),
        pytest.param(
            lambda status_builder: status_builder.failed("m"), "Failed", [Count.FAILED], id="failed"
        ),
    ],
)
def test_a_change_is_recorded_and_counted_once(
    change: Callable[[StatusBuilder], None], reason_suffix: str | None, counted: list[Count]
) -> None:
    status_builder = builder()
    change(status_builder)
    change(status_builder)

    assert [event.reason for event in status_builder.events] == (
        [f"PyTorchJob{reason_suffix}"] if reason_suffix else []
    )
    assert status_builder.counted == counted


@pytest.mark.parametrize(
    ("change", "type_"),
    [
        pytest.param(StatusBuilder.running, "Running", id="running"),
        pytest.param(StatusBuilder.restarting, "Restarting", id="restarting"),
    ],
)
def test_running_and_restarting_are_written_with_their_messages(
    change: Callable[[StatusBuilder, str], None], type_: str
) -> None:
    status_builder = builder(condition("Created"))
    change(status_builder, "words")
    (_, last) = status_builder.status.conditions or []

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
    status_builder = StatusBuilder(PYTORCH, job, LATER)

    status_builder.created()
    status_builder.suspended()
    status_builder.resumed()
    status_builder.use_restarts("Worker", 1, ["uid"])
    status_builder.succeeded("m")
    status_builder.failed("m")
    status_builder.recount_active({})

    assert job.to_wire() == before


def test_a_job_without_status_gets_a_status() -> None:
    status_builder = StatusBuilder(PYTORCH, pytorch_job(), LATER)
    status_builder.created()
    status_builder.started()

    assert status_builder.status.to_wire() == {
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


def test_a_created_condition_of_any_status_is_unchanged() -> None:
    status_builder = builder(condition("Created", "False"))
    status_builder.created()

    assert (shown(status_builder), status_builder.counted) == ("Created F", [])


def test_the_start_time_is_written_once() -> None:
    status_builder = builder()
    status_builder.started()

    assert status_builder.status.start_time == NOON


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("True", "Running F, Suspended T", id="a running job stops running"),
        pytest.param("False", "Running F, Suspended T", id="one that does not run stays so"),
    ],
)
def test_suspending_sets_the_conditions(before: str, after: str) -> None:
    status_builder = builder(condition("Running", before))
    status_builder.suspended()

    assert shown(status_builder) == after
    assert [(last.reason, last.message) for last in (status_builder.status.conditions or [])[-1:]] == [
        ("PyTorchJobSuspended", "PyTorchJob train is suspended.")
    ]


def test_running_is_rewritten_only_where_it_was_true() -> None:
    status_builder = builder(condition("Running", "False", "Running"))
    status_builder.suspended()

    assert (status_builder.status.conditions or [])[0].reason == "PyTorchJobRunning"


def test_resuming_resets_the_start_time_and_the_counters() -> None:
    status_builder = builder(
        condition("Suspended"), replicaStatuses={"Worker": {"active": 1, "succeeded": 1}}
    )
    status_builder.resumed()

    assert shown(status_builder) == "Suspended F"
    assert status_builder.status.start_time == LATER
    assert status_builder.status.to_wire()["replicaStatuses"] == {"Worker": {"succeeded": 1}}
    assert status_builder.events == [
        Event(Severity.NORMAL, "PyTorchJobResumed", "PyTorchJob train is resumed.")
    ]


@pytest.mark.parametrize(
    "before", [[], [condition("Suspended", "False", "Resumed")]], ids=["never", "before"]
)
def test_a_job_that_is_not_suspended_is_not_resumed(before: list[dict[str, Any]]) -> None:
    status_builder = builder(*before)
    status_builder.resumed()

    assert (status_builder.status.start_time, status_builder.events) == (NOON, [])


def test_success_counts_active_pods_as_succeeded() -> None:
    status_builder = builder(
        replicaStatuses={"Master": {"succeeded": 1}, "Worker": {"active": 2, "failed": 1}}
    )
    status_builder.succeeded("m")

    assert status_builder.status.to_wire()["replicaStatuses"] == {
        "Master": {"succeeded": 1},
        "Worker": {"succeeded": 2, "failed": 1},
    }
    assert status_builder.status.completion_time == LATER


def test_failure_keeps_the_current_counters() -> None:
    status_builder = builder(replicaStatuses={"Worker": {"active": 2}})
    status_builder.failed("m", Severity.WARNING, "FailedValidation")

    assert status_builder.status.to_wire()["replicaStatuses"] == {"Worker": {"active": 2}}
    assert status_builder.events == [Event(Severity.WARNING, "PyTorchJobFailedValidation", "m")]


@pytest.mark.parametrize("end", [StatusBuilder.succeeded, StatusBuilder.failed], ids=["success", "failure"])
def test_the_completion_time_is_never_overwritten(end: Callable[[StatusBuilder, str], None]) -> None:
    status_builder = builder(completionTime=STAMP)
    end(status_builder, "m")

    assert status_builder.status.completion_time == NOON


def test_a_failed_job_records_and_counts_nothing_more() -> None:
    status_builder = builder(condition("Failed"))
    status_builder.succeeded("m")

    assert (shown(status_builder), status_builder.events, status_builder.counted) == ("Failed T", [], [])


def test_counters_are_replaced_and_zeros_omitted() -> None:
    status_builder = builder(replicaStatuses={"Worker": {"active": 9, "restarts": 2}, "Gone": {"active": 1}})
    roles = PYTORCH.roles(pytorch_job())

    status_builder.count_roles(
        roles, {"Master": Counts(), "Worker": Counts(active=1, succeeded=2, failed=3, vanished=4)}
    )

    assert status_builder.status.to_wire()["replicaStatuses"] == {
        "Master": {"selector": f"{SELECTOR}master"},
        "Worker": {"active": 1, "succeeded": 2, "failed": 3, "selector": f"{SELECTOR}worker", "restarts": 2},
    }


@pytest.mark.parametrize(
    ("before", "after"), [pytest.param(None, 2, id="none"), pytest.param(3, 5, id="some")]
)
def test_used_restarts_are_added_to_earlier_restarts(before: int | None, after: int) -> None:
    status_builder = builder(replicaStatuses={"Worker": {} if before is None else {"restarts": before}})
    status_builder.use_restarts("Worker", 2, ["uid"])

    assert status_builder.status.to_wire()["replicaStatuses"] == {
        "Worker": {"restarts": after, "replacing": ["uid"]}
    }


def test_empty_restarts_are_not_written() -> None:
    status_builder = builder(replicaStatuses={"Worker": {"replacing": ["uid"]}})
    status_builder.use_restarts("Worker", 0, [])

    assert status_builder.status.to_wire()["replicaStatuses"] == {"Worker": {}}


def test_an_overlong_message_is_truncated() -> None:
    status_builder = builder()
    status_builder.failed("x" * 10_000)

    (condition,) = status_builder.status.to_wire()["conditions"]
    assert condition["message"] == "x" * 4095 + "…"


def test_unknown_fields_stay_in_the_status() -> None:
    status_builder = builder(byAnother={"x": 1})
    status_builder.running("m")

    assert status_builder.plan().status is status_builder.status
    assert status_builder.status.to_wire()["byAnother"] == {"x": 1}


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
def test_a_blocked_job_has_a_running_condition_of_false(before: list[dict[str, Any]], after: str) -> None:
    status_builder = builder(*before)
    status_builder.blocked("free the name")

    assert shown(status_builder) == after


def test_the_condition_that_holds_stays_last() -> None:
    """Kubectl shows the last condition: Running is not to be read of a job that does not run."""
    status_builder = builder(condition("Created"), condition("Suspended", "False"))
    status_builder.blocked("free the name")

    assert shown(status_builder) == "Suspended F, Running F, Created T"


def test_the_message_names_the_current_reason_to_wait() -> None:
    """Another message under the same reason changes nothing for other conditions."""
    status_builder = builder()
    for text in ("worker 1", "worker 2"):
        status_builder.waits_for(text)
    assert (status_builder.status.conditions or [])[0].message == "worker 2"

    for text in ("a", "b"):
        status_builder.running(text)
    assert (status_builder.status.conditions or [])[0].message == "a"
