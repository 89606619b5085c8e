"""Which of several replicas may write: the one that holds all the Leases that it asks for.

Whoever holds a Lease renews it every 2 s and may write for 10 s after its last renewal; the others leave it alone for 15 s after they
last saw it change. Each measures on a clock of its own, so only the rates of the clocks matter: as long as none runs half as fast again
as another, no two write at the same time. See docs/decisions/0014-leader-election.md for what arrives at the server all the same.

Whoever waits watches the Lease, so that one which is given back is taken at once; if nothing is heard of it, it is read now and then.

Source: client-go, tools/leaderelection. Differs: the deadline of writes, the watch, several Leases at once, and a Lease that was
deleted is left alone for as long as it would have been.
"""

import asyncio
import contextlib
import random
import socket
import uuid
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Protocol

import aiohttp
import msgspec
import structlog

from controller.kube import errors
from controller.kube.client import Client
from controller.runtime import clock
from controller.runtime.lease import Claim
from controller.runtime.lock import Lock, Means, Timing
from controller.runtime.recorder import Recorder

DEFAULTS = Timing()
SHORTEST_PAUSE_SECONDS = 0.01
"""Timers may fire a little early, when nothing is due yet."""

log = structlog.get_logger()


class Observer(Protocol):
    """What is told of each Lease, by its name."""

    def leading(self, name: str, is_leading: bool) -> None: ...
    def slow_path(self, name: str) -> None: ...


class NullObserver:
    """An observer that does not look."""

    def leading(self, name: str, is_leading: bool) -> None: ...
    def slow_path(self, name: str) -> None: ...


def new_identity() -> str:
    """A name for this process that no other has: the host's, which is the pod's in a cluster, and a random part."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


class Election:
    """One candidate. ``client`` is its own, so that no other request is in its way; ``leases`` are (namespace, name)."""

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
        """Set once every Lease that might have been free has been asked for."""
        self._timing = timing
        self._time = time
        self._chance = chance
        self._observer = observer or NullObserver()
        self._lease_changed = asyncio.Event()
        self._has_failed = False
        self._identity = identity
        self._log = log.bind(identity=identity)
        means = Means(client, timing, time, chance)
        self._locks = [
            Lock(means, Claim(*lease, identity, timing.lease), self._lease_changed.set) for lease in leases
        ]
        for lock in self._locks:
            self._observer.leading(lock.name, False)

    def permit(self) -> float:
        """The seconds for which a write may still be under way; 0 or less when none may."""
        if not self.won.is_set():
            return 0.0
        return min(lock.held_until for lock in self._locks) - self._time()

    async def run(self) -> None:
        """Stand for election until cancelled.

        Raises:
            ExceptionGroup: of one NotLeading, once this candidate has led and may not any more.
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
                # Before the next try, too: who has slept through its deadline must not find itself leading again.
                self._settle()

    def tell(self, recorder: Recorder) -> None:
        """Say on each Lease whose it is. Source: client-go, tools/leaderelection, resourcelock, RecordEvent."""
        for lock in self._locks:
            recorder.record(lock.subject(), "Normal", "LeaderElection", f"{self._identity} became leader")

    async def release(self) -> None:
        """Give back what is held, so that nobody waits for its end. Comes after ``run``, and after the last write."""
        if self.won.is_set():
            self._set(False)
        for lock in reversed(self._locks):
            try:
                async with asyncio.timeout(self._timing.call):
                    await lock.release()
            except (errors.ApiError, aiohttp.ClientError, OSError, ValueError, msgspec.DecodeError) as error:
                self._log.warning("lease not given back", lease=lock.name, error=str(error) or repr(error))

    async def _round(self) -> None:
        """Renew what is held and take what is free.

        In order, lest two candidates each hold what the other waits for; what is held behind one that is not is left to its end.
        """
        self._has_failed = False
        held = list(takewhile(Lock.is_held, self._locks))
        await asyncio.gather(*map(self._try, held))
        for lock in self._locks[len(held) :]:
            if not await self._try(lock):
                break

    async def _try(self, lock: Lock) -> bool:
        """Whether it is held afterwards."""
        left = lock.held_until - self._time()
        try:
            async with asyncio.timeout(min(self._timing.call, left) if left > 0 else self._timing.call):
                if await lock.attempt():
                    self._observer.slow_path(lock.name)
        except errors.Conflict:
            self._log.info("somebody else was quicker", lease=lock.name)
        except (errors.ApiError, aiohttp.ClientError, OSError, ValueError, msgspec.DecodeError) as error:
            self._has_failed = True
            self._log.warning("lease not reached", lease=lock.name, error=str(error) or repr(error))
        return lock.is_held()

    async def _pause(self, started: float) -> None:
        """Until the next renewal or try is due, or there is news of a Lease that another holds."""
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
        """See whether this candidate leads by now, or does not any more."""
        lost = [lock.name for lock in self._locks if not lock.is_held()]
        if self.won.is_set() and lost:
            self._set(False)
            raise errors.NotLeading(f"Lease {', '.join(lost)}: not renewed in time, or another's by now")
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
            "leading" if is_leading else "not leading any more", leases=[lock.name for lock in self._locks]
        )
