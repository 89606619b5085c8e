"""One Lease from the view of one candidate: its last known state, until when the candidate holds it, and the calls to acquire and renew it.

The leader election decides when to make these calls and what holding the Lease allows.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from api.meta import LEASES
from controller.kube import errors
from controller.kube.client import Client
from controller.runtime import clock
from controller.runtime.informer import Informer
from controller.runtime.lease import Claim, Lease, lease_from_json
from controller.runtime.recorder import Subject

NEVER = float("-inf")

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Timing:
    """Durations in seconds. The defaults are those of controller-runtime, which training-operator uses."""

    lease: float = 15.0
    """For how long a Lease without changes belongs to its holder."""
    deadline: float = 10.0
    """For how long the holder writes after its last renewal."""
    retry: float = 2.0
    """Pause between renewals, and between attempts to acquire."""
    call: float = 5.0
    """The timeout of one call."""


@dataclass(frozen=True, slots=True)
class LockContext:
    """What all locks of a candidate share. ``time`` is its clock, ``chance`` its random number generator."""

    client: Client
    timing: Timing
    time: Callable[[], float]
    chance: Callable[[], float]


class Lock:
    """``on_change`` is called when a Lease of another holder changes or is deleted."""

    def __init__(self, context: LockContext, claim: Claim, on_change: Callable[[], None]) -> None:
        self.name = claim.name
        self.held_until = NEVER
        """Local time until which this candidate holds the Lease."""
        self._claim = claim
        self._client = context.client
        self._timing = context.timing
        self._time = context.time
        self._chance = context.chance
        self._on_change = on_change
        self._lease: Lease | None = None
        self._changed_at = NEVER
        """Local time when the candidate last observed a change of the Lease."""
        self._next_read = NEVER
        """Local time of the next read, if no watch event comes before."""
        self.handover: Mapping[str, int] = {}
        """The latest change that the last holder knew, by resource; empty if it did not release the Lease."""
        self._is_known = False
        """Whether ``_lease`` is the server's state as far as known: no call of this candidate is unanswered."""
        self._is_gone = False
        """Whether the Lease does not exist on the server."""
        self._has_written = False
        self.informer = Informer(
            self._client,
            LEASES,
            lease_from_json,
            self._record_change,
            namespace=claim.namespace,
            field_selector=f"metadata.name={claim.name}",
        )

    def is_held(self) -> bool:
        return self._time() < self.held_until

    def subject(self) -> Subject:
        """Return the object of an event about the Lease, in which the holder reports the change of leadership."""
        uid = self._lease.uid if self._lease else ""
        claim = self._claim
        return Subject(LEASES.api_version, LEASES.kind, claim.namespace, claim.name, uid, claim.identity)

    def due_at(self) -> float:
        """Return the local time when a waiting candidate must act next."""
        return min(self._free_at(), self._next_read)

    async def attempt(self) -> bool:
        """Renew the Lease, acquire it if it is free, or read it. Return whether a renewal had to read it first.

        Raises:
            ApiError, aiohttp.ClientError, TimeoutError, ValueError: it is unknown whether it is held; the last known state is kept.
        """
        if self._is_known and not self._can_hold() and self._time() < self._next_read:
            return False
        renews = self.is_held()
        if self._is_known and self._can_hold():
            try:
                await self._hold()
            except errors.ApiError:
                pass  # modified by another process, or deleted
            else:
                return False
        await self._read()
        if self._can_hold():
            await self._hold()
        return renews

    async def release(self, latest_changes: Mapping[str, int]) -> None:
        """Release the Lease if this candidate holds it or may hold it. ``latest_changes`` are for the next holder.

        Raises:
            ApiError, aiohttp.ClientError, TimeoutError, ValueError: others may have to wait until it expires.
        """
        self.held_until = NEVER
        if not self._has_written:
            return
        while True:
            if not self._is_known:
                await self._read()
            if self._lease is None or self._is_gone or not self._is_ours():
                return
            try:
                body = self._claim.released(self._lease, clock.now(), latest_changes)
                await self._client.update(LEASES, self._claim.namespace, self.name, body)
            except errors.Conflict:
                self._is_known = False  # a renewal whose response was lost
            else:
                return

    async def _hold(self) -> None:
        """Write this candidate as the holder."""
        # Measured before the request: others count from when they observe the change, which is later.
        sent = self._time()
        self._is_known, self._has_written = False, True
        if self._lease is None or self._is_gone:
            answer = await self._client.create(LEASES, self._claim.namespace, self._claim.made(clock.now()))
        else:
            last = self._lease
            body = self._claim.held(last, clock.now())
            answer = await self._client.update(LEASES, self._claim.namespace, self.name, body)
            if last.holder != self._claim.identity:
                self.handover = last.handover()
        self._record(lease_from_json(answer))
        self.held_until = sent + self._timing.deadline

    async def _read(self) -> None:
        """Read the Lease."""
        try:
            answer = await self._client.get(LEASES, self._claim.namespace, self.name)
        except errors.NotFound:
            self._record(None)
        else:
            self._record(lease_from_json(answer))

    def _record_change(self, before: Lease | None, after: Lease | None) -> None:
        """Take the state that the watch reports."""
        known = self._lease
        if after is None:
            if before is None or known is None or before.uid != known.uid:
                return
        elif (
            known is not None and after.uid == known.uid and after.resource_version <= known.resource_version
        ):
            return
        self._record(after)
        if not self._is_ours() or self._is_gone:
            self._on_change()

    def _record(self, lease: Lease | None) -> None:
        self._is_known, self._is_gone = True, lease is None
        self._next_read = self._time() + self._timing.retry * (1.2 + self._chance())
        # A deleted Lease counts as its last state: its holder may not have noticed the deletion yet.
        if lease is not None and lease != self._lease:
            if self._lease is None or lease.holder != self._lease.holder:
                log.info("lease holder changed", lease=self.name, holder=lease.holder)
            self._lease, self._changed_at = lease, self._time()
        if not self._is_ours():
            self.held_until = NEVER

    def _is_ours(self) -> bool:
        return self._lease is not None and self._lease.holder == self._claim.identity

    def _can_hold(self) -> bool:
        return self._is_ours() or self._time() >= self._free_at()

    def _free_at(self) -> float:
        """Return the local time when the Lease expires."""
        if self._lease is None or not self._lease.holder:
            return NEVER
        return self._changed_at + (self._lease.duration_seconds or self._timing.lease)
