"""How long the writes of a job's children pause after a failure.

Only the writes pause. Reconciles go on, so the end of the job, its deadline and the states of its pods are still noticed.
"""

import asyncio

from controller.runtime.backoff import LONGEST_SECONDS, exponential_seconds

TICK_SECONDS = 0.001
"""The shortest remaining pause; timers have no finer resolution."""


class WriteBackoff:
    """Back-off of one job: the end of the pause and its generation. Another generation is tried at once."""

    __slots__ = ("_failures", "_generation", "_until")

    def __init__(self) -> None:
        self.reset()

    def record_failure(self, generation: int) -> None:
        """Begin a pause, twice as long as the last one."""
        pause = exponential_seconds(self._failures, longest_seconds=LONGEST_SECONDS)
        self._failures += 1
        self._generation, self._until = generation, asyncio.get_running_loop().time() + pause

    def remaining_seconds(self, generation: int) -> float:
        """Return the remaining pause, 0 if writes may be tried."""
        if not self._failures or self._generation != generation:
            return 0.0
        remaining = self._until - asyncio.get_running_loop().time()
        return remaining if remaining > TICK_SECONDS else 0.0

    def reset(self) -> None:
        """End the pause: the writes have succeeded."""
        self._failures, self._generation, self._until = 0, 0, 0.0
