"""Facts about a node that need no library."""

import re
import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

SETTINGS = ("NCCL_", "UCX_", "FI_", "GLOO_", "TORCH_NCCL_", "NVSHMEM_", "CUDA_VISIBLE_", "OMP_NUM_")
"""Prefixes of the variables that affect communication."""
INFINIBAND = Path("/sys/class/infiniband")
TIMEOUT_SECONDS = 20.0
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_GPU = re.compile(r"GPU (\d+):")
_LINK = re.compile(r"\s+Link \d+: (.+)")


def settings(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in sorted(environment.items()) if name.startswith(SETTINGS)}


def available_bytes(meminfo: Path = Path("/proc/meminfo")) -> int:
    """Return the memory that is available without swapping."""
    (line,) = [line for line in meminfo.read_text().splitlines() if line.startswith("MemAvailable:")]
    return int(line.split()[1]) * 1024


def infiniband(folder: Path = INFINIBAND) -> dict[str, str]:
    """Return port → rate of active ports, in the kernel's words."""
    found: dict[str, str] = {}
    for port in sorted(folder.glob("*/ports/*")):
        try:
            if "ACTIVE" in (port / "state").read_text():
                found[f"{port.parts[-3]}:{port.name}"] = (port / "rate").read_text().strip()
        except OSError:
            continue
    return found


def nvlinks(status: str) -> dict[str, str]:
    """Return GPU number → links by rate: ``{"0": "17 × 26.562 GB/s, 1 × <inactive>"}``."""
    found: dict[str, Counter[str]] = {}
    for line in status.splitlines():
        if gpu := _GPU.match(line):
            found[gpu[1]] = Counter()
        elif found and (link := _LINK.match(line)):
            found[next(reversed(found))][link[1].strip()] += 1
    return {
        gpu: ", ".join(f"{count} × {rate}" for rate, count in links.items()) for gpu, links in found.items()
    }


def command_output(*command: str) -> str:
    """Return the output of a program without colors; empty if it is missing, fails or does not answer."""
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return _COLOR.sub("", ended.stdout).strip() if ended.returncode == 0 else ""
