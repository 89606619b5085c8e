"""Tables of the programs of nccl-tests."""

import pytest

from bench.nccl.perftable import parse, version
from bench.nccl.schema import Rank

HEAD = """\
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 1 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
#
# Using devices
#  Rank  0 Group  0 Pid    101 on  bench-worker-0 device  0 [0000:19:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid    102 on  bench-worker-0 device  1 [0000:3b:00] NVIDIA H100 80GB HBM3
#  Rank  2 Group  0 Pid     88 on  bench-worker-1 device  0 [0000:19:00] NVIDIA H100 80GB HBM3
#  Rank  3 Group  0 Pid     89 on  bench-worker-1 device  1 [0000:3b:00] NVIDIA H100 80GB HBM3
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""
ROWS = """\
           0             0     float     sum      -1     0.21    0.00    0.00      0     0.19    0.00    0.00      0
           8             2     float     sum      -1    24.20    0.00    0.00      0    24.00    0.00    0.00      0
   536870912     134217728     float     sum      -1   2263.1  237.22  355.84      0   2250.0  238.61  357.91      2
# Out of bounds values : 2 FAILED
# Avg bus bandwidth    : 178.437
#
"""


def test_a_table() -> None:
    table = parse("all_reduce", (HEAD + ROWS).splitlines())

    assert table.ranks == [
        Rank(0, 0, "bench-worker-0"),
        Rank(1, 1, "bench-worker-0"),
        Rank(2, 0, "bench-worker-1"),
        Rank(3, 1, "bench-worker-1"),
    ]
    assert table.device == "NVIDIA H100 80GB HBM3"
    assert [(point.size_bytes, point.in_place) for point in table.points] == [
        (8, False),
        (8, True),
        (1 << 29, False),
        (1 << 29, True),
    ]
    last = table.points[-1]
    assert (last.dtype, last.elements, last.times_us, last.wrong) == ("float32", 134217728, [2250.0], 2)


def test_bandwidths_are_those_that_it_prints() -> None:
    """Values computed from size, ranks and time equal those that the program prints."""
    found = parse("all_reduce", (HEAD + ROWS).splitlines()).points[2]

    assert found.algbw_gb_per_second == pytest.approx(237.22, abs=0.01)
    assert found.busbw_gb_per_second == pytest.approx(355.84, abs=0.02)


@pytest.mark.parametrize(
    ("collective", "row", "wrong"),
    [
        pytest.param(
            "sendrecv",
            "1024 256 half -1 10.0 0.10 0.10 0 N/A N/A N/A N/A",
            [0],
            id="no redop, nothing in place",
        ),
        pytest.param(
            "broadcast", "1024 256 bfloat16 none 0 10.0 0.10 0.10 0 9.0 0.11 0.11 0", [0, 0], id="with a root"
        ),
        pytest.param(
            "all_gather",
            "1024 64 int8 none -1 10.0 0.10 0.07 N/A 9.0 0.11 0.08 N/A",
            [None, None],
            id="not checked",
        ),
        pytest.param(
            "alltoall", "1024 64 double none -1 10.0 0.10 0.07 1e+00 N/A N/A N/A N/A", [1], id="as a float"
        ),
    ],
)
def test_columns_of_other_programs(collective: str, row: str, wrong: list[int | None]) -> None:
    assert [point.wrong for point in parse(collective, [row], ranks=4).points] == wrong


@pytest.mark.parametrize(
    "line",
    [
        "",
        "mpirun noticed that",
        "8 2 float",
        "8 2 furlong sum -1 1 1 1 0 1 1 1 0",
        "x 2 float sum -1 1 1 1 0 1 1 1 0",
    ],
)
def test_other_lines(line: str) -> None:
    assert parse("all_reduce", [line], ranks=4).points == []


@pytest.mark.parametrize(("code", "text"), [(22803, "2.28.3"), (2804, "2.8.4"), (21005, "2.10.5")])
def test_versions(code: int, text: str) -> None:
    assert version(code) == text
