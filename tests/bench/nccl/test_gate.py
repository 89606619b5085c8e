"""The checks before a training job starts."""

from collections.abc import Callable

import msgspec

from bench.nccl.gate import find_problems
from bench.nccl.references import REFERENCES
from bench.nccl.schema import Pairs, Record, World

H200 = REFERENCES["h200x8"]
EIGHT = World(ranks=8)


def test_a_good_run(make_record: Callable[..., Record]) -> None:
    assert find_problems(make_record(), min_busbw=99) == []


def test_too_slow(make_record: Callable[..., Record]) -> None:
    assert find_problems(make_record(), min_busbw=150) == [
        "all_reduce reaches 100 GB/s of bus bandwidth (at 1M), required are 150"
    ]


def test_nothing_measured(make_record: Callable[..., Record]) -> None:
    assert find_problems(make_record(points=[]), min_busbw=1) == ["no bandwidth was measured"]


def test_wrong_elements_and_partial_runs_are_problems(make_record: Callable[..., Record]) -> None:
    run = make_record(state="partial", why="interrupted")
    run = msgspec.structs.replace(run, points=[msgspec.structs.replace(run.points[0], wrong=3)])

    assert find_problems(run) == [
        "the run is partial: interrupted",
        "all_reduce of 1K float32: 3 elements are wrong",
    ]


def test_a_reference_at_its_size(make_record: Callable[..., Record]) -> None:
    """Within nine tenths of 475 at 4 GiB; other sizes do not count."""
    assert (
        find_problems(make_record(busbw={4 << 30: 430.0, 8 << 30: 10.0}, world=EIGHT), reference=H200) == []
    )
    assert find_problems(make_record(busbw={4 << 30: 420.0}, world=EIGHT), reference=H200) == [
        "all_reduce of 4G reaches 420 GB/s of bus bandwidth, h200x8 requires 428"
    ]
    assert find_problems(make_record(busbw={4 << 30: 420.0}, world=EIGHT), reference=H200, within=0.8) == []


def test_a_reference_at_other_sizes(make_record: Callable[..., Record]) -> None:
    """The best size of both counts."""
    assert find_problems(make_record(busbw={1 << 30: 470.0}, world=EIGHT), reference=H200) == []
    assert find_problems(make_record(busbw={1 << 30: 400.0}, world=EIGHT), reference=H200) != []
    assert find_problems(make_record(points=[], world=EIGHT), reference=H200) == [
        "no all_reduce was measured"
    ]


def test_a_reference_of_another_size_of_job(make_record: Callable[..., Record]) -> None:
    assert find_problems(make_record(busbw={4 << 30: 475.0}), reference=H200) == [
        "the run had 4 GPUs, h200x8 has 8"
    ]


def test_other_bandwidth_is_compared_with_no_reference(make_record: Callable[..., Record]) -> None:
    (why,) = find_problems(make_record(config={"backend": "gloo"}, busbw={4 << 30: 999.0}), reference=H200)

    assert why.startswith("cannot be compared with h200x8: gloo between CPUs")


def test_slow_ranks_are_named(make_record: Callable[..., Record]) -> None:
    pairs = Pairs(1024, [[0, 9, 1, 9], [9, 0, 1, 9], [1, 1, 0, 1], [9, 9, 1, 0]])

    assert find_problems(make_record(pairs=pairs)) == [
        "slow: rank 2 (node node-1, pod pod-1, GPU 0), in 3 slow pairs"
    ]
