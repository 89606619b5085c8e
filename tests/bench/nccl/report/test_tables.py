"""Records in a terminal."""

from collections.abc import Callable
from typing import Any

import msgspec
from rich.table import Table

from bench.nccl.report import tables
from bench.nccl.schema import VERSION, Asked, Overhead, Record, Skipped, Start


def rows(table: Table) -> list[list[str]]:
    return [
        [str(cell) for cell in row] for row in zip(*(column.cells for column in table.columns), strict=True)
    ]


def test_points(record: Callable[..., Record]) -> None:
    made = record(busbw={1 << 20: 100.0}, state="partial")
    made = msgspec.structs.replace(made, points=[msgspec.structs.replace(made.points[0], wrong=None)])

    (table,) = tables.of(made)

    assert "PARTIAL" in str(table.title)
    ((collective, dtype, place, size, time, algbw, busbw, wrong),) = rows(table)
    assert (collective, dtype, place, size, wrong) == ("all_reduce", "float32", "in", "1M", "?")
    assert (time, algbw, busbw) == ("14.2 / 15.7 / 18.9", "66.7", "83.3 / 100 / 111")


def test_a_partial_run_of_nothing(record: Callable[..., Record]) -> None:
    assert tables.of(record(points=[])) == []


def overhead(record: Callable[..., Record], asked: Asked, ways: list[tuple[bool, float, float]]) -> Overhead:
    fields: dict[str, Any] = {"started": "", "commit": {}, "environment": {}}
    starts = [
        Start(
            by_hand,
            {"process": first - 3, "torch": first - 1, "group": first - 0.5, "first": first},
            record(busbw={1024: busbw}).points,
        )
        for by_hand, first, busbw in ways
    ]
    return Overhead(schema_version=VERSION, state="complete", why="", asked=asked, starts=starts, **fields)


def test_where_a_start_spends_its_time(record: Callable[..., Record], asked: Callable[..., Asked]) -> None:
    starts, ratios = tables.of(
        overhead(
            record, asked(), [(True, 5.0, 10.0), (False, 5.5, 11.0), (False, 6.5, 9.0), (True, 5.0, 10.0)]
        )
    )

    steps = {row[0]: row[1:] for row in rows(starts)}
    assert steps["asked for → process of the first rank"] == ["2", "2.5 / 3 / 3.5", "+1"]
    assert steps["→ torch imported"] == ["2", "2", "+0"]
    assert steps["asked for → first collective done"] == ["5", "5.5 / 6 / 6.5", "+1"]
    assert rows(ratios) == [["all_reduce", "float32", "1K", "1.000", "0.900 to 1.100"]]


def test_what_was_not_measured(record: Callable[..., Record]) -> None:
    skipped = [
        Skipped("all_reduce", "int8", in_place=True, why="no room", size_bytes=size)
        for size in (4 << 30, 8 << 30)
    ]

    assert tables.not_measured(record(skipped=skipped)) == ["all_reduce of int8, in place: no room (4G, 8G)"]
