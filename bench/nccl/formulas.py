"""Bandwidths from times, as nccl-tests defines them.

Algorithm bandwidth is size divided by time. Bus bandwidth is what the slowest link carries in that time; it can be compared
between numbers of ranks, and with the specification of the hardware.

Source: nccl-tests, doc/PERFORMANCE.md.
"""

from collections.abc import Callable

FACTORS: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda ranks: 2 * (ranks - 1) / ranks,
    "all_gather": lambda ranks: (ranks - 1) / ranks,
    "reduce_scatter": lambda ranks: (ranks - 1) / ranks,
    "alltoall": lambda ranks: (ranks - 1) / ranks,
    "broadcast": lambda _: 1.0,
    "sendrecv": lambda _: 1.0,
}
"""Bus bandwidth divided by algorithm bandwidth, by number of ranks; 0 for one rank, which uses no link."""
COLLECTIVES = tuple(FACTORS)


def algbw_gb_per_second(size_bytes: int, time_us: float) -> float:
    """Return GB/s, with GB = 1e9 bytes. Raises ZeroDivisionError for a time of 0."""
    return size_bytes / time_us / 1e3


def busbw_gb_per_second(collective: str, ranks: int, size_bytes: int, time_us: float) -> float:
    return algbw_gb_per_second(size_bytes, time_us) * FACTORS[collective](ranks)
