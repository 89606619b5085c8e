"""Comparison of two runs."""

from collections.abc import Callable

import pytest

from bench.figures import Spread
from bench.nccl.comparison import compare, differences, ratio, verdict
from bench.nccl.schema import Node, Record, World


@pytest.mark.parametrize(
    ("second", "found"),
    [
        pytest.param(Spread(12, 13, 14), "slower", id="its best is worse than the other's worst"),
        pytest.param(Spread(6, 7, 8), "faster", id="its worst is better than the other's best"),
        pytest.param(Spread(11, 13, 14), "same", id="they touch"),
        pytest.param(Spread(9, 10, 11), "same", id="they are one"),
    ],
)
def test_verdict_on_times(second: Spread, found: str) -> None:
    assert verdict(Spread(9, 10, 11), second) == found


def test_runs_of_different_sizes(make_record: Callable[..., Record]) -> None:
    lines = compare(make_record(busbw={1024: 1.0, 2048: 2.0}), make_record(busbw={2048: 1.0, 4096: 4.0}))

    assert [(line.first.size_bytes, line.verdict) for line in lines] == [(2048, "slower")]
    assert ratio(lines) == pytest.approx(0.5)


def test_conditions_that_differ(make_record: Callable[..., Record]) -> None:
    assert differences(make_record(), make_record()) == []
    assert differences(make_record(), make_record(config={"image": "other"})) == ["image:  / other"]
    other = World(4, nodes=[Node(nccl="2.29.2", device="NVIDIA H200", settings={"NCCL_ALGO": "Ring"})])
    assert differences(make_record(), make_record(world=other)) == [
        "nccl: 2.28.3 / 2.29.2",
        "NCCL_DEBUG: WARN / unset",
        "NCCL_ALGO: unset / Ring",
    ]
