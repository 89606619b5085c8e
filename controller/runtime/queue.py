"""The work queue: keys that need a reconcile. The queue contains each key once, and one worker at a time processes it.

Guarantees: a key added while a worker processes it is handed out again afterwards. Higher priorities come first, groups (namespaces)
alternate, and keys of a group leave in the order in which they came. No key waits forever. Of several delays the earliest counts. A failed
key is not handed out before its back-off ends, unless it is added as ``urgent``.

Source: client-go, util/workqueue; priorities as in controller-runtime, pkg/controller/priorityqueue.
Differs: groups, and ``OLDEST_EVERY``. In controller-runtime a low priority waits for as long as higher ones keep coming.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from enum import IntEnum
from typing import Generic, TypeVar

from controller.kube.fair_queue import FairQueue
from controller.runtime.backoff import PerKey

K = TypeVar("K", bound=Hashable)

SPACINGS_REMEMBERED = 4096
"""The queue evicts keys whose spacing is over when it knows that of more keys than this."""
LARGEST_SHARE = 0.1
"""The largest share of the event loop's time that the costly reconciles of one key take."""
COSTLY_SECONDS = 0.005
"""A reconcile that keeps the event loop busy for less is not spaced by its cost."""
TICK_SECONDS = 0.001
"""A remaining delay below the resolution of timers counts as none."""
OLDEST_EVERY = 10
"""After this many keys, the next one is the key that has waited longest, whatever its priority and group.

So each of n waiting keys is handed out after at most 10 n others, and high priorities get nine tenths of the workers' time.
"""


class Priority(IntEnum):
    """Which keys the queue hands out first."""

    BACKLOG = -1
    """Objects found at a start."""
    NORMAL = 0
    """New and changed objects, and keys that return after a delay."""
    HIGH = 1
    """An event that a job waits for."""


class Closed(Exception):
    """The queue is closed and hands out nothing."""


class Queue(Generic[K]):
    """A queue for one event loop. Only ``get`` awaits, so nothing interrupts any other method."""

    def __init__(
        self,
        backoff: PerKey[K] | None = None,
        *,
        group: Callable[[K], str] = lambda key: "",
        spacing_seconds: float = 0.0,
    ) -> None:
        """``spacing_seconds`` is the minimum time between the starts of two reconciles of a key.

        The first change is handed out immediately. The changes that follow within that time are handed out together. Only the priorities
        HIGH and BACKLOG wait, for that time and for what ``done`` adds to it.
        """
        self._spacing = spacing_seconds
        self._spaced_until: dict[K, float] = {}
        """Until when changes of a key wait, in loop time; only for keys for which that may still be to come."""
        self._backoff = backoff or PerKey[K]()
        self._group = group
        self._ready = FairQueue[K]()
        self._since: dict[K, float] = {}
        """Keys that need work, with the loop time when they were added."""
        self._again: dict[K, Priority] = {}
        """Keys that were added while a worker processed them."""
        self._urgent: set[K] = set()
        """Keys that were added as urgent while a worker processed them."""
        self._processing: dict[K, float] = {}
        """Keys that workers process, with the loop time of the start."""
        self._delayed: dict[K, asyncio.TimerHandle] = {}
        self._barred: set[K] = set()
        """Keys whose delay is a back-off."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._until_oldest = OLDEST_EVERY
        self._closed = False
        self.adds = 0
        self.retries = 0

    def __len__(self) -> int:
        """Keys that are ready to be handed out."""
        return len(self._ready)

    def add(self, key: K, *, urgent: bool = False, priority: Priority = Priority.NORMAL) -> None:
        """Request a reconcile. The highest of several priorities counts. ``urgent`` ends a back-off, because the cause of the failure may be gone."""
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
        """Request a reconcile after this many seconds. An earlier one satisfies the request."""
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
        """Request a reconcile after the back-off of a failed key, and return its seconds.

        Requests that came while a worker processed the key wait as well, unless they were urgent.
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

    def discard(self, key: K) -> None:
        """Reset the back-off of a key that succeeded."""
        self._backoff.discard(key)

    async def get(self) -> tuple[K, float]:
        """Return the next key and the seconds it has waited. The caller must then call ``done``.

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
                    self._wake()  # pass the wake-up on to another waiting worker
                raise
        key = self._next()
        # Not earlier: a key with a low priority would otherwise come later than requested.
        self._undelay(key)
        since = self._since.pop(key)
        now = asyncio.get_running_loop().time()
        self._processing[key] = now
        if self._spacing:
            self._space_until(key, now + self._spacing, now)
        return key, now - since

    def done(self, key: K, busy_seconds: float = 0.0) -> None:
        """Mark the reconcile as finished. A key that was added meanwhile becomes ready again.

        ``busy_seconds`` is for how long the reconcile kept the event loop from other work. If that was long, changes of the key wait so long
        that its reconciles take at most ``LARGEST_SHARE`` of the time.
        """
        if busy_seconds >= COSTLY_SECONDS:
            now = asyncio.get_running_loop().time()
            self._space_until(key, now + busy_seconds / LARGEST_SHARE, now)
        self._processing.pop(key, None)
        priority = self._again.pop(key, None)
        if priority is not None and (key in self._urgent or not self._space(key, priority)):
            self._push(key, priority)
        self._urgent.discard(key)

    def is_processing(self, key: K) -> bool:
        """Return whether a worker processes the key."""
        return key in self._processing

    def working_seconds(self) -> list[float]:
        """Return the seconds for which workers have been processing each of their keys."""
        if not self._processing:
            return []
        now = asyncio.get_running_loop().time()
        return [now - since for since in self._processing.values()]

    def open(self) -> None:
        """Accept and hand out keys again."""
        self._closed = False

    def close(self) -> None:
        """Hand out nothing more. Ready keys are dropped; running reconciles may finish."""
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
        """Return whether the key waits because of its last reconcile."""
        due = self._spaced_until.get(key)
        if due is None or priority is Priority.NORMAL:
            return False
        loop = asyncio.get_running_loop()
        if due - loop.time() < TICK_SECONDS:
            return False
        planned = self._delayed.get(key)
        if planned is None or planned.when() > due:
            self._undelay(key)
            self._delayed[key] = loop.call_at(due, self._due, key, priority)
        return True

    def _space_until(self, key: K, due: float, now: float) -> None:
        if len(self._spaced_until) >= SPACINGS_REMEMBERED:
            self._spaced_until = {key: until for key, until in self._spaced_until.items() if until > now}
        self._spaced_until[key] = max(due, self._spaced_until.get(key, due))

    def _undelay(self, key: K) -> None:
        self._barred.discard(key)
        handle = self._delayed.pop(key, None)
        if handle is not None:
            handle.cancel()

    def _due(self, key: K, priority: Priority = Priority.NORMAL) -> None:
        self._undelay(key)
        self.add(key, priority=priority)
