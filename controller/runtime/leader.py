"""Leader election: only the process that holds all required Leases may write.

The holder renews each Lease every 2 s and may write for 10 s after its last renewal. Another candidate takes a Lease that it has not
seen change for 15 s. Each process measures with its own clock, so only the rates of the clocks matter: unless one clock runs 1.5 times
as fast as another, no two processes write at the same time. docs/decisions/0014-leader-election.md describes late requests.

A waiting candidate watches the Leases, so that it takes a released Lease at once. Without watch events it reads the Lease periodically.

Source: client-go, tools/leaderelection. Differs: the write deadline, the watch, several Leases at once, and a candidate treats a deleted
Lease as held for as long as the Lease would have been.
"""

import asyncio
import contextlib
import random
import socket
import uuid
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from types import MappingProxyType
from typing import Protocol

import aiohttp
import msgspec
import structlog

from controller.kube import errors
from controller.kube.client import Client
from controller.kube.failure_log import FailureLog
from controller.runtime import clock
from controller.runtime.lease import Claim
from controller.runtime.lock import Lock, LockContext, Timing
from controller.runtime.recorder import Recorder

DEFAULTS = Timing()
NO_CHANGES: Mapping[str, int] = MappingProxyType({})
SHORTEST_PAUSE_SECONDS = 0.01
"""The shortest pause, because timers may fire slightly early."""
FAILED_SECONDS = 60.0
"""How often the log says that requests for a Lease fail, for each error."""

log = structlog.get_logger()


class Observer(Protocol):
    """Receives the changes of each Lease, by name."""

    def leading(self, name: str, is_leading: bool) -> None: ...
    def slow_path(self, name: str) -> None: ...


class NullObserver:
    """An observer that ignores all calls."""

    def leading(self, name: str, is_leading: bool) -> None: ...
    def slow_path(self, name: str) -> None: ...


