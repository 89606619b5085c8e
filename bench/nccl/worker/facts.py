"""What the first rank's libraries and node are."""

import os
from typing import Any

import torch

from bench.nccl.worker.machine import infiniband, said, settings


def facts(backend: str) -> dict[str, Any]:
    on_gpu = backend == "nccl"
    return {
        "torch": torch.__version__,
        "cuda": torch.version.cuda or "",
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if on_gpu else "",
        "driver": said("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader") if on_gpu else "",
        "device": torch.cuda.get_device_name() if on_gpu else "CPU",
        "topology": said("nvidia-smi", "topo", "-m") if on_gpu else "",
        "infiniband": infiniband(),
        "settings": settings(os.environ),
    }
