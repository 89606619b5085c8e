"""An optional limit on requests per second, for owners of small API servers. The concurrency limiter applies it before it admits a call."""


class TokenBucket:
    """``per_second`` requests on average, and bursts of ``burst``."""

    def __init__(self, per_second: float, burst: int) -> None:
        self._interval = 1 / per_second
        self._reserve = (max(burst, 1) - 1) * self._interval
        self._full_at = float("-inf")
        """Loop time at which the bucket will be full again."""

    def take(self, now: float) -> float:
        """Take a token and return 0; if there is none, return the seconds until there is one."""
        full_at = max(self._full_at, now)
        wait = full_at - now - self._reserve
        if wait > _ROUNDING_SECONDS:
            return wait
        self._full_at = full_at + self._interval
        return 0.0


_ROUNDING_SECONDS = 1e-9
