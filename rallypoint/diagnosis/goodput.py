"""Where the time of a job went, by phase: from the wall clock in its status, or else from its timeline."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from api.wall_clock import COUNTED_PHASES
from rallypoint.diagnosis.objects import Object, parse_timestamp, status_of
from rallypoint.diagnosis.timeline import Timeline

PHASES: Final = tuple(phase.lower() for phase in COUNTED_PHASES)
"""In the order of a job's life."""
_OF_SPANS: Final = {
    "queued": "queued",
    "suspended": "queued",
    "restarting": "recovering",
    "creating": "placing",
    "scheduling": "placing",
    "awaiting launcher": "placing",
    "pulling": "pulling",
    "initializing": "starting",
    "starting": "starting",
    "rendezvous": "rendezvous",
    "running": "running",
    "active": "running",
}
"""The phase of each span of a timeline."""


@dataclass(frozen=True, slots=True)
class Goodput:
    """The seconds of a job by phase; phases without any are absent."""

    seconds: Mapping[str, float]
    phase: str
    """The present one; ``finished`` at the end."""
    is_measured: bool
    """Whether the operator has kept the clock; otherwise it is computed from what the cluster still knows."""
    knows_lost_work: bool = False

    @property
    def total_seconds(self) -> float:
        return sum(self.seconds.values())

    @property
    def share(self) -> float | None:
        """The share of the job's time in which it ran and lost nothing; None for a job of no age."""
        total = self.total_seconds
        return self.seconds.get("running", 0.0) / total if total else None


def measured(job: Object, now: datetime) -> Goodput | None:
    """Return the goodput by the status, None if that has no wall clock. The present phase counts up to ``now``."""
    clock = status_of(job).get("wallClock") or {}
    since = parse_timestamp(clock.get("since"))
    if since is None:
        return None
    phase = str(clock.get("phase")).lower()
    seconds = {name: float(clock.get(f"{name}Seconds") or 0) for name in PHASES}
    if phase in PHASES:
        seconds[phase] += max((now - since).total_seconds(), 0.0)
    return Goodput(_spent(seconds), phase, is_measured=True, knows_lost_work="lostSeconds" in clock)


def computed(timeline: Timeline, now: datetime) -> Goodput:
    """Return the goodput by the spans of the job's life."""
    seconds = dict.fromkeys(PHASES, 0.0)
    for span in timeline.spans:
        seconds[_OF_SPANS[span.name]] += max(((span.end or now) - span.start).total_seconds(), 0.0)
    last = timeline.spans[-1] if timeline.spans else None
    phase = "finished" if last is None or last.end else _OF_SPANS[last.name]
    return Goodput(_spent(seconds), phase, is_measured=False)


def _spent(seconds: Mapping[str, float]) -> dict[str, float]:
    return {phase: spent for phase, spent in seconds.items() if spent > 0}
