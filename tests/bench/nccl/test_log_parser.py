"""Lines of a log, and what becomes of them."""

from collections.abc import Callable
from typing import Any

import orjson

from bench.nccl.log_parser import Gathering
from bench.nccl.schema import Asked, Node, Rank, World
from bench.nccl.worker.messages import MARK


def line(say: str, **fields: Any) -> str:
    return MARK + orjson.dumps({"say": say, **fields}).decode() + "\n"


WORLD = line("world", ranks=2, stamps={"process": 1.0})
NODE = line("node", hosts=["pod-0"], torch="2.9", nccl="2.28.3", device="NVIDIA H200")
POINT = line(
    "point",
    collective="all_reduce",
    dtype="float32",
    in_place=True,
    size_bytes=1024,
    elements=256,
    times_us=[4.0, 2.0, 3.0],
    wrong=0,
)


def test_a_whole_run(asked: Callable[..., Asked]) -> None:
    gathering = Gathering(asked())
    for one in (
        WORLD,
        NODE,
        line("rank", rank=0, local_rank=0, host="pod-0", gpu="GPU-a"),
        line("planned", points=2),
    ):
        gathering.take(one)

    news = gathering.take(POINT)
    gathering.take(
        line(
            "skipped",
            collective="alltoall",
            dtype="int8",
            in_place=False,
            size_bytes=8,
            elements=0,
            why="too small",
        )
    )
    gathering.take(line("end"))
    gathering.nodes = {"pod-0": "node-7"}

    assert gathering.is_whole
    assert news == "1 of 2: all_reduce float32 1K: 3.0 µs, busbw 0.341 GB/s"
    made = gathering.record()
    assert (made.state, made.why) == ("complete", "")
    assert made.points[0].busbw_gb_per_second == 1024 / 3.0 / 1e3
    assert made.skipped[0].why == "too small"
    assert made.ranks == [Rank(0, 0, "pod-0", "GPU-a", "node-7")]


def test_what_nobody_has_is_not_planned(asked: Callable[..., Asked]) -> None:
    gathering = Gathering(asked())
    missing = {"collective": "all_reduce", "dtype": "int8", "in_place": False, "why": "torch has none"}
    for one in (WORLD, line("skipped", **missing), line("planned", points=2)):
        gathering.take(one)

    assert gathering.take(POINT).startswith("1 of 2: ")


def test_a_run_that_broke_off_keeps_what_it_has(asked: Callable[..., Asked]) -> None:
    gathering = Gathering(asked())
    for one in (WORLD, POINT, line("error", rank=1, why="RuntimeError: gone")):
        gathering.take(one)

    made = gathering.record("rank 1 has died")

    assert (made.state, made.why, len(made.points)) == ("partial", "rank 1 has died", 1)
    assert gathering.errors == ["rank 1: RuntimeError: gone"]


def test_lines_among_others(asked: Callable[..., Asked]) -> None:
    """NCCL may have begun a line that the worker ends, and a container's end may cut one."""
    gathering = Gathering(asked())

    gathering.take(f"host:1:1 NCCL INFO {WORLD}")
    assert gathering.take(NODE) == "2 ranks, 1 pod with NVIDIA H200, NCCL 2.28.3, torch 2.9"
    assert gathering.take(POINT[:50]) == ""
    assert gathering.take(MARK + "[]") == ""
    gathering.take("Traceback (most recent call last):\n")

    assert gathering.points == []
    assert gathering.last_words == ["Traceback (most recent call last):"]


def test_only_a_whole_matrix_counts(asked: Callable[..., Asked]) -> None:
    gathering = Gathering(asked(pair_bytes=1024))
    gathering.take(WORLD)
    gathering.take(line("pairs", rank=1, row=[5.0, 0.0]))
    assert gathering.record().pairs is None

    gathering.take(line("pairs", rank=0, row=[0.0, 4.0]))

    pairs = gathering.record().pairs
    assert pairs is not None
    assert pairs.gb_per_second == [[0.0, 4.0], [5.0, 0.0]]


def test_tables_of_nccl_tests(asked: Callable[..., Asked]) -> None:
    gathering = Gathering(asked(via="mpijob", nccl_tests="/opt"))
    gathering.take(line("nccl-tests", collective="all_reduce", dtype="float32"))
    for one in (
        "# nccl-tests version 2.17.1 nccl-headers=22803 nccl-library=22803",
        "#  Rank  0 Group  0 Pid     41 on  worker-0 device  0 [0000:07:00] NVIDIA H100 80GB HBM3",
        "#  Rank  1 Group  0 Pid     42 on  worker-0 device  1 [0000:0b:00] NVIDIA H100 80GB HBM3",
        "     1048576        262144     float     sum      -1    20.00   52.43   52.43      0    21.00   49.93   49.93      0",
    ):
        gathering.take(one)
    gathering.take(line("end"))

    made = gathering.record()

    assert gathering.is_whole
    assert made.world is not None
    assert made.world == World(4, nodes=[Node(nccl="2.28.3", device="NVIDIA H100 80GB HBM3")])
    assert [(one.in_place, one.times_us) for one in made.points] == [(False, [20.0]), (True, [21.0])]
    assert made.ranks[1] == Rank(1, 1, "worker-0")


def test_what_a_program_of_nccl_tests_ends_with(asked: Callable[..., Asked]) -> None:
    gathering = Gathering(asked(via="mpijob", nccl_tests="/opt"))
    gathering.take(line("nccl-tests", collective="all_reduce", dtype="float32"))
    for number in range(30):
        gathering.take(f"worker-0: Test NCCL failure {number}\n")

    assert gathering.last_words[-1] == "worker-0: Test NCCL failure 29"
    assert len(gathering.last_words) == 20
    assert gathering.points == []
