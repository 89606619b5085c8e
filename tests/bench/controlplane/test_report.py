"""The table that a person reads."""

import io
from typing import Any

from rich.console import Console

from bench.controlplane.report import LABELS, calls, table


def result(**changes: Any) -> dict[str, Any]:
    life = dict.fromkeys(LABELS, 10.0) | {"calls": 22, "calls_by_kind": {"create pods": 8}, "refused": {}}
    return {
        "scenario": "1x8",
        "runs": [life | {"create_to_running_ms": value} for value in (90.0, 60.0, 66.0)],
        "floor": [{"create_to_pods_running_ms": value} for value in (50.0, 40.0, 60.0)],
        **changes,
    }


def shown(renderable: object) -> str:
    file = io.StringIO()
    Console(file=file, width=160).print(renderable)
    return file.getvalue()


def row(text: str, label: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if label in line]
    return [cell.strip() for cell in line.split("│")[2:-1]]


def test_running_is_held_against_the_pods_of_the_floor() -> None:
    cells = row(shown(table([result()])), LABELS["create_to_running_ms"])

    assert cells[1:] == ["60 / 66 / 90", "40 / 50 / 60", "1.32"]


def test_what_the_floor_does_not_have_is_left_empty() -> None:
    assert row(shown(table([result()])), LABELS["exit_to_succeeded_ms"])[1:] == ["10", "–", "–"]


def test_calls_are_listed_by_kind() -> None:
    text = shown(calls([result()]))

    assert "8 create pods" in text
    assert "none" in text
