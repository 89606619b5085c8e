"""The process group: joins all ranks and assigns GPUs, by default one GPU per rank."""

import os
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from bench.nccl.worker.rank_info import RankInfo


class InvalidPlacement(Exception):
    """The ranks do not fit the GPUs."""


@dataclass(frozen=True, slots=True)
class Group:
    rank_info: RankInfo
    device: Any
    gpu: str
    """UUID of the GPU; empty on a CPU."""
    max_ranks_per_gpu: int
    """The largest number of ranks on one GPU; 0 on CPUs."""
    backend: str
    timestamps: dict[str, float] = field(default_factory=dict[str, float])
    """Steps of the start, in seconds since 1970."""

    @property
    def shared_gpu(self) -> bool:
        return self.max_ranks_per_gpu > 1

    def barrier(self) -> None:
        """Wait for all ranks, also on the device."""
        self.sum(0)

    def sum(self, value: float) -> float:
        return self._reduced(value, dist.ReduceOp.SUM)

    def mean(self, value: float) -> float:
        return self.sum(value) / self.rank_info.ranks

    def minimum(self, value: float) -> float:
        return self._reduced(value, dist.ReduceOp.MIN)

    def all_gather(self, mine: dict[str, Any]) -> list[dict[str, Any]]:
        found: list[Any] = [None] * self.rank_info.ranks
        dist.all_gather_object(found, mine)
        return found

    def _reduced(self, value: float, how: Any) -> float:
        held = torch.tensor([value], dtype=torch.float64, device=self.device)
        dist.all_reduce(held, how)
        return float(held.item())


def join(backend: str, rank_info: RankInfo, *, share_gpu: bool, timestamps: dict[str, float]) -> Group:
    """Join the process group.

    Raises:
        InvalidPlacement: a rank has no GPU, or shares one without ``share_gpu``.
    """
    store, _, _ = next(dist.rendezvous("env://"))
    device, gpu = _device(rank_info, share_gpu=share_gpu) if backend == "nccl" else (torch.device("cpu"), "")
    together = _max_ranks_per_gpu(store, rank_info, gpu) if gpu else 0
    if together > 1 and not share_gpu:
        raise InvalidPlacement(
            "several ranks are on one GPU, which NCCL refuses; --share-gpu runs them over sockets"
        )
    if together > 1:
        # With different host IDs NCCL connects the ranks through the network.
        os.environ["NCCL_HOSTID"] = f"rallypoint-{rank_info.rank}"
    dist.init_process_group(
        backend, store=dist.PrefixStore("bench", store), rank=rank_info.rank, world_size=rank_info.ranks
    )
    group = Group(rank_info, device, gpu, together, backend, timestamps)
    timestamps["group"] = time.time()
    group.barrier()
    timestamps["first"] = time.time()
    return group


def _device(rank_info: RankInfo, *, share_gpu: bool) -> tuple[Any, str]:
    count = torch.cuda.device_count()
    if count == 0:
        raise InvalidPlacement(f"rank {rank_info.rank} sees no GPU; --backend gloo runs on CPUs")
    if rank_info.local_rank >= count and not share_gpu:
        raise InvalidPlacement(
            f"rank {rank_info.rank} is number {rank_info.local_rank} on its node, which has {count} GPUs"
        )
    device = torch.device("cuda", rank_info.local_rank % count)
    torch.cuda.set_device(device)
    return device, str(torch.cuda.get_device_properties(device).uuid)


def _max_ranks_per_gpu(store: Any, rank_info: RankInfo, gpu: str) -> int:
    """Return the largest number of ranks on one GPU, which the first rank counts for all."""
    store.set(f"gpu/{rank_info.rank}", gpu)
    if rank_info.rank == 0:
        found = Counter(store.get(f"gpu/{rank}") for rank in range(rank_info.ranks))
        store.set("gpus", str(max(found.values())))
    return int(store.get("gpus"))
