"""The commands that start ranks by hand."""

from collections.abc import Callable
from pathlib import Path

from bench.nccl.manual_baseline import command
from bench.nccl.schema import RunConfig


def test_torchrun(make_config: Callable[..., RunConfig]) -> None:
    words = command("python3", make_config(nodes=1), Path("/work"), 29000)

    assert words[:3] == ["python3", "-m", "torch.distributed.run"]
    assert words[words.index("--nproc-per-node") + 1] == "2"
    assert words[-2:] == ["/work/start.py", "/work/task.json"]


def test_mpirun(make_config: Callable[..., RunConfig]) -> None:
    words = command("python3", make_config(nodes=1, via="mpijob"), Path("/work"), 29000)

    assert words[:3] == ["mpirun", "-np", "2"]
    assert words[-2:] == ["--master", "127.0.0.1:29000"]
