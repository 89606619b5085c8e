"""The tables of a report."""

import io
from typing import Any

from rich.console import Console

from bench.controlplane.report import GROWTH_LABELS, LABELS, LARGE_LABELS, START_LABELS, tables


def run(**changes: float) -> dict[str, Any]:
    return {
        **dict.fromkeys(LABELS, 10.0),
        "calls": 22,
        "calls_by_kind": {"create pods": 8},
        "refused": {},
        **changes,
    }


def jobs(**changes: Any) -> dict[str, Any]:
    return {
        "case": "1x8 full",
        "runs": [run(create_to_running_ms=value) for value in (90.0, 60.0, 66.0)],
        "baseline": [{"create_to_pods_running_ms": value} for value in (50.0, 40.0, 60.0)],
        **changes,
    }


def starts() -> dict[str, Any]:
    return {
        "case": "1000-finished full",
        "without": [dict.fromkeys(START_LABELS, 1.0)],
        "with": [dict.fromkeys(START_LABELS, 2.0)],
        "grown": dict.fromkeys(GROWTH_LABELS, 3.0),
        "callbacks": {"calls": 9, "cpu_ms": {"a": 4.0, "b": 3.0, "c": 2.0, "d": 1.0}},
    }


def shown(*results: dict[str, Any], brief: bool = False) -> str:
    file = io.StringIO()
    for table in tables(results, brief=brief):
        Console(file=file, width=200).print(table)
    return file.getvalue()


def row(text: str, label: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if label in line]
    return [cell.strip() for cell in line.split("│")[2:-1]]


def test_running_is_compared_with_the_pods_of_the_baseline_pair_by_pair() -> None:
    cells = row(shown(jobs()), LABELS["create_to_running_ms"])

    assert cells[1:] == ["60 / 66 / 90", "40 / 50 / 60", "1.50"]


def test_a_large_job_is_shown_beside_the_small_ones() -> None:
    runs = [
        {**dict.fromkeys(LARGE_LABELS, 1.0), "beside_create_to_pods_ms": value}
        for value in (70.0, 50.0, 60.0)
    ]
    result = {"case": "10000-large compact", "large": runs, "callbacks": {"calls": 1, "cpu_ms": {"a": 4.0}}}

    assert row(shown(result), LARGE_LABELS["beside_create_to_pods_ms"])[1:] == ["50 / 60 / 70"]
    assert row(shown(result), "4 a") == ["4 a"]


def test_a_figure_without_a_baseline_is_empty() -> None:
    assert row(shown(jobs()), LABELS["exit_to_succeeded_ms"])[1:] == ["10", "–", "–"]
    assert row(shown(jobs(baseline=[])), LABELS["create_to_running_ms"])[1:] == ["60 / 66 / 90", "–", "–"]


def test_a_figure_without_a_value_has_no_row() -> None:
    job_run = run()
    del job_run["create_to_succeeded_ms"]

    assert LABELS["create_to_succeeded_ms"] not in shown(jobs(runs=[job_run]))


def test_calls_are_listed_by_kind() -> None:
    assert row(shown(jobs()), "8 create pods")[-1] == "none"


def test_starts_are_shown_side_by_side() -> None:
    text = shown(starts())

    assert row(text, START_LABELS["start_to_first_pod_ms"])[1:] == ["1", "2"]
    assert row(text, GROWTH_LABELS["rss_after_mib"])[1:] == ["", "3"]


def test_three_callbacks_are_shown() -> None:
    assert row(shown(starts()), "4 a") == ["4 a, 3 b, 2 c"]


def test_targets_are_evaluated() -> None:
    assert row(shown(jobs()), " met ")[-3:] == ["38", "22", "met"]


def test_a_profile_is_shown_by_package_and_function() -> None:
    profile = {
        "samples": 9,
        "parts": {"aiohttp": 60.0},
        "own": {"write": 30.0, "read": 5.0},
        "inclusive": {"f": 50.0},
    }
    text = shown(jobs(profile=profile))

    assert row(text, "aiohttp") == ["60.0", "aiohttp", "30.0", "write", "50.0", "f"]
    assert row(text, "read") == ["", "", "5.0", "read", "", ""]


def test_the_summary_has_a_row_per_case() -> None:
    job_run = run(create_to_running_ms=60.0)
    del job_run["exit_to_succeeded_ms"]
    cells = row(
        shown(jobs(runs=[job_run], baseline=[{"create_to_pods_running_ms": 40.0}]), brief=True), "1.50"
    )

    assert cells == ["60", "–", "10", "10", "10", "10", "10", "40", "1.50", "–"]


def test_without_results_there_are_no_tables() -> None:
    assert shown() == ""
