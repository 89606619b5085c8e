"""Facts about a node."""

import sys
from pathlib import Path

from bench.nccl.worker.machine import available_bytes, command_output, infiniband, nvlinks, settings


def test_only_variables_of_transports_are_recorded() -> None:
    found = settings({"NCCL_IB_HCA": "mlx5", "TOKEN": "secret", "UCX_TLS": "tcp"})

    assert found == {"NCCL_IB_HCA": "mlx5", "UCX_TLS": "tcp"}


def test_active_ports(tmp_path: Path) -> None:
    for port, state in (("1", "4: ACTIVE"), ("2", "1: DOWN")):
        folder = tmp_path / "mlx5_0" / "ports" / port
        folder.mkdir(parents=True)
        (folder / "state").write_text(f"{state}\n")
        (folder / "rate").write_text("400 Gb/sec (4X NDR)\n")
    (tmp_path / "mlx5_1" / "ports" / "1").mkdir(parents=True)

    assert infiniband(tmp_path) == {"mlx5_0:1": "400 Gb/sec (4X NDR)"}
    assert infiniband(tmp_path / "none") == {}


def test_the_output_of_a_program() -> None:
    assert command_output(sys.executable, "-c", "print(' word ')") == "word"
    assert command_output(sys.executable, "-c", r"print('\x1b[4mGPU0\x1b[0m')") == "GPU0", (
        "nvidia-smi underlines heads"
    )
    assert command_output(sys.executable, "-c", "print('half'); raise SystemExit(1)") == ""
    assert command_output("no-such-program-anywhere") == ""


def test_links_between_gpus() -> None:
    """As ``nvidia-smi nvlink --status`` prints them."""
    status = """GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)
\t Link 0: 26.562 GB/s
\t Link 1: 26.562 GB/s
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-2)
\t Link 0: 26.562 GB/s
\t Link 1: <inactive>
"""

    assert nvlinks(status) == {"0": "2 × 26.562 GB/s", "1": "1 × 26.562 GB/s, 1 × <inactive>"}
    assert nvlinks("") == {}


def test_available_memory(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9 kB\nMemFree: 1 kB\nMemAvailable:    4 kB\n")

    assert available_bytes(meminfo) == 4096
