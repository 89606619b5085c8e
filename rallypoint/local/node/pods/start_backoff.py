"""Back-off between pods of the same name. Pure.

In a cluster a new pod takes seconds to start, which slows down an operator that replaces failed pods. A local process
starts in milliseconds, and a job that fails at once would fill the disk with logs.
"""

from datetime import datetime, timedelta

FREE_STARTS = 2
LONGEST_SECONDS = 30.0
RESET_SECONDS = 60.0
"""A name without a start for this long has no back-off."""


class StartBackoff:
    def __init__(self) -> None:
        self._starts: dict[tuple[str, str], tuple[int, datetime]] = {}

    def next_delay_seconds(self, namespace: str, name: str, now: datetime) -> float:
        """Record a start of this name and return its delay in seconds."""
        count, last = self._starts.get((namespace, name), (0, now))
        if now - last > timedelta(seconds=RESET_SECONDS):
            count = 0
        pause = 0.0 if count < FREE_STARTS else min(2.0 ** (count - FREE_STARTS), LONGEST_SECONDS)
        self._starts[namespace, name] = count + 1, now + timedelta(seconds=pause)
        return pause
