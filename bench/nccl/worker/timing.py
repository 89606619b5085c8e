"""Time of calls: CUDA events on a GPU, the performance counter on a CPU."""

import time
from collections.abc import Callable

import torch

from bench.nccl.worker.group import Group


def mean_seconds_per_call(group: Group, call: Callable[[], None], times: int) -> float:
    """Return the time per call of ``times`` consecutive calls, averaged over all ranks."""
    group.barrier()
    return group.mean((_by_events if group.device.type == "cuda" else _by_clock)(call, times) / times)


def _by_events(call: Callable[[], None], times: int) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    for _ in range(times):
        call()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3


def _by_clock(call: Callable[[], None], times: int) -> float:
    begin = time.perf_counter()
    for _ in range(times):
        call()
    return time.perf_counter() - begin
