"""A spec that was changed to an invalid one after the job started: the job continues, and the change has no effect."""

from collections.abc import Iterator, Sequence

from pydantic import ValidationError

from controller.domain import Problem, no_effect_text
from controller.kind import Options
from controller.kinds import ALL
from controller.reconcile.plan import problems
from rallypoint.diagnosis.objects import (
    Object,
    desired_pods,
    event_time,
    is_suspended,
    other_manager,
    parse_timestamp,
    status_of,
)
from rallypoint.diagnosis.snapshot import Cause, JobSnapshot

_REASONS = ("FailedValidation", "ValidationError")
"""Suffixes of the reasons of the events about invalid specs."""


def report(snapshot: JobSnapshot) -> Object | None:
    """Return the event about the invalid spec of the job, or None."""
    events = snapshot.events_of(snapshot.job)
    return next((event for event in events if str(event.get("reason", "")).endswith(_REASONS)), None)


def causes(snapshot: JobSnapshot) -> Iterator[Cause]:
    """Yield why the spec of a job that has started is invalid, by the operator's own checks.

    An event proves that the change has no effect. Without one, for which events expire, this is a note: another operator may run the job
    by other rules. Suspended jobs need no valid spec.
    """
    job = snapshot.job
    if not status_of(job).get("startTime") or is_suspended(job) or other_manager(job):
        return
    if not (found := _problems(job)):
        return
    if event := report(snapshot):
        since = parse_timestamp(event_time(event))
        step = "correct the spec; the job continues meanwhile"
        yield Cause((), no_effect_text(found), since, next_step=step, step_when_deleted="correct the spec")
    else:
        text = f"the spec is invalid by the rules of Rallypoint: {'; '.join(map(str, found))}"
        step = "correct the spec; if Rallypoint runs the job, no change has an effect until then"
        yield Cause((), text, blocks=False, next_step=step, step_when_deleted="correct the spec")


def _problems(job: Object) -> Sequence[Problem]:
    """Return the problems of the spec; none if it cannot be parsed, or if its size is valid only with some settings of the operator."""
    watched = next((kind for kind in ALL if kind.resource.kind == job["kind"]), None)
    if watched is None or desired_pods(job) > Options().max_replicas:
        return ()
    try:
        parsed = watched.model.model_validate(job)
    except ValidationError:
        return ()
    return problems(watched.variant(parsed), parsed, Options())
