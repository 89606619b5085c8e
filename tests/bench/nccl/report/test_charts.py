"""The lines of charts."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from bench.nccl.report import charts
from bench.nccl.schema import VERSION, Overhead, Record, RunConfig, Scaling, ScalingRun, Start, World

WHERE = {"started": "", "commit": {}, "environment": {}}


def scaling(**fields: object) -> Scaling:
    runs = [
        ScalingRun("pytorchjob", 1, 8, [100.0, 90.0, 110.0]),
        ScalingRun("pytorchjob", 2, 16, [180.0, 190.0, 200.0]),
    ]
    whole = {
        "schema_version": VERSION,
        "state": "complete",
        "why": "",
        "backend": "nccl",
        "gpus": 8,
        "model": "resnet50",
    }
    return Scaling(**(WHERE | whole | {"batch": 64, "share_gpu": False, "runs": runs} | fields))  # type: ignore[arg-type]


def test_hardware_bandwidth_has_references(make_record: Callable[..., Record]) -> None:
    bandwidth, latency = charts.build(make_record())

    dots = bandwidth.lines[0].dots
    assert [dot.x for dot in dots] == [1024, 1 << 20]
    assert [dot.y for dot in dots] == pytest.approx([1, 100])
    references = {line.label: line.dots[-1].y for line in bandwidth.lines if line.is_reference}
    assert references["8×H200"] == 475
    assert len(references) == 7
    assert not any(line.is_reference for line in latency.lines)


@pytest.mark.parametrize(
    "fields",
    [{"config": {"backend": "gloo"}}, {"world": World(ranks=4, shared_gpu=True)}],
    ids=["CPUs", "one GPU for all"],
)
def test_other_bandwidth_has_no_references(
    make_record: Callable[..., Record], fields: dict[str, object]
) -> None:
    bandwidth = charts.bandwidth(make_record(**fields))

    assert not any(line.is_reference for line in bandwidth.lines)
    assert bandwidth.title == "Bandwidth over size, not of hardware"
    assert bandwidth.note


def test_in_and_out_of_place_are_two_lines(make_record: Callable[..., Record]) -> None:
    run = make_record()
    out = [msgspec.structs.replace(point, in_place=False) for point in run.points]
    run = msgspec.structs.replace(run, points=[*run.points, *out])

    assert [line.label for line in charts.latency(run).lines] == [
        "all_reduce, in place",
        "all_reduce, out of place",
    ]


def test_scaling() -> None:
    throughput, efficiency = charts.build(scaling())

    assert [line.label for line in throughput.lines] == ["pytorchjob", "pytorchjob, nothing lost"]
    assert [dot.y for dot in throughput.lines[1].dots] == [100, 200]
    assert [dot.y for dot in efficiency.lines[0].dots] == [pytest.approx(100), pytest.approx(95)]
    assert throughput.note == ""
    assert "are not those of GPUs" in charts.throughput(scaling(backend="gloo")).note


def test_overhead(make_record: Callable[..., Record], make_config: Callable[..., RunConfig]) -> None:
    starts = [
        Start(manual, {}, make_record(busbw={1024: value}).points)
        for manual, value in ((True, 2.0), (False, 1.0), (False, 3.0))
    ]

    whole: dict[str, Any] = {"schema_version": VERSION, "state": "complete", "why": "", **WHERE}

    (chart,) = charts.build(Overhead(config=make_config(), starts=starts, **whole))

    assert [line.label for line in chart.lines] == ["all_reduce, by hand", "all_reduce, through the operator"]
    assert [line.dots[0].y for line in chart.lines] == pytest.approx([2 / 1.5, 2 / 1.5])


def test_without_points_there_are_no_charts(make_record: Callable[..., Record]) -> None:
    assert charts.build(make_record(points=[], config={"backend": "gloo"})) == []


def test_a_single_rank_has_no_bus_bandwidth(make_record: Callable[..., Record]) -> None:
    (only,) = charts.build(make_record(world=World(ranks=1)))

    assert only.title == "Time of a call over size"
