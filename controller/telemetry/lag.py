"""How late the event loop is: whatever keeps it busy makes every other task wait as long.

A timer that is due twice a second tells of every stall longer than that, and of shorter ones by chance; which callback it was
is told by ``bench.controlplane.callbacks``.
"""

import asyncio
import time
from collections.abc import Callable

PERIOD_SECONDS = 0.5
WINDOW_SECONDS = 60.0
"""The longest is remembered for one to two of these, so that everybody who scrapes once a minute sees it."""


class Lag:
    """Measures while ``run`` runs.

    The clock is not the loop's own: that of uvloop stands still while a callback runs.
    """

    def __init__(self, observe: Callable[[float], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._observe = observe
        self._clock = clock
        self._longest = self._longest_before = 0.0
        self._turned_at = clock()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            started = self._clock()
            await asyncio.sleep(PERIOD_SECONDS)
            # The loop's clock has whole milliseconds: a timer may seem to come a little early.
            self._saw(max(0.0, self._clock() - started - PERIOD_SECONDS))

    def longest_seconds(self) -> float:
        return max(self._longest, self._longest_before)

    def _saw(self, late: float) -> None:
        self._observe(late)
        if self._clock() - self._turned_at >= WINDOW_SECONDS:
            self._turned_at = self._clock()
            self._longest, self._longest_before = 0.0, self._longest
        self._longest = max(self._longest, late)
