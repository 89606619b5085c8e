"""One Lease as one candidate sees it: what it knows of it, until when it may believe to hold it, and the calls that take and renew it.

When these calls are made, and what holding means, is the election's business.
"""

from collections.abc import Callable
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
    """Seconds. The defaults are those of controller-runtime, which training-operator uses."""

    lease: float = 15.0
    """For how long a Lease that does not change is its holder's."""
    deadline: float = 10.0
    """For how long its holder writes after its last renewal."""
    retry: float = 2.0
    """Between renewals, and between tries."""
    call: float = 5.0
    """The longest that a call may take."""


@dataclass(frozen=True, slots=True)
class Means:
    """What all locks of a candidate share. ``time`` and ``chance`` are its clock and its dice."""

    client: Client
    timing: Timing
    time: Callable[[], float]
    chance: Callable[[], float]


class Lock:
    """``on_loss`` is called when the Lease changes or goes that another candidate holds."""

    def __init__(self, means: Means, claim: Claim, on_loss: Callable[[], None]) -> None:
        self.name = claim.name
        self.held_until = NEVER
        """Own time."""
        self._claim = claim
        self._client = means.client
        self._timing = means.timing
        self._time = means.time
        self._chance = means.chance
        self._on_loss = on_loss
        self._lease: Lease | None = None
        self._changed_at = NEVER
        """Own time when the Lease was last seen to have changed."""
        self._next_read = NEVER
        """Own time when it is read if nothing is heard of it before."""
        self._is_known = False
        """Whether ``_lease`` is what the server has, as far as anybody can tell: no call of ours is unanswered."""
        self._is_gone = False
        """Whether the server has none."""
        self._has_written = False
        self.informer = Informer(
            self._client,
            LEASES,
            lease_from_json,
            self._on_change,
            namespace=claim.namespace,
            field_selector=f"metadata.name={claim.name}",
        )

    def is_held(self) -> bool:
        return self._time() < self.held_until

    def subject(self) -> Subject:
        """What an event about the Lease is about; its holder says so."""
        uid = self._lease.uid if self._lease else ""
        claim = self._claim
        return Subject(LEASES.api_version, LEASES.kind, claim.namespace, claim.name, uid, claim.identity)

    def due_at(self) -> float:
        """Own time when there is something to do for a candidate that waits for it."""
        return min(self._free_at(), self._next_read)

    async def attempt(self) -> bool:
        """Renew the Lease, or take it if it is free, or see how it stands; whether a renewal had to begin with reading it.

        Raises:
            ApiError, aiohttp.ClientError, TimeoutError, ValueError: it is unknown whether it is held; what is known is kept.
        """
        if self._is_known and not self._can_hold() and self._time() < self._next_read:
            return False
        renews = self.is_held()
        if self._is_known and self._can_hold():
            try:
                await self._hold()
            except errors.ApiError:
                pass  # changed meanwhile, or gone
            else:
                return False
        await self._read()
        if self._can_hold():
            await self._hold()
        return renews

    async def release(self) -> None:
        """Give it back, if it is or may be held.

        Raises:
            ApiError, aiohttp.ClientError, TimeoutError, ValueError: others may have to wait for its end.
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
                body = self._claim.released(self._lease, clock.now())
                await self._client.update(LEASES, self._claim.namespace, self.name, body)
            except errors.Conflict:
                self._is_known = False  # a renewal whose answer was lost
            else:
                return

    async def _hold(self) -> None:
        """Write our name into it."""
        # Before it is sent: others count from when they see the change, which is later.
        sent = self._time()
        self._is_known, self._has_written = False, True
        if self._lease is None or self._is_gone:
            answer = await self._client.create(LEASES, self._claim.namespace, self._claim.made(clock.now()))
        else:
            body = self._claim.held(self._lease, clock.now())
            answer = await self._client.update(LEASES, self._claim.namespace, self.name, body)
        self._record(lease_from_json(answer))
        self.held_until = sent + self._timing.deadline

    async def _read(self) -> None:
        """Read it."""
        try:
            answer = await self._client.get(LEASES, self._claim.namespace, self.name)
        except errors.NotFound:
            self._record(None)
        else:
            self._record(lease_from_json(answer))

    def _on_change(self, before: Lease | None, after: Lease | None) -> None:
        """The watch tells of it."""
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
            self._on_loss()

    def _record(self, lease: Lease | None) -> None:
        self._is_known, self._is_gone = True, lease is None
        self._next_read = self._time() + self._timing.retry * (1.2 + self._chance())
        # A Lease that was deleted counts as what it was last: its holder may not have heard of it yet.
        if lease is not None and lease != self._lease:
            if self._lease is None or lease.holder != self._lease.holder:
                log.info("lease changed hands", lease=self.name, holder=lease.holder)
            self._lease, self._changed_at = lease, self._time()
        if not self._is_ours():
            self.held_until = NEVER

    def _is_ours(self) -> bool:
        return self._lease is not None and self._lease.holder == self._claim.identity

    def _can_hold(self) -> bool:
        return self._is_ours() or self._time() >= self._free_at()

    def _free_at(self) -> float:
        """Own time when it is nobody's."""
        if self._lease is None or not self._lease.holder:
            return NEVER
        return self._changed_at + (self._lease.duration_seconds or self._timing.lease)
