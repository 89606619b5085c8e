"""Records as tables."""

from collections.abc import Callable
from typing import Any

import msgspec
from rich.table import Table

from bench.nccl.report import tables
from bench.nccl.schema import VERSION, Overhead, Record, RunConfig, Skipped, Start


def rows(table: Table) -> list[list[str]]:
    return [
        [str(cell) for cell in row] for row in zip(*(column.cells for column in table.columns), strict=True)
    ]


def test_points(make_record: Callable[..., Record]) -> None:
    record = make_record(busbw={1 << 20: 100.0}, state="partial")
    record = msgspec.structs.replace(record, points=[msgspec.structs.replace(record.points[0], wrong=None)])

    (table,) = tables.build(record)

    assert "PARTIAL" in str(table.title)
    ((collective, dtype, placement, size, time, algbw, busbw, wrong),) = rows(table)
    assert (collective, dtype, placement, size, wrong) == ("all_reduce", "float32", "in", "1M", "?")
    assert (time, algbw, busbw) == ("14.2 / 15.7 / 18.9", "66.7", "83.3 / 100 / 111")


def test_a_run_without_points_has_no_table(make_record: Callable[..., Record]) -> None:
    assert tables.build(make_record(points=[])) == []


def overhead(
    make_record: Callable[..., Record], config: RunConfig, ways: list[tuple[bool, float, float]]
) -> Overhead:
    fields: dict[str, Any] = {"started": "", "commit": {}, "environment": {}}
    starts = [
        Start(
            manual,
            {"process": first - 3, "torch": first - 1, "group": first - 0.5, "first": first},
            make_record(busbw={1024: busbw}).points,
        )
        for manual, first, busbw in ways
    ]
    return Overhead(schema_version=VERSION, state="complete", why="", config=config, starts=starts, **fields)


def test_the_steps_of_a_start(
    make_record: Callable[..., Record], make_config: Callable[..., RunConfig]
) -> None:
    starts, ratios = tables.build(
        overhead(
            make_record,
            make_config(),
            [(True, 5.0, 10.0), (False, 5.5, 11.0), (False, 6.5, 9.0), (True, 5.0, 10.0)],
        )
    )

    steps = {row[0]: row[1:] for row in rows(starts)}
    assert steps["start → process of the first rank"] == ["2", "2.5 / 3 / 3.5", "+1"]
    assert steps["→ torch imported"] == ["2", "2", "+0"]
    assert steps["start → first collective done"] == ["5", "5.5 / 6 / 6.5", "+1"]
    assert rows(ratios) == [["all_reduce", "float32", "1K", "1.000", "0.900 to 1.100"]]


def test_points_that_were_not_measured(make_record: Callable[..., Record]) -> None:
    skipped = [
        Skipped("all_reduce", "int8", in_place=True, why="no room", size_bytes=size)
        for size in (4 << 30, 8 << 30)
    ]

    assert tables.not_measured(make_record(skipped=skipped)) == [
        "all_reduce of int8, in place: no room (4G, 8G)"
    ]
