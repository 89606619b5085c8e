"""The condition list of a job: queries, and the rules for setting a condition.

The list is ordered by the last write. All functions are pure and never change the given list.

Source: training-operator 1.9, pkg/util/status.go.
"""

from collections.abc import Sequence
from datetime import datetime

from api.job import ConditionType, JobCondition, JobStatus

TRUE = "True"
FALSE = "False"


def find(conditions: Sequence[JobCondition], type_: ConditionType) -> JobCondition | None:
    """Return the condition of that type; there is at most one."""
    # A generator would take three times as long, many times in each reconcile.
    for condition in conditions:
        if condition.type == type_:
            return condition
    return None


def is_true(status: JobStatus | None, type_: ConditionType) -> bool:
    condition = find(status.conditions or (), type_) if status else None
    return condition is not None and condition.status == TRUE


def is_finished(status: JobStatus | None) -> bool:
    """Return whether Succeeded or Failed is True."""
    return is_true(status, ConditionType.SUCCEEDED) or is_true(status, ConditionType.FAILED)


def merge(
    conditions: Sequence[JobCondition],
    type_: ConditionType,
    status: str,
    reason: str,
    message: str,
    now: datetime,
    *,
    rewords: bool = False,
) -> list[JobCondition]:
    """Return the list with one condition set; ``now`` in whole seconds.

    A failed job keeps its conditions. A condition with the same type, status and reason changes nothing, not even the message unless
    ``rewords`` is set. Running and Restarting exclude each other; Succeeded and Failed set an existing Running to False.

    Source: training-operator 1.9, pkg/util/status.go, setCondition and filterOutCondition.
    """
    old = find(conditions, type_)
    failed = find(conditions, ConditionType.FAILED)
    is_same = (
        old and (old.status, old.reason) == (status, reason) and not (rewords and old.message != message)
    )
    if is_same or (failed and failed.status == TRUE):
        return list(conditions)
    began = old.last_transition_time if old and old.status == status else now
    new = JobCondition(
        type=type_,
        status=status,
        reason=reason,
        message=message,
        last_update_time=now,
        last_transition_time=began,
    )
    return [_beside(other, type_) for other in conditions if not _displaced(other, type_)] + [new]


def _displaced(other: JobCondition, by: ConditionType) -> bool:
    return (
        other.type == by
        or (by == ConditionType.RESTARTING and other.type == ConditionType.RUNNING)
        or (by == ConditionType.RUNNING and other.type == ConditionType.RESTARTING)
    )


def _beside(other: JobCondition, new: ConditionType) -> JobCondition:
    ends_running = (
        new in {ConditionType.SUCCEEDED, ConditionType.FAILED} and other.type == ConditionType.RUNNING
    )
    return other.model_copy(update={"status": FALSE}) if ends_running else other
