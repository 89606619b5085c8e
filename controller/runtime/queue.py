"""The work queue: keys that need a pass, each held once and worked on by one worker at a time.

Promises: a key added while it is worked on is handed out again afterwards; higher levels come first, groups (namespaces) take turns, and
within a group keys come out in the order they went in; nothing waits for ever; of several delays the earliest counts; a key that failed is
not handed out before its back-off, unless it is added as ``urgent``.

Source: client-go, util/workqueue; levels as in controller-runtime, pkg/controller/priorityqueue.
Differs: groups, and the oldest key's turn (``OLDEST_EVERY``): there a low priority waits for as long as higher ones keep coming.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from enum import IntEnum
from typing import Generic, TypeVar

from controller.kube.fair_queue import FairQueue
from controller.runtime.backoff import PerKey

K = TypeVar("K", bound=Hashable)

STARTS_REMEMBERED = 4096
"""Keys whose last start is known before those are forgotten that need not wait any more."""
TICK_SECONDS = 0.001
"""A rest that no timer can wait for counts as none."""
OLDEST_EVERY = 10
"""Each time so many keys have been handed out, the next is the one that has waited longest, whatever its level and group.

So of n keys that wait each is handed out after at most 10 n others, and what goes first keeps nine tenths of the workers' time.
"""


class Priority(IntEnum):
    """How soon a key is handed out, compared with others."""

    BACKLOG = -1
    """What a restart finds."""
    NORMAL = 0
    """What is new or has changed, and what comes back after a delay."""
    HIGH = 1
    """Something has happened that is waited for."""


class Closed(Exception):
    """The queue gives out nothing any more."""


class Queue(Generic[K]):
    """One queue for one event loop. Only ``get`` awaits, so no other method can be interrupted."""

    def __init__(
        self,
        backoff: PerKey[K] | None = None,
        *,
        group: Callable[[K], str] = lambda key: "",
        spacing_seconds: float = 0.0,
    ) -> None:
        """``spacing_seconds`` lie between two passes of a key that nobody has asked for at ``Priority.NORMAL``.

        The first thing that happens is seen at once; what follows within that time is seen together.
        """
        self._spacing = spacing_seconds
        self._started: dict[K, float] = {}
        """When the last pass of a key began; only of keys that may still have to wait for it."""
        self._backoff = backoff or PerKey[K]()
        self._group = group
        self._ready = FairQueue[K]()
        self._since: dict[K, float] = {}
        """Keys that need work, with the loop time since when."""
        self._again: dict[K, Priority] = {}
        """Keys that were added while they were worked on."""
        self._urgent: set[K] = set()
        """Keys that were added as urgent while they were worked on."""
        self._processing: dict[K, float] = {}
        """Keys that are worked on, with the loop time since when."""
        self._delayed: dict[K, asyncio.TimerHandle] = {}
        self._barred: set[K] = set()
        """Keys whose delay is a back-off."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._until_oldest = OLDEST_EVERY
        self._closed = False
        self.adds = 0
        self.retries = 0

    def __len__(self) -> int:
        """Keys that are ready to be worked on."""
        return len(self._ready)

    def add(self, key: K, *, urgent: bool = False, priority: Priority = Priority.NORMAL) -> None:
        """Ask for a pass. Of several levels the highest counts. ``urgent`` ends a back-off: what failed has changed."""
        if self._closed or (key in self._barred and not urgent):
            return
        if urgent:
            self._undelay(key)
        if key in self._ready:
            self._ready.raise_to(key, priority)
            return
        if key not in self._since:
            self.adds += 1
            self._since[key] = asyncio.get_running_loop().time()
        if key not in self._processing:
            if urgent or not self._space(key, priority):
                self._push(key, priority)
            return
        self._again[key] = max(priority, self._again.get(key, priority))
        if urgent:
            self._urgent.add(key)

    def add_after(self, key: K, seconds: float) -> None:
        """Ask for a pass in so many seconds; one that is handed out or planned earlier will do."""
        if seconds <= 0:
            self.add(key)
            return
        if self._closed or key in self._barred:
            return
        loop = asyncio.get_running_loop()
        planned = self._delayed.get(key)
        if planned is not None and planned.when() <= loop.time() + seconds:
            return
        self._undelay(key)
        self._delayed[key] = loop.call_later(seconds, self._due, key)

    def add_failed(self, key: K) -> float:
        """Ask for a pass after the back-off of a key that failed; the seconds until then.

        What was asked for while the key was worked on has to wait as well, unless it was urgent.
        """
        seconds = self._backoff.record_failure(key)
        self.retries += 1
        if self._closed or key in self._urgent:
            return seconds
        if self._again.pop(key, None) is not None:
            del self._since[key]
        self._undelay(key)
        self._barred.add(key)
        self._delayed[key] = asyncio.get_running_loop().call_later(seconds, self._due, key)
        return seconds

    def forget(self, key: K) -> None:
        """The key has succeeded: its next failure is its first."""
        self._backoff.forget(key)

    async def get(self) -> tuple[K, float]:
        """The next key, and the seconds it has waited. ``done`` must follow.

        Raises:
            Closed: the queue is closed.
        """
        while not self._ready:
            if self._closed:
                raise Closed
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            try:
                await future
            except asyncio.CancelledError:
                if future.done() and not future.cancelled():
                    self._wake()  # the wake-up was meant for somebody who can take it
                raise
        key = self._next()
        # Not before: a key of a low level would otherwise come later than the time that was asked for.
        self._undelay(key)
        since = self._since.pop(key)
        now = asyncio.get_running_loop().time()
        self._processing[key] = now
        self._remember_start(key, now)
        return key, now - since

    def done(self, key: K) -> None:
        """The pass is over; if the key was added meanwhile it is ready again."""
        self._processing.pop(key, None)
        priority = self._again.pop(key, None)
        if priority is not None and (key in self._urgent or not self._space(key, priority)):
            self._push(key, priority)
        self._urgent.discard(key)

    def working_seconds(self) -> list[float]:
        """How long each key has been worked on that is being worked on now."""
        if not self._processing:
            return []
        now = asyncio.get_running_loop().time()
        return [now - since for since in self._processing.values()]

    def open(self) -> None:
        """Take and give out again what is added from now on."""
        self._closed = False

    def close(self) -> None:
        """Give out nothing more: what is ready is dropped, what is being worked on may finish."""
        self._closed = True
        for handle in self._delayed.values():
            handle.cancel()
        self._delayed.clear()
        self._barred.clear()
        self._ready = FairQueue[K]()
        self._since.clear()
        self._again.clear()
        while self._waiting:
            self._wake()

    def _next(self) -> K:
        self._until_oldest -= 1
        if self._until_oldest:
            return self._ready.pop()
        self._until_oldest = OLDEST_EVERY
        return self._ready.pop_oldest()

    def _push(self, key: K, priority: Priority) -> None:
        self._ready.push(key, level=priority, group=self._group(key))
        self._wake()

    def _wake(self) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                return

    def _space(self, key: K, priority: Priority) -> bool:
        """Whether the key waits because its last pass has begun so short a time ago."""
        if not self._spacing or priority is Priority.NORMAL:
            return False
        loop = asyncio.get_running_loop()
        due = self._started.get(key, float("-inf")) + self._spacing
        if due - loop.time() < TICK_SECONDS:
            return False
        planned = self._delayed.get(key)
        if planned is None or planned.when() > due:
            self._undelay(key)
            self._delayed[key] = loop.call_at(due, self._due, key, priority)
        return True

    def _remember_start(self, key: K, now: float) -> None:
        if not self._spacing:
            return
        if len(self._started) >= STARTS_REMEMBERED:
            self._started = {key: at for key, at in self._started.items() if at + self._spacing > now}
        self._started[key] = now

    def _undelay(self, key: K) -> None:
        self._barred.discard(key)
        handle = self._delayed.pop(key, None)
        if handle is not None:
            handle.cancel()

    def _due(self, key: K, priority: Priority = Priority.NORMAL) -> None:
        self._undelay(key)
        self.add(key, priority=priority)
