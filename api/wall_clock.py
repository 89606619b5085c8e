"""Where the time of a job went, by phase. Only jobs that ask for it, or whose failures the operator handles as a whole, have it."""

from enum import StrEnum
from typing import Final

from api.meta import Wire
from api.times import Time


class WallClockPhase(StrEnum):
    """What a job does at one moment. While its pods start, the slowest one decides."""

    QUEUED = "Queued"
    PLACING = "Placing"
    PULLING = "Pulling"
    STARTING = "Starting"
    RENDEZVOUS = "Rendezvous"
    RUNNING = "Running"
    LOST = "Lost"
    """Never the present phase: part of a past one, once a failure has shown which work was in vain."""
    RECOVERING = "Recovering"
    FINISHED = "Finished"


COUNTED_PHASES: Final = tuple(phase for phase in WallClockPhase if phase is not WallClockPhase.FINISHED)
"""The phases that have seconds, in the order of a job's life."""


class WallClock(Wire):
    """Seconds of the job by phase, from its creation until ``since``; the time after that belongs to ``phase``. Zeros are absent."""

    phase: str = ""
    """Queued, Placing, Pulling, Starting, Rendezvous, Running, Recovering or Finished."""
    since: Time | None = None
    """When this phase began."""
    queued_seconds: int | None = None
    """Suspended, or waiting for quota or its gang."""
    placing_seconds: int | None = None
    """Waiting for pods and nodes."""
    pulling_seconds: int | None = None
    """Pulling images."""
    starting_seconds: int | None = None
    """Starting containers."""
    rendezvous_seconds: int | None = None
    """Waiting until all pods are Ready."""
    running_seconds: int | None = None
    """Running, without lost work."""
    lost_seconds: int | None = None
    """Running after the last checkpoint before a failure. Absent if no pod reports checkpoints."""
    recovering_seconds: int | None = None
    """From failures until the job ran again."""
