"""The API server's clock, which decides about deadlines and TTLs of jobs: object timestamps come from it, and clocks of replicas may differ.

The ``Date`` header of each answer has a resolution of one second. It is compared with the uptime of this process, so a step of the local
clock has no effect. The clock uses the median of the last answers, so that a late answer, or one of several servers with a wrong clock,
does not change it. A local clock within 2 s of the result is used unchanged: it has a higher resolution than the header.

If a proxy writes its own ``Date`` header (nginx does), the proxy's clock is used and must be right.
"""

from collections import deque
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache
from statistics import median

import structlog

from controller.runtime import clock

ANSWERS = 31
"""Number of answers of the median."""
LONGEST_ROUND_TRIP_SECONDS = 2.0
"""Slower answers are ignored: their header may be too old."""
AGREES_SECONDS = 2.0
"""The local clock is used if it differs by less."""
WARNS_SECONDS = 5.0
"""A larger difference is logged once, until the clocks agree again."""

log = structlog.get_logger()


class ServerClock:
    """The API server's time of day; the local one until it has answered."""

    def __init__(self) -> None:
        self._zeros = deque[float](maxlen=ANSWERS)
        """The server's time at uptime 0, in seconds since 1970, from each of the last answers."""
        self._zero: float | None = None
        self._last = datetime.min.replace(tzinfo=UTC)
        self._has_warned = False

    def observe(self, date: str, took_seconds: float) -> None:
        """Use the ``Date`` header of an answer that took ``took_seconds``."""
        if took_seconds > LONGEST_ROUND_TRIP_SECONDS:
            return
        try:
            written = date_seconds(date)
        except (ValueError, OverflowError):
            return
        # The header is the start of its second, so add half a second on average, and half of the round trip.
        self._zeros.append(written + 0.5 - (clock.uptime() - took_seconds / 2))
        self._zero = median(self._zeros)
        self._log_difference()

    def offset_seconds(self) -> float:
        """How many seconds the server's clock is ahead of the local one; 0 while unknown."""
        return 0.0 if self._zero is None else self._zero + clock.uptime() - clock.now().timestamp()

    def now(self) -> datetime:
        """Return the time of day as an aware UTC datetime."""
        offset, now = self.offset_seconds(), clock.now()
        if abs(offset) < AGREES_SECONDS:
            return now
        now += timedelta(seconds=offset)
        # The estimate varies by fractions of a second; timestamps must not go back because of that.
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
def date_seconds(date: str) -> float:
    """Parse a ``Date`` header into seconds since 1970.

    Raises:
        ValueError: this is not a date.
    """
    at = parsedate_to_datetime(date)
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
