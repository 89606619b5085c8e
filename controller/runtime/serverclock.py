"""The API server's time of day, which deadlines and TTLs of jobs go by: the times in objects are its own, and replicas may disagree.

Each answer has a ``Date`` header of whole seconds. It is compared with this process's uptime, which no correction of the clock touches,
so a step of the local clock changes nothing. The median of the last answers is taken: a late answer, or one of several servers whose
clock is wrong, does not move it. A local clock that agrees within 2 s is taken as it is: it is finer than the header.

A proxy that writes ``Date`` headers of its own (nginx does) stands for the API server here; its clock has to be right, then.
"""

from collections import deque
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache
from statistics import median

import structlog

from controller.runtime import clock

ANSWERS = 31
"""How many answers the median is of."""
LONGEST_ROUND_TRIP_SECONDS = 2.0
"""A slower answer says too little of when it was written."""
AGREES_SECONDS = 2.0
"""A local clock that differs by less is taken as it is."""
WARNS_SECONDS = 5.0
"""A local clock that differs by this is warned of, once, until it agrees again."""

log = structlog.get_logger()


class ServerClock:
    """The time of day as the API server has it; the local one until it has answered."""

    def __init__(self) -> None:
        self._zeros = deque[float](maxlen=ANSWERS)
        """The server's time at an uptime of 0, in seconds since 1970, by each of the last answers."""
        self._zero: float | None = None
        self._last = datetime.min.replace(tzinfo=UTC)
        self._has_warned = False

    def observe(self, date: str, took_seconds: float) -> None:
        """Take the ``Date`` header of an answer that has just come, so long after it was asked for."""
        if took_seconds > LONGEST_ROUND_TRIP_SECONDS:
            return
        try:
            written = _seconds(date)
        except (ValueError, OverflowError):
            return
        # The header names the begin of its second; on average half of it was over. So was half of the round trip.
        self._zeros.append(written + 0.5 - (clock.uptime() - took_seconds / 2))
        self._zero = median(self._zeros)
        self._log_difference()

    def offset_seconds(self) -> float:
        """How far the server's clock is ahead of the local one; 0 as long as nothing is known."""
        return 0.0 if self._zero is None else self._zero + clock.uptime() - clock.now().timestamp()

    def now(self) -> datetime:
        """The time of day, aware, in UTC."""
        offset, now = self.offset_seconds(), clock.now()
        if abs(offset) < AGREES_SECONDS:
            return now
        now += timedelta(seconds=offset)
        # The estimate moves by parts of a second; what is written with it must not go back for that.
        if timedelta(0) < self._last - now < timedelta(seconds=AGREES_SECONDS):
            return self._last
        self._last = now
        return now

    def _log_difference(self) -> None:
        offset = self.offset_seconds()
        if not self._has_warned and abs(offset) >= WARNS_SECONDS:
            self._has_warned = True
            log.warning("local clock differs from the API server's", offset_seconds=round(offset, 1))
        elif self._has_warned and abs(offset) < AGREES_SECONDS:
            self._has_warned = False
            log.info("local clock agrees with the API server's again")


@lru_cache(maxsize=4)
def _seconds(date: str) -> float:
    """
    Raises:
        ValueError: this is no date.
    """
    at = parsedate_to_datetime(date)
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
