"""How fast pods of one name may follow each other. Pure.

In a cluster a new pod takes a second or two to start, which is all that slows down an operator that replaces a pod
whenever it fails. A process starts in milliseconds, and a job that fails at once would fill the disk with logs.
"""

from datetime import datetime, timedelta

FREE_STARTS = 2
LONGEST_SECONDS = 30.0
CALM_SECONDS = 60.0
"""A name that was not started for this long begins anew."""


class Pace:
    def __init__(self) -> None:
        self._starts: dict[tuple[str, str], tuple[int, datetime]] = {}

    def pause_seconds(self, namespace: str, name: str, now: datetime) -> float:
        """How long the next pod of a name has to wait; asking counts as its start."""
        count, last = self._starts.get((namespace, name), (0, now))
        if now - last > timedelta(seconds=CALM_SECONDS):
            count = 0
        pause = 0.0 if count < FREE_STARTS else min(2.0 ** (count - FREE_STARTS), LONGEST_SECONDS)
        self._starts[namespace, name] = count + 1, now + timedelta(seconds=pause)
        return pause
