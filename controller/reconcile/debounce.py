"""Debounces status writes that would soon be followed by another one, so that a job writes few statuses.

Two kinds of status wait: one that changes only counters that no client acts on, and the first one, which only says that the job was
created: often its pods run a moment later. All else is written at once: other conditions, times, failures and restart counts, and the
end of the last active pod, because a queue then gives the job's quota to others.
"""

import asyncio
from dataclasses import dataclass, replace
from typing import Any

from api.job import ConditionType, JobStatus
from controller.reconcile.backoff import TICK_SECONDS
from controller.reconcile.status import StatusChange

UNCHANGED_SECONDS = 0.5
"""Counters are written when they have not changed for this long."""
LONGEST_SECONDS = 5.0
"""What keeps changing, or changes while many calls wait for the API server, is written after this long."""
CREATED_SECONDS = 0.3
"""A status that only says that the job was created is written this long after the job's last child was created, or later while many calls
wait.

Source: training-operator 1.9, pkg/controller.v1/common/job.go, ReconcileJobs, writes it when all pods and Services have been created.
"""
_COUNTERS = ("active", "succeeded")


def longest_wait_seconds(change: StatusChange, *, has_events: bool, is_busy: bool) -> float:
    """Return for how long a changed status may wait while it does not change further; 0 if it must be written now.

    Args:
        has_events: whether the plan with this status has events, which follow the first status.
        is_busy: whether many calls wait for the API server: then what may wait waits longer, because a status costs it as much as five pods.
    """
    if _says_only_created(change) and not has_events:
        wait_seconds = CREATED_SECONDS
    elif _changes_only_counters(change):
        wait_seconds = UNCHANGED_SECONDS
    else:
        return 0.0
    return LONGEST_SECONDS if is_busy else wait_seconds


def _says_only_created(change: StatusChange) -> bool:
    types = [condition["type"] for condition in change.wanted.get("conditions") or ()]
    return not change.stored.get("conditions") and types == [ConditionType.CREATED]


def _changes_only_counters(change: StatusChange) -> bool:
    """Return whether only counters change that no client acts on, and the wall clock that moves with them."""
    stored, wanted = change
    was, will = stored.get("replicaStatuses") or {}, wanted.get("replicaStatuses") or {}
    if was.keys() != will.keys() or _beside(stored) != _beside(wanted):
        return False
    if _active(was) and not _active(will):
        return False
    return all(_rest(was[role]) == _rest(will[role]) for role in was)


@dataclass(frozen=True, slots=True)
class _Pending:
    stored: bytes
    """The status that the server has, as JSON."""
    status: JobStatus
    since: float
    changed: float


class StatusDebouncer:
    """The pending status of one job. Planning treats it as already written."""

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending: _Pending | None = None

    def pending(self, stored: bytes) -> JobStatus | None:
        """Return the pending status that replaces the given one, if there is one."""
        pending = self._pending
        return pending.status if pending is not None and pending.stored == stored else None

    def defer(self, stored: bytes, status: JobStatus, wait_seconds: float) -> float:
        """Let a status wait for this long since its last change, and return for how many more seconds; 0 if it must be written now."""
        now = asyncio.get_running_loop().time()
        pending = self._pending
        if pending is None or pending.stored != stored:
            pending = _Pending(stored, status, now, now)
        elif pending.status != status:
            pending = replace(pending, status=status, changed=now)
        self._pending = pending
        remaining = min(pending.changed + wait_seconds, pending.since + LONGEST_SECONDS) - now
        return remaining if remaining > TICK_SECONDS else 0.0

    def restart(self) -> None:
        """Let the pending status, if there is one, wait as long again: the reconcile that deferred it has created children since."""
        if self._pending is not None:
            now = asyncio.get_running_loop().time()
            self._pending = replace(self._pending, since=now, changed=now)

    def clear(self) -> None:
        """Record that a status was written."""
        self._pending = None


def _beside(status: dict[str, Any]) -> dict[str, Any]:
    return {**status, "replicaStatuses": 0, "wallClock": 0}


def _active(roles: dict[str, dict[str, Any]]) -> int:
    return sum(role.get("active") or 0 for role in roles.values())


def _rest(role: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in role.items() if key not in _COUNTERS}
