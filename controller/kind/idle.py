"""Why a job does not run, as the reason of its condition Running (False) says, and whether it has run before.

A job that has run and waits again, which only a resumed job does, gets reasons of its own: this is how the next process knows that it has
run.
"""

from enum import StrEnum
from typing import Final

from api import conditions
from api.conditions import TRUE
from api.job import ConditionType, JobStatus


class IdleReason(StrEnum):
    """What follows the kind in the reason."""

    BLOCKED = "Blocked"
    """Somebody has to act before the job can go on."""
    WAITING_FOR_PODS = "WaitingForPods"
    """Pods are not created yet, or do not start."""

    @property
    def after_resume(self) -> str:
        """The same of a job that has run before."""
        return f"{self.value}AfterResume"

    @property
    def suffixes(self) -> tuple[str, str]:
        """Both forms, whether the job has run before or not."""
        return self.value, self.after_resume


SUSPENDED: Final = "Suspended"
"""What follows the kind in the reason of a job that was suspended."""
_OLD_BLOCKED: Final = "HeldUp"
_OLD_REASONS: Final = (_OLD_BLOCKED, "WaitsForPods")
"""Reasons that were written before the first release, whether the job had run or not."""


def has_run(kind: str, status: JobStatus | None) -> bool:
    """Return whether the job was ever Running, as far as its conditions say.

    An MPIJob that is suspended before it has run is not Running, either: its reason is the same then, as mpi-operator has it, and only the
    time, which is that of its creation, tells them apart. Of a job with a reason from before the first release only a suspension says so.
    """
    given = (status or JobStatus()).conditions or ()
    if conditions.find(given, ConditionType.RESTARTING):
        return True
    running = conditions.find(given, ConditionType.RUNNING)
    if running is None or running.status == TRUE:
        return running is not None
    if running.reason == f"{kind}{SUSPENDED}":
        created = conditions.find(given, ConditionType.CREATED)
        return created is None or running.last_transition_time != created.last_transition_time
    if running.reason in {f"{kind}{reason}" for reason in _OLD_REASONS}:
        return conditions.find(given, ConditionType.SUSPENDED) is not None
    return running.reason not in {f"{kind}{reason}" for reason in IdleReason}


def is_blocked(kind: str, status: JobStatus | None) -> bool:
    """Return whether the last that the status says is that somebody has to act before the job can go on."""
    running = conditions.find((status or JobStatus()).conditions or (), ConditionType.RUNNING)
    suffixes = (*IdleReason.BLOCKED.suffixes, _OLD_BLOCKED)
    return running is not None and running.reason in {f"{kind}{suffix}" for suffix in suffixes}
