"""Small complete records; a test passes the fields that differ."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from bench.nccl.schema import VERSION, Node, Rank, Record, RunConfig, World, point

CONFIG = RunConfig(
    via="pytorchjob",
    backend="nccl",
    nodes=2,
    gpus=2,
    collectives=["all_reduce"],
    dtypes=["float32"],
    in_place=[True],
    sizes=[1024, 1 << 20],
    warmup=1,
    iterations=2,
    rounds=3,
)


@pytest.fixture
def make_config() -> Callable[..., RunConfig]:
    """Builds a configuration with other fields than ``CONFIG``."""
    return lambda **fields: msgspec.structs.replace(CONFIG, **fields)


@pytest.fixture
def make_record() -> Callable[..., Record]:
    """Builds a record of four ranks on two nodes; ``config`` are fields of the configuration, ``busbw`` is size → GB/s."""

    def make(
        config: dict[str, Any] | None = None, busbw: dict[int, float] | None = None, **fields: Any
    ) -> Record:
        points = [
            # all_reduce of four ranks: the bus carries one and a half times the size.
            point(
                "all_reduce",
                4,
                size,
                [size * 1.5 / reached / 1e3 * part for part in (0.9, 1.0, 1.2)],
                dtype="float32",
                in_place=True,
                elements=size // 4,
                wrong=0,
            )
            for size, reached in (busbw or {1024: 1.0, 1 << 20: 100.0}).items()
        ]
        ranks = [
            Rank(rank, rank % 2, f"pod-{rank // 2}", f"GPU-{rank}", f"node-{rank // 2}") for rank in range(4)
        ]
        whole: dict[str, Any] = {
            "schema_version": VERSION,
            "state": "complete",
            "why": "",
            "started": "2026-01-01T00:00:00+00:00",
            "seconds": 1.0,
            "submitted": 0.0,
            "commit": {"id": "0123456789abcdef", "changed": False},
            "environment": {"cores": 2, "cpu": "a CPU", "kernel": "Linux", "python": "CPython"},
            "config": msgspec.structs.replace(CONFIG, **(config or {})),
            "world": World(
                ranks=4,
                nodes=[Node(nccl="2.28.3", device="NVIDIA H200", settings={"NCCL_DEBUG": "WARN"})],
            ),
            "ranks": ranks,
            "points": points,
        }
        return Record(**(whole | fields))

    return make
