"""The tables of a comparison."""

from typing import Any

from rich.table import Table

from bench.controlplane.comparison import LOADER, SCENARIOS
from bench.controlplane.comparison_report import FIGURES, TARGETS, figures_table, operator_names, tables
from bench.controlplane.operators import GO, WORKING_TREE


def runs(*running_ms: float, **figures: float) -> list[dict[str, float]]:
    return [{"create_to_running_ms": value, **figures} for value in running_ms]


def result(case: str = "1x8", **changes: Any) -> dict[str, Any]:
    return {
        "case": case,
        "operators": {
            WORKING_TREE: runs(60.0, 100.0, 30.0, events_missing=0, controller_cpu_per_pod_ms=1.0),
            GO: runs(200.0, 100.0, 100.0, events_missing=4, controller_cpu_per_pod_ms=2.0),
        },
        "loader": [{"create_to_pods_running_ms": 50.0, "controller_cpu_per_pod_ms": 0.5}] * 3,
        **changes,
    }


def rows(table: Table) -> list[list[str]]:
    return [list(map(str, row)) for row in zip(*(column.cells for column in table.columns), strict=True)]


def headings(table: Table) -> list[str]:
    return [str(column.header) for column in table.columns]


def test_a_row_has_the_median_and_the_spread_of_each_operator_and_the_loader() -> None:
    figures, _, _ = tables([result()])

    assert headings(figures)[2:] == [WORKING_TREE, GO, LOADER]
    assert rows(figures)[0] == [
        "1x8",
        FIGURES["create_to_running_ms"],
        "60 (30 to 100)",
        "100 (100 to 200)",
        "50",
    ]
    assert rows(figures)[2][1:] == [FIGURES["events_missing"], "0", "4", ""]


def test_ratios_are_those_of_the_same_round() -> None:
    """0.3, 1 and 0.3. The ratio of the medians would be 0.6."""
    _, ratios, _ = tables([result()])

    assert headings(ratios)[2:] == [f"{WORKING_TREE} ÷ {GO}", f"{WORKING_TREE} ÷ {LOADER}"]
    assert rows(ratios) == [
        ["1x8", FIGURES["create_to_running_ms"], "0.30 (0.30 to 1.00)", "1.20 (0.60 to 2.00)"],
        ["", FIGURES["controller_cpu_per_pod_ms"], "0.50 (0.50 to 0.50)", "2.00 (2.00 to 2.00)"],
    ]


def test_an_unfinished_round_and_a_figure_of_one_operator_alone_are_shown() -> None:
    """The Go operators may never show a quick job as Running, and an error may have ended the last round."""
    quick = result("200x2-quick", loader=[])
    quick["operators"][GO] = [{"create_to_succeeded_ms": 100.0}]

    figures, ratios, _ = tables([quick])

    assert rows(figures)[0][2:] == ["60 (30 to 100)", "", ""]
    assert rows(figures)[1][1:] == [FIGURES["create_to_succeeded_ms"], "", "100", ""]
    assert rows(ratios) == []


def test_operators_with_flags_are_compared_with_the_loader_too() -> None:
    compact = "HEAD --events=compact"
    case = result()
    case["operators"][compact] = runs(25.0, 25.0, 25.0)

    _, ratios, _ = tables([case])

    assert headings(ratios)[2:] == [
        f"{WORKING_TREE} ÷ {GO}",
        f"{WORKING_TREE} ÷ {compact}",
        f"{WORKING_TREE} ÷ {LOADER}",
        f"{compact} ÷ {LOADER}",
    ]
    assert rows(ratios)[0][-1] == "0.50 (0.50 to 0.50)"


def test_targets_are_met_or_missed_by_the_median() -> None:
    idle = {
        "case": "idle",
        "operators": {WORKING_TREE: [{"rss_idle_mib": 54.0, "rss_by_hand_mib": 71.0}]},
        "loader": [],
    }

    _, _, targets = tables([idle, result()])

    assert rows(targets) == [
        ["1x8", "create → Running in status, ms, ÷ go", "0.7", "0.3", "met"],
        ["idle", "RSS idle, MiB", "55", "54", "met"],
        ["idle", "RSS idle, started by a kubeconfig, MiB", "70", "71", "missed"],
    ]


def test_every_target_has_a_default_case() -> None:
    assert {target.case for target in TARGETS} <= {*SCENARIOS, "idle", "idle-mpi"}


def test_operators_keep_the_order_of_their_first_round() -> None:
    cases = [
        result(operators={"a": runs(1.0), "b": runs(1.0)}),
        result(operators={"b": runs(1.0), "a": runs(1.0)}),
    ]

    assert operator_names(cases) == ["a", "b"]
    assert headings(figures_table(cases, ["a", "b"]))[2:] == ["a", "b", LOADER]
