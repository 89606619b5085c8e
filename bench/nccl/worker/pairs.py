"""Bandwidth between all pairs of ranks, in both directions at once."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from bench.nccl.worker import fault_injection
from bench.nccl.worker.collectives import exchange
from bench.nccl.worker.group import Group
from bench.nccl.worker.messages import emit
from bench.nccl.worker.round_robin import rounds

TIMES = 9


def run(task: Mapping[str, Any], group: Group) -> None:
    """Report a row per rank: GB/s in one direction to each other rank, and 0 to itself."""
    size, rank_info, fault = (
        task["pair_bytes"],
        group.rank_info,
        fault_injection.fault_of(task, group.rank_info.rank),
    )
    source, target = (torch.zeros(size, dtype=torch.uint8, device=group.device) for _ in range(2))
    row = torch.zeros(rank_info.ranks, dtype=torch.float64, device=group.device)
    for pairs in rounds(rank_info.ranks):
        group.barrier()
        for low, high in pairs:
            if rank_info.rank in (low, high):
                other = low + high - rank_info.rank
                meet = partial(exchange, source, other, target, other)
                meet()  # opens connections
                seconds = median(_seconds(group, fault.delay(meet)) for _ in range(TIMES))
                row[other] = size / seconds / 1e9
    rows = [torch.zeros_like(row) for _ in range(rank_info.ranks)]
    dist.all_gather(rows, row)
    if rank_info.rank == 0:
        for rank, found in enumerate(rows):
            emit("pairs", rank=rank, size_bytes=size, row=[round(value, 4) for value in found.tolist()])


def _seconds(group: Group, call: Callable[[], None]) -> float:
    _settle(group)
    begin = time.perf_counter()
    call()
    _settle(group)
    return time.perf_counter() - begin


def _settle(group: Group) -> None:
    if group.device.type == "cuda":
        torch.cuda.synchronize()
