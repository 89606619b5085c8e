"""What a node says of itself, whatever the libraries are."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

SETTINGS = ("NCCL_", "UCX_", "FI_", "GLOO_", "TORCH_NCCL_", "NVSHMEM_", "CUDA_VISIBLE_", "OMP_NUM_")
"""Beginnings of the variables that decide how bytes travel."""
INFINIBAND = Path("/sys/class/infiniband")
LONGEST_SECONDS = 20.0


def settings(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in sorted(environment.items()) if name.startswith(SETTINGS)}


def infiniband(folder: Path = INFINIBAND) -> dict[str, str]:
    """The rate of each port that is up, by device and port, in the kernel's words."""
    found: dict[str, str] = {}
    for port in sorted(folder.glob("*/ports/*")):
        try:
            if "ACTIVE" in (port / "state").read_text():
                found[f"{port.parts[-3]}:{port.name}"] = (port / "rate").read_text().strip()
        except OSError:
            continue
    return found


def said(*command: str) -> str:
    """What a program says; nothing where it is not there or does not answer."""
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ended.stdout.strip() if ended.returncode == 0 else ""
