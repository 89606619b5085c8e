"""Debounces status writes that change only counters, so that a job whose pods start one after another writes few statuses.

Only counters that no client acts on wait. Conditions, times, failures and restart counts are written at once, and so is the
end of the last active pod, because a queue then gives the job's quota to others.
"""

import asyncio
from dataclasses import dataclass, replace
from typing import Any

from api.job import JobStatus
from controller.reconcile.backoff import TICK_SECONDS

UNCHANGED_SECONDS = 1.0
"""Counters are written when they have not changed for this long."""
LONGEST_SECONDS = 5.0
"""Counters that keep changing are written after this long."""
_COUNTERS = ("active", "succeeded")


def can_wait(stored: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Return whether two serialized statuses differ only in counters that no client acts on, and in the wall clock that moves with them."""
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

    def defer(self, stored: bytes, status: JobStatus) -> float:
        """Let a status wait, and return for how many seconds; 0 if it must be written now."""
        now = asyncio.get_running_loop().time()
        pending = self._pending
        if pending is None or pending.stored != stored:
            pending = _Pending(stored, status, now, now)
        elif pending.status != status:
            pending = replace(pending, status=status, changed=now)
        self._pending = pending
        remaining = min(pending.changed + UNCHANGED_SECONDS, pending.since + LONGEST_SECONDS) - now
        return remaining if remaining > TICK_SECONDS else 0.0

    def clear(self) -> None:
        """Record that a status was written."""
        self._pending = None


def _beside(status: dict[str, Any]) -> dict[str, Any]:
    return {**status, "replicaStatuses": 0, "wallClock": 0}


def _active(roles: dict[str, dict[str, Any]]) -> int:
    return sum(role.get("active") or 0 for role in roles.values())


def _rest(role: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in role.items() if key not in _COUNTERS}
