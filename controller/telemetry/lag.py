"""The lag of the event loop: a callback that keeps it busy delays every other task as long.

A timer that is due twice a second detects every longer stall, and shorter ones by chance.
``bench.controlplane.callbacks`` shows which callback caused it.
"""

import asyncio
import time
from collections.abc import Callable

PERIOD_SECONDS = 0.5
WINDOW_SECONDS = 60.0
"""The maximum covers the last one to two of these windows, so that everybody who scrapes once a minute sees it."""


class Lag:
    """Measures while ``run`` runs.

    The clock is not the loop's own, because uvloop's clock stands still during a callback.
    """

    def __init__(self, observe: Callable[[float], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._observe = observe
        self._clock = clock
        self._longest = self._longest_before = 0.0
        self._turned_at = clock()

    async def run(self) -> None:
        """Measure until canceled."""
        while True:
            started = self._clock()
            await asyncio.sleep(PERIOD_SECONDS)
            # The loop's clock has a resolution of 1 ms, so a timer may fire slightly early.
            self._saw(max(0.0, self._clock() - started - PERIOD_SECONDS))

    def longest_seconds(self) -> float:
        return max(self._longest, self._longest_before)

    def _saw(self, late: float) -> None:
        self._observe(late)
        if self._clock() - self._turned_at >= WINDOW_SECONDS:
            self._turned_at = self._clock()
            self._longest, self._longest_before = 0.0, self._longest
        self._longest = max(self._longest, late)
