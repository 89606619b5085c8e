"""A spec that was changed to an invalid one after the job started: the job continues, and the change has no effect."""

from collections.abc import Iterator

from pydantic import ValidationError

from controller.domain import no_effect_text
from controller.kind import Options
from controller.kinds import ALL
from controller.reconcile.plan import problems
from rallypoint.diagnosis.objects import event_time, parse_timestamp, status_of
from rallypoint.diagnosis.snapshot import Cause, JobSnapshot

REASONS = ("FailedValidation", "ValidationError")
"""Suffixes of the reasons of the events about invalid specs."""


def causes(snapshot: JobSnapshot) -> Iterator[Cause]:
    """Yield why the spec of a job that has started has no effect, by the operator's own checks with default settings.

    The event may have expired, or the spec may be valid again since then.
    """
    if not status_of(snapshot.job).get("startTime") or not (text := _problems_text(snapshot)):
        return
    reported = (
        parse_timestamp(event_time(event))
        for event in snapshot.events_of(snapshot.job)
        if str(event.get("reason", "")).endswith(REASONS)
    )
    yield Cause((), text, next(reported, None), next_step="correct the spec; the job continues meanwhile")


def _problems_text(snapshot: JobSnapshot) -> str:
    """Return the text about the problems of the spec; empty if it is valid, or cannot be parsed."""
    watched = next((kind for kind in ALL if kind.resource.kind == snapshot.job["kind"]), None)
    if watched is None:
        return ""
    try:
        job = watched.model.model_validate(snapshot.job)
    except ValidationError:
        return ""
    found = problems(watched.variant(job), job, Options())
    return no_effect_text(found) if found else ""
