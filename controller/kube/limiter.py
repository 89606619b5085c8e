"""An optional limit on requests per second, for owners of small API servers."""

import asyncio


class TokenBucket:
    """``per_second`` requests on average, ``burst`` at once; those that wait go in the order they came."""

    def __init__(self, per_second: float, burst: int) -> None:
        self._per_second = per_second
        self._burst = max(burst, 1)
        self._full_at = float("-inf")
        """Loop time at which the bucket would be full again."""

    async def take(self) -> None:
        """Wait for a token. The place in the line is taken before the first await."""
        time = asyncio.get_running_loop().time
        now = time()
        self._full_at = max(self._full_at, now) + 1 / self._per_second
        wait = self._full_at - now - self._burst / self._per_second
        if wait > 0:
            await asyncio.sleep(wait)
