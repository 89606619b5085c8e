"""Causes in jobs with a progress deadline: what the pod did that was named for a hang, and why no hang can be detected."""

from collections.abc import Iterator, Mapping
from typing import Any

from api.job import ConditionType
from api.messages import without_control
from controller.domain import shortened
from controller.kind.reasons import EventReason
from controller.policy.recovery import NO_PROGRESS
from rallypoint.diagnosis.objects import (
    event_time,
    is_condition_true,
    name_of,
    parse_timestamp,
    reason_and_message,
    status_of,
)
from rallypoint.diagnosis.snapshot import Cause, JobSnapshot
from rallypoint.documentation import DOCS_URL

LONGEST_STACK = 300
"""In characters."""


def causes(snapshot: JobSnapshot) -> Iterator[Cause]:
    """Yield what the named pod did in the hang that failed the job or made it restart, and why progress is unknown."""
    job = snapshot.job
    if is_condition_true(job, ConditionType.FAILED) or is_condition_true(job, ConditionType.RESTARTING):
        attempts = status_of(job).get("attempts") or [{}]
        yield from _named_pod(snapshot, attempts[-1])
        return
    unknown = (event for event in snapshot.events_of(job) if _is_unknown_progress(event))
    for event in unknown:
        step = f"grant the operator the right that the message names, see {DOCS_URL}/how-to/survive-failures.md#hangs"
        yield Cause(
            (),
            reason_and_message(event),
            parse_timestamp(event_time(event)),
            blocks=False,
            next_step=step if "forbidden" in str(event.get("message")) else "",
        )
        return


def _named_pod(snapshot: JobSnapshot, attempt: Mapping[str, Any]) -> Iterator[Cause]:
    stacks = attempt.get("stacks") or ()
    if attempt.get("reason") != NO_PROGRESS or not stacks:
        return
    lines = " | ".join(map(str.strip, without_control(stacks[0]["text"]).splitlines()))
    kind = snapshot.job["kind"].lower()
    yield Cause(
        tuple(stacks[0]["pods"]),
        f"stack at the time of the hang: {shortened(lines, LONGEST_STACK)}",
        parse_timestamp(attempt.get("endTime")),
        blocks=False,
        next_step=f"all stacks: rallypoint describe {kind} {name_of(snapshot.job)} -n {snapshot.namespace}",
    )


def _is_unknown_progress(event: Mapping[str, Any]) -> bool:
    return str(event.get("reason", "")).endswith(EventReason.PROGRESS_UNKNOWN)
