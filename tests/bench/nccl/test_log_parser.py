"""Lines of a log and their effect on the record."""

from collections.abc import Callable
from typing import Any

import orjson

from bench.nccl.log_parser import LogParser
from bench.nccl.schema import Node, Rank, RunConfig, World
from bench.nccl.worker.messages import PREFIX


def line(say: str, **fields: Any) -> str:
    return PREFIX + orjson.dumps({"type": say, **fields}).decode() + "\n"


WORLD = line("world", ranks=2, timestamps={"process": 1.0})
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


def test_a_whole_run(make_config: Callable[..., RunConfig]) -> None:
    log_parser = LogParser(make_config())
    for text in (
        WORLD,
        NODE,
        line("rank", rank=0, local_rank=0, host="pod-0", gpu="GPU-a"),
        line("planned", points=2),
    ):
        log_parser.feed(text)

    progress = log_parser.feed(POINT)
    log_parser.feed(
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
    log_parser.feed(line("end"))
    log_parser.nodes = {"pod-0": "node-7"}

    assert log_parser.is_complete
    assert progress == "1 of 2: all_reduce float32 1K: 3.0 µs, busbw 0.341 GB/s"
    record = log_parser.record()
    assert (record.state, record.why) == ("complete", "")
    assert record.points[0].busbw_gb_per_second == 1024 / 3.0 / 1e3
    assert record.skipped[0].why == "too small"
    assert record.ranks == [Rank(0, 0, "pod-0", "GPU-a", "node-7")]


def test_unsupported_points_are_not_planned(make_config: Callable[..., RunConfig]) -> None:
    log_parser = LogParser(make_config())
    missing = {"collective": "all_reduce", "dtype": "int8", "in_place": False, "why": "torch has none"}
    for text in (WORLD, line("skipped", **missing), line("planned", points=2)):
        log_parser.feed(text)

    assert log_parser.feed(POINT).startswith("1 of 2: ")


def test_a_partial_run_keeps_its_points(make_config: Callable[..., RunConfig]) -> None:
    log_parser = LogParser(make_config())
    for text in (WORLD, POINT, line("error", rank=1, why="RuntimeError: gone")):
        log_parser.feed(text)

    record = log_parser.record("rank 1 has died")

    assert (record.state, record.why, len(record.points)) == ("partial", "rank 1 has died", 1)
    assert log_parser.errors == ["rank 1: RuntimeError: gone"]


def test_messages_among_other_lines(make_config: Callable[..., RunConfig]) -> None:
    """NCCL may begin a line that the worker ends, and a container's end may cut one."""
    log_parser = LogParser(make_config())

    log_parser.feed(f"host:1:1 NCCL INFO {WORLD}")
    assert log_parser.feed(NODE) == "2 ranks, 1 pod with NVIDIA H200, NCCL 2.28.3, torch 2.9"
    assert log_parser.feed(POINT[:50]) == ""
    assert log_parser.feed(PREFIX + "[]") == ""
    log_parser.feed("Traceback (most recent call last):\n")

    assert log_parser.points == []
    assert log_parser.last_lines == ["Traceback (most recent call last):"]


def test_only_a_complete_matrix_counts(make_config: Callable[..., RunConfig]) -> None:
    log_parser = LogParser(make_config(pair_bytes=1024))
    log_parser.feed(WORLD)
    log_parser.feed(line("pairs", rank=1, row=[5.0, 0.0]))
    assert log_parser.record().pairs is None

    log_parser.feed(line("pairs", rank=0, row=[0.0, 4.0]))

    pairs = log_parser.record().pairs
    assert pairs is not None
    assert pairs.gb_per_second == [[0.0, 4.0], [5.0, 0.0]]


def test_tables_of_nccl_tests(make_config: Callable[..., RunConfig]) -> None:
    log_parser = LogParser(make_config(via="mpijob", nccl_tests="/opt"))
    log_parser.feed(line("nccl-tests", collective="all_reduce", dtype="float32"))
    for text in (
        "# nccl-tests version 2.17.1 nccl-headers=22803 nccl-library=22803",
        "#  Rank  0 Group  0 Pid     41 on  worker-0 device  0 [0000:07:00] NVIDIA H100 80GB HBM3",
        "#  Rank  1 Group  0 Pid     42 on  worker-0 device  1 [0000:0b:00] NVIDIA H100 80GB HBM3",
        "     1048576        262144     float     sum      -1    20.00   52.43   52.43      0    21.00   49.93   49.93      0",
    ):
        log_parser.feed(text)
    log_parser.feed(line("end"))

    record = log_parser.record()

    assert log_parser.is_complete
    assert record.world is not None
    assert record.world == World(4, nodes=[Node(nccl="2.28.3", device="NVIDIA H100 80GB HBM3")])
    assert [(point.in_place, point.times_us) for point in record.points] == [(False, [20.0]), (True, [21.0])]
    assert record.ranks[1] == Rank(1, 1, "worker-0")


def test_the_error_of_a_program_of_nccl_tests(make_config: Callable[..., RunConfig]) -> None:
    log_parser = LogParser(make_config(via="mpijob", nccl_tests="/opt"))
    log_parser.feed(line("nccl-tests", collective="all_reduce", dtype="float32"))
    for number in range(30):
        log_parser.feed(f"worker-0: Test NCCL failure {number}\n")

    assert log_parser.last_lines[-1] == "worker-0: Test NCCL failure 29"
    assert len(log_parser.last_lines) == 20
    assert log_parser.points == []
