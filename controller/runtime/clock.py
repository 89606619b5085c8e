"""Time, in one place. Delays and back-off use the event loop's own monotonic time."""

import sys
import time
from datetime import UTC, datetime


def now() -> datetime:
    """The time of day, aware, in UTC."""
    return datetime.now(UTC)


def uptime() -> float:
    """Seconds since some moment, counted on while this process is stopped and, on Linux, while the machine sleeps.

    It is read anew each time: what an event loop calls its time may be as old as the callback that runs.
    """
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()
