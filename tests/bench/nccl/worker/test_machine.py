"""What a node says of itself."""

import sys
from pathlib import Path

from bench.nccl.worker.machine import infiniband, said, settings


def test_only_what_carries_bytes() -> None:
    found = settings({"NCCL_IB_HCA": "mlx5", "TOKEN": "secret", "UCX_TLS": "tcp"})

    assert found == {"NCCL_IB_HCA": "mlx5", "UCX_TLS": "tcp"}


def test_ports_that_are_up(tmp_path: Path) -> None:
    for port, state in (("1", "4: ACTIVE"), ("2", "1: DOWN")):
        folder = tmp_path / "mlx5_0" / "ports" / port
        folder.mkdir(parents=True)
        (folder / "state").write_text(f"{state}\n")
        (folder / "rate").write_text("400 Gb/sec (4X NDR)\n")
    (tmp_path / "mlx5_1" / "ports" / "1").mkdir(parents=True)

    assert infiniband(tmp_path) == {"mlx5_0:1": "400 Gb/sec (4X NDR)"}
    assert infiniband(tmp_path / "none") == {}


def test_what_a_program_says() -> None:
    assert said(sys.executable, "-c", "print(' word ')") == "word"
    assert said(sys.executable, "-c", "print('half'); raise SystemExit(1)") == ""
    assert said("no-such-program-anywhere") == ""
