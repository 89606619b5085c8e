"""The reasons of the condition Running (False): why a job does not run, and whether it has run before.

Only a resumed job can have run and wait again. It has separate reasons, so that the next controller process knows that the job has run.
"""

from enum import StrEnum
from typing import Final

from api import conditions
from api.conditions import TRUE
from api.job import ConditionType, JobStatus
from controller.kind.reasons import ConditionReason


class IdleReason(StrEnum):
    """The suffix of the reason, after the kind."""

    BLOCKED = "Blocked"
    """Nothing can go on until somebody acts: a quota, an admission webhook, a missing right, a name that another object has, an object that cannot
    be read. An event (Warning) reports names and unreadable objects; events of the child report the others.
    """
    WAITING_FOR_PODS = "WaitingForPods"
    """Pods are not created yet, or do not start: an init container fails, or a launcher waits for its workers. No event of this reason."""
    WAITING_FOR_GANG = "WaitingForGang"
    """The scheduler does not start the job's PodGroup. An event (Warning) reports it. A job that restarts has this reason in the condition
    Restarting, which stays True.
    """

    @property
    def after_resume(self) -> str:
        """The same for a job that has run before."""
        return f"{self.value}AfterResume"

    @property
    def suffixes(self) -> tuple[str, str]:
        """Both forms, before and after the job has run."""
        return self.value, self.after_resume


_OLD_BLOCKED: Final = "HeldUp"
_OLD_REASONS: Final = (_OLD_BLOCKED, "WaitsForPods")
"""Reasons of versions before the first release; they do not show whether the job has run."""


def has_run(kind: str, status: JobStatus | None) -> bool:
    """Return whether the job was ever Running, according to its conditions.

    An MPIJob that is suspended before it has run is not Running, either. It has the same reason, as in mpi-operator, and only the
    time shows the difference, because it is the job's creation time. With a reason from before the first release, only a suspension counts.
    """
    given = (status or JobStatus()).conditions or ()
    if conditions.find(given, ConditionType.RESTARTING):
        return True
    running = conditions.find(given, ConditionType.RUNNING)
    if running is None or running.status == TRUE:
        return running is not None
    if running.reason == f"{kind}{ConditionReason.SUSPENDED}":
        created = conditions.find(given, ConditionType.CREATED)
        return created is None or running.last_transition_time != created.last_transition_time
    if running.reason in {f"{kind}{reason}" for reason in _OLD_REASONS}:
        return conditions.find(given, ConditionType.SUSPENDED) is not None
    return running.reason not in {f"{kind}{reason}" for reason in IdleReason}


def is_blocked(kind: str, status: JobStatus | None) -> bool:
    """Return whether the last reason in the status says that the job is blocked."""
    return _has_reason(kind, status, *IdleReason.BLOCKED.suffixes, _OLD_BLOCKED)


def is_waiting_for_gang(kind: str, status: JobStatus | None) -> bool:
    """Return whether the last reason in the status says that the job waits for its PodGroup, to start or to restart."""
    suffixes = IdleReason.WAITING_FOR_GANG.suffixes
    return _has_reason(kind, status, *suffixes) or _has_reason(
        kind, status, *suffixes, type_=ConditionType.RESTARTING
    )


def _has_reason(
    kind: str, status: JobStatus | None, *suffixes: str, type_: ConditionType = ConditionType.RUNNING
) -> bool:
    found = conditions.find((status or JobStatus()).conditions or (), type_)
    return found is not None and found.reason in {f"{kind}{suffix}" for suffix in suffixes}