def new_identity() -> str:
    """Return a unique name for this process: the host name, which is the pod name in a cluster, and a random suffix."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


class Election:
    """One candidate. ``client`` serves only the election, so that no other request delays it. ``leases`` are (namespace, name)."""

    def __init__(
        self,
        client: Client,
        leases: Sequence[tuple[str, str]],
        identity: str,
        *,
        timing: Timing = DEFAULTS,
        time: Callable[[], float] = clock.uptime,
        chance: Callable[[], float] = random.random,
        observer: Observer | None = None,
    ) -> None:
        self.won = asyncio.Event()
        """Set while this candidate leads."""
        self.tried = asyncio.Event()
        """Set once the candidate has requested every Lease that might have been free."""
        self._timing = timing
        self._time = time
        self._chance = chance
        self._observer = observer or NullObserver()
        self._lease_changed = asyncio.Event()
        self._has_failed = False
        self._failures = FailureLog[str]()
        """By Lease."""
        self._identity = identity
        self._log = log.bind(identity=identity)
        context = LockContext(client, timing, time, chance)
        self._locks = [
            Lock(context, Claim(*lease, identity, timing.lease), self._lease_changed.set) for lease in leases
        ]
        for lock in self._locks:
            self._observer.leading(lock.name, False)

    def permit(self) -> float:
        """Return the seconds for which a write may still be in progress; 0 or less if none is allowed."""
        if not self.won.is_set():
            return 0.0
        return min(lock.held_until for lock in self._locks) - self._time()

    async def run(self) -> None:
        """Take part in the election until canceled.

        Raises:
            ExceptionGroup: contains one NotLeading, after this candidate has led and lost a Lease.
        """
        async with asyncio.TaskGroup() as group:
            for lock in self._locks:
                group.create_task(lock.informer.run())
            while True:
                started = self._time()
                await self._round()
                self._settle()
                self.tried.set()
                await self._pause(started)
                # Check before the next attempt too: a process that was suspended past its deadline must not continue to lead.
                self._settle()

    def record_leader(self, recorder: Recorder) -> None:
        """Record an event about the new holder on each Lease. Source: client-go, tools/leaderelection, resourcelock, RecordEvent."""
        for lock in self._locks:
            recorder.record(lock.subject(), "Normal", "LeaderElection", f"{self._identity} became leader")

    def handover(self) -> dict[str, int]:
        """Return the latest change that the last holder of all Leases knew, by resource; none that was not in each Lease."""
        first, *others = (lock.handover for lock in self._locks)
        return {
            resource: max(version, *(other[resource] for other in others)) if others else version
            for resource, version in first.items()
            if all(resource in other for other in others)
        }

    async def release(self, latest_changes: Mapping[str, int] = NO_CHANGES) -> None:
        """Release the held Leases, so that no candidate waits for them to expire. Call it after ``run`` and after the last write.

        ``latest_changes`` tell the next leader which changes its caches must contain, by resource.
        """
        if self.won.is_set():
            self._set(False)
        for lock in reversed(self._locks):
            try:
                async with asyncio.timeout(self._timing.call):
                    await lock.release(latest_changes)
            except (errors.ApiError, aiohttp.ClientError, OSError, ValueError, msgspec.DecodeError) as error:
                self._log.warning("lease not released", lease=lock.name, error=errors.describe(error))

    async def _round(self) -> None:
        """Renew the held Leases and acquire the free ones.

        In order, so that two candidates cannot each hold a Lease that the other waits for. A held Lease after one that is not held expires.
        """
        self._has_failed = False
        held = list(takewhile(Lock.is_held, self._locks))
        await asyncio.gather(*map(self._try, held))
        for lock in self._locks[len(held) :]:
            if not await self._try(lock):
                break

    async def _try(self, lock: Lock) -> bool:
        """Try to acquire or renew one Lease, and return whether it is held afterwards."""
        left = lock.held_until - self._time()
        try:
            async with asyncio.timeout(min(self._timing.call, left) if left > 0 else self._timing.call):
                if await lock.attempt():
                    self._observer.slow_path(lock.name)
        except errors.Conflict:
            self._log.info("another process updated the Lease first", lease=lock.name)
        except (errors.ApiError, aiohttp.ClientError, OSError, ValueError, msgspec.DecodeError) as error:
            self._has_failed = True
            text = errors.describe(error)
            repeats = self._failures.record_fields(lock.name, text, FAILED_SECONDS)
            if repeats is not None:
                self._log.warning("lease request failed", lease=lock.name, error=text, **repeats)
        else:
            self._failures.discard(lock.name)
        return lock.is_held()

    async def _pause(self, started: float) -> None:
        """Wait until the next renewal or attempt is due, or a Lease of another holder changes."""
        waiting = next((lock for lock in self._locks if not lock.is_held()), None)
        if waiting is None:
            due = min(started + self._timing.retry, *(lock.held_until for lock in self._locks))
        elif self._has_failed:
            due = started + self._timing.retry * (1 + self._chance())
        elif waiting is self._locks[0]:
            due = waiting.due_at()
        else:
            due = min(started + self._timing.retry, waiting.due_at())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(due - self._time(), SHORTEST_PAUSE_SECONDS)):
                await self._lease_changed.wait()
        self._lease_changed.clear()

    def _settle(self) -> None:
        """Update whether this candidate leads."""
        lost = [lock.name for lock in self._locks if not lock.is_held()]
        if self.won.is_set() and lost:
            self._set(False)
            raise errors.NotLeading(
                f"Lease {', '.join(lost)}: not renewed in time, or another process holds it"
            )
        if not self.won.is_set() and not lost:
            self._set(True)

    def _set(self, is_leading: bool) -> None:
        if is_leading:
            self.won.set()
        else:
            self.won.clear()
        for lock in self._locks:
            self._observer.leading(lock.name, is_leading)
        self._log.info(
            "started leading" if is_leading else "stopped leading", leases=[lock.name for lock in self._locks]
        )
