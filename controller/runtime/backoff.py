"""How long to wait before trying again.

Source: client-go, util/workqueue/default_rate_limiters.go and tools/cache/reflector.go.
"""

import random
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")

LONGEST_SECONDS = 120.0
"""The longest wait after repeated failures: short enough to notice soon that a server or a quota is available again.

Differs: client-go waits up to 1,000 s.
"""


FIRST_SECONDS = 0.005
"""The wait after the first failure."""


def exponential_seconds(
    failures: int, first_seconds: float = FIRST_SECONDS, longest_seconds: float = LONGEST_SECONDS
) -> float:
    """Return the wait after one more failure than ``failures``: the first one doubled for each, at most the longest."""
    return min(first_seconds * 2.0 ** min(failures, 60), longest_seconds)


class PerKey(Generic[K]):
    """Exponential back-off per key: 5 ms after the first failure, doubled with each further failure, at most ``longest_seconds``."""

    def __init__(
        self, first_seconds: float = FIRST_SECONDS, longest_seconds: float = LONGEST_SECONDS
    ) -> None:
        self._first_seconds = first_seconds
        self._longest_seconds = longest_seconds
        self._failures: dict[K, int] = {}

    def record_failure(self, key: K) -> float:
        """Record one more failure and return the seconds to wait after it."""
        count = self._failures.get(key, 0)
        self._failures[key] = count + 1
        return exponential_seconds(count, self._first_seconds, self._longest_seconds)

    def discard(self, key: K) -> None:
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        return self._failures.get(key, 0)


class Reconnect:
    """Back-off of one stream: 0.8 s, doubled up to 30 s, with a jitter of up to 100 %. Two minutes without a failure reset it."""

    FIRST_SECONDS = 0.8
    LONGEST_SECONDS = 30.0
    CALM_SECONDS = 120.0

    def __init__(self, time: Callable[[], float], chance: Callable[[], float] = random.random) -> None:
        self._time = time
        self._chance = chance
        self._next_seconds = self.FIRST_SECONDS
        self._last = float("-inf")

    @property
    def is_calm(self) -> bool:
        """Return whether the last failure is more than the reset time ago, or there was none."""
        return self._time() - self._last > self.CALM_SECONDS

    def record_failure(self) -> float:
        """Record one more failure and return the seconds to wait after it."""
        if self.is_calm:
            self._next_seconds = self.FIRST_SECONDS
        pause = self._next_seconds
        self._next_seconds = min(pause * 2, self.LONGEST_SECONDS)
        self._last = self._time()
        return pause * (1 + self._chance())
