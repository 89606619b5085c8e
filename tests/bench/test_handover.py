"""Figures of a handover from audit log entries, and their table."""

from datetime import UTC, datetime, timedelta

import pytest

from bench import handover
from bench.figures import Spread, table
from rallypoint.testing.audit import Call

START = datetime(2026, 5, 1, tzinfo=UTC)


def call(user: str, verb: str, resource: str, name: str, ms: float, took_ms: float = 10) -> Call:
    received = START + timedelta(milliseconds=ms)
    return Call(user, verb, resource, "run", name, 201, received, received + timedelta(milliseconds=took_ms))


CALLS = [
    call("admin", "create", "pytorchjobs", "job-0", 0),
    call("first", "create", "pods", "job-0-worker-1", 30),
    call("first", "create", "pods", "job-0-master-0", 20),
    call("admin", "create", "pytorchjobs", "job-1", 100),
    call("first", "patch", "pytorchjobs", "job-0", 140),
    call("second", "create", "pods", "job-1-master-0", 400),
    call("second", "create", "pods", "job-1-worker-0", 410),
]


def test_figures() -> None:
    figures = handover.figures(CALLS, START + timedelta(milliseconds=110))

    assert figures == pytest.approx(
        {
            "end_to_last_write_ms": 40,  # until the answer
            "end_to_first_write_ms": 290,
            "without_writes_ms": 250,
            "longest_wait_ms": 310,  # of the second job; the first waited 30
        }
    )


def test_table() -> None:
    run = dict.fromkeys(handover.LABELS, 1.0)

    shown = table(
        "title", handover.LABELS, {"SIGTERM": [run, {**run, "without_writes_ms": 3.0}], "SIGKILL": [run]}
    )

    cells = [list(column.cells) for column in shown.columns]
    assert cells[0] == list(handover.LABELS.values())
    assert cells[1][2] == str(Spread(1, 2, 3))
    assert cells[2] == ["1"] * 4
