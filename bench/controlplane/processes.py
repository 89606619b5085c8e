"""CPU time and memory of a process, from the kernel."""

import asyncio
from pathlib import Path

import psutil

IDLE_SHARE, IDLE_SECONDS, POLL_SECONDS = 0.1, 1.5, 0.3
"""A process is idle that takes less than this share of a core in each period of ``POLL_SECONDS``, for ``IDLE_SECONDS``."""


async def wait_until_idle(pid: int) -> float:
    """Return when the process is idle: the time since when it has been, on the monotonic clock."""
    now = asyncio.get_running_loop().time
    since, before = now(), cpu_ms(pid)
    while now() - since < IDLE_SECONDS:
        await asyncio.sleep(POLL_SECONDS)
        used, before = cpu_ms(pid) - before, cpu_ms(pid)
        if used > IDLE_SHARE * POLL_SECONDS * 1000:
            since = now()
    return since


def cpu_ms(pid: int) -> float:
    """Return the CPU time of all threads in milliseconds.

    The scheduler's counter, where it exists, has nanoseconds; the usual counter has ticks of ten milliseconds.
    """
    counts = list(Path(f"/proc/{pid}/task").glob("*/schedstat"))
    if not counts:
        times = psutil.Process(pid).cpu_times()
        return (times.user + times.system) * 1000
    return sum(int(count.read_text().split()[0]) for count in counts) / 1e6


def rss_mib(pid: int) -> float:
    """Return the resident memory in MiB."""
    return float(psutil.Process(pid).memory_info().rss) / 2**20


def reset_peak_rss(pid: int) -> None:
    """Reset the peak of resident memory, where the kernel can."""
    reset = Path(f"/proc/{pid}/clear_refs")
    if reset.exists():
        reset.write_text("5")


def peak_rss_mib(pid: int) -> float:
    """Return the peak of resident memory since ``reset_peak_rss`` in MiB; without a known peak, the current value."""
    status = Path(f"/proc/{pid}/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return rss_mib(pid)
