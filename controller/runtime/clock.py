"""The clocks of the controller. Delays and back-off use the event loop's monotonic time instead."""

import sys
import time
from datetime import UTC, datetime


def now() -> datetime:
    """Return the current time as an aware UTC datetime."""
    return datetime.now(UTC)


def cpu_time() -> float:
    """Return the seconds of CPU time of this thread, so also those for which it has kept its event loop from other work."""
    return time.thread_time()


def uptime() -> float:
    """Return seconds since an arbitrary moment. They include the time while this process is stopped and, on Linux, while the machine sleeps.

    It reads the clock at each call: the event loop's time may be as old as the running callback.
    """
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()
