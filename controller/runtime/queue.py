"""The work queue: keys that need a pass, each held once and worked on by one worker at a time.

Promises: a key added while it is worked on is handed out again afterwards; keys come out in the order they went in; of several delays
the earliest counts; a key that failed is not handed out before its back-off, unless it is added as ``urgent``.

Source: client-go, util/workqueue.
"""

import asyncio
from collections import deque
from typing import Generic, TypeVar

from controller.runtime.backoff import PerKey

K = TypeVar("K")


class Closed(Exception):
    """The queue gives out nothing any more."""


class Queue(Generic[K]):
    """One queue for one event loop. Only ``get`` awaits, so no other method can be interrupted."""

    def __init__(self, backoff: PerKey[K] | None = None) -> None:
        self._backoff = backoff or PerKey[K]()
        self._ready: deque[K] = deque()
        self._dirty: dict[K, float] = {}
        """Keys that need work, with the loop time since when."""
        self._processing: set[K] = set()
        self._delayed: dict[K, asyncio.TimerHandle] = {}
        self._barred: set[K] = set()
        """Keys whose delay is a back-off."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._closed = False
        self.adds = 0
        self.retries = 0

    def __len__(self) -> int:
        """Keys that are ready to be worked on."""
        return len(self._ready)

    def add(self, key: K, *, urgent: bool = False) -> None:
        """Ask for a pass. ``urgent`` ends a back-off: what failed has changed."""
        if self._closed or (key in self._barred and not urgent):
            return
        self._undelay(key)
        if key in self._dirty:
            return
        self.adds += 1
        self._dirty[key] = asyncio.get_running_loop().time()
        if key not in self._processing:
            self._push(key)

    def add_after(self, key: K, seconds: float) -> None:
        """Ask for a pass in so many seconds; an earlier one that is planned already stands."""
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
        """Ask for a pass after the back-off of a key that failed; the seconds until then."""
        seconds = self._backoff.failed(key)
        self.retries += 1
        if self._closed:
            return seconds
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
        key = self._ready.popleft()
        since = self._dirty.pop(key)
        self._processing.add(key)
        return key, asyncio.get_running_loop().time() - since

    def done(self, key: K) -> None:
        """The pass is over; if the key was added meanwhile it is ready again."""
        self._processing.discard(key)
        if key in self._dirty:
            self._push(key)

    def close(self) -> None:
        """Give out nothing more: what is ready is dropped, what is being worked on may finish."""
        self._closed = True
        for handle in self._delayed.values():
            handle.cancel()
        self._delayed.clear()
        self._ready.clear()
        while self._waiting:
            self._wake()

    def _push(self, key: K) -> None:
        self._ready.append(key)
        self._wake()

    def _wake(self) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                return

    def _undelay(self, key: K) -> None:
        self._barred.discard(key)
        handle = self._delayed.pop(key, None)
        if handle is not None:
            handle.cancel()

    def _due(self, key: K) -> None:
        self._undelay(key)
        self.add(key)
