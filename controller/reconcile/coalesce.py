"""Which changes of a status wait a little for others of their kind, so that a job that comes up writes few statuses.

Only counters wait, and only where nobody acts on them: conditions, times, failures and what is remembered of restarts are written at
once, and so is the last active pod's end, which is when a queue gives its quota to others.
"""

import asyncio
from dataclasses import dataclass, replace
from typing import Any

from api.job import JobStatus
from controller.reconcile.patience import TICK_SECONDS

QUIET_SECONDS = 1.0
"""Counters are written once they have not changed for so long."""
LONGEST_SECONDS = 5.0
"""However often they change, they are written after so long."""
_COUNTERS = ("active", "succeeded")


def may_wait(stored: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Whether two statuses on the wire differ in nothing but counters that are nobody's signal."""
    was, will = stored.get("replicaStatuses") or {}, wanted.get("replicaStatuses") or {}
    if was.keys() != will.keys() or {**stored, "replicaStatuses": 0} != {**wanted, "replicaStatuses": 0}:
        return False
    if _active(was) and not _active(will):
        return False
    return all(_rest(was[role]) == _rest(will[role]) for role in was)


@dataclass(frozen=True, slots=True)
class _Held:
    stored: bytes
    """The status that the server has, as JSON."""
    status: JobStatus
    since: float
    changed: float


class Coalescer:
    """The statuses that wait, by job UID. Decisions count on them as if they were written."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}

    def known(self, uid: str, stored: bytes) -> JobStatus | None:
        """What waits to be written over that very status, if anything does."""
        held = self._held.get(uid)
        return held.status if held is not None and held.stored == stored else None

    def hold(self, uid: str, stored: bytes, status: JobStatus) -> float:
        """Let a status wait; the seconds until it is to be asked for again, 0 when it is to be written now."""
        now = asyncio.get_running_loop().time()
        held = self._held.get(uid)
        if held is None or held.stored != stored:
            held = _Held(stored, status, now, now)
        elif held.status != status:
            held = replace(held, status=status, changed=now)
        self._held[uid] = held
        left = min(held.changed + QUIET_SECONDS, held.since + LONGEST_SECONDS) - now
        return left if left > TICK_SECONDS else 0.0

    def forget(self, uid: str) -> None:
        """It is written, or there is no such job any more."""
        self._held.pop(uid, None)


def _active(roles: dict[str, dict[str, Any]]) -> int:
    return sum(one.get("active") or 0 for one in roles.values())


def _rest(role: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in role.items() if key not in _COUNTERS}
