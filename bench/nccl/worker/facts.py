"""Facts about a node and its libraries."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from bench.nccl.worker.machine import command_output, infiniband, nvlinks, settings


def facts(backend: str) -> dict[str, Any]:
    """Return the facts of this node."""
    on_gpu = backend == "nccl"
    drivers = (
        command_output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader") if on_gpu else ""
    )
    return {
        "torch": torch.__version__,
        "cuda": torch.version.cuda or "",
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if on_gpu else "",
        "driver": drivers.partition("\n")[0],  # One line per GPU, all with the same driver.
        "device": torch.cuda.get_device_name() if on_gpu else "CPU",
        "topology": command_output("nvidia-smi", "topo", "-m") if on_gpu else "",
        "nvlink": nvlinks(command_output("nvidia-smi", "nvlink", "--status")) if on_gpu else {},
        "infiniband": infiniband(),
        "settings": settings(os.environ),
    }


def group_identical(of_ranks: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Group hosts of identical nodes."""
    nodes: list[dict[str, Any]] = []
    for rank_facts in of_ranks:
        if rank_facts["local_rank"] != 0:
            continue
        known = next((node for node in nodes if node.items() >= rank_facts["facts"].items()), None)
        if known is None:
            known = {"hosts": [], **rank_facts["facts"]}
            nodes.append(known)
        known["hosts"].append(rank_facts["host"])
    return nodes
