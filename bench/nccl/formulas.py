"""From times to bandwidths, as nccl-tests defines them.

Algorithm bandwidth is the size by the time. Bus bandwidth is what the slowest link has to carry in that time, by which one
number of ranks can be held against another, and all of them against what the hardware says of itself.

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
"""By which bus bandwidth is more than algorithm bandwidth. 0 for one rank, where the size goes over no link."""
COLLECTIVES = tuple(FACTORS)


def algbw_gb_per_second(size_bytes: int, time_us: float) -> float:
    """GB are 1e9 bytes. Raises ZeroDivisionError for no time."""
    return size_bytes / time_us / 1e3


def busbw_gb_per_second(collective: str, ranks: int, size_bytes: int, time_us: float) -> float:
    return algbw_gb_per_second(size_bytes, time_us) * FACTORS[collective](ranks)
