"""The page of metrics: up to date with the table, and with queries of existing metrics only."""

from pathlib import Path

import pytest

from controller.telemetry.metrics.families import GROUPS
from tests.support import promql
from tools.metrics_page import PAGE, QUERIES, main, page

SERIES = {
    name: set(family.label_names)
    for group in GROUPS
    for family in group.families
    for name in (
        [f"{family.name}_{end}" for end in ("bucket", "sum", "count")]
        if family.type == "histogram"
        else [family.name]
    )
}


def test_the_page_is_up_to_date(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """If this fails, run ``make docs``."""
    file = tmp_path / "metrics.md"

    assert main([str(file)]) == 0
    assert file.read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8")
    assert capsys.readouterr().out == f"{file}\n"


def test_every_metric_and_every_label_is_on_the_page() -> None:
    text = page()

    for group in GROUPS:
        for family in group.families:
            assert f"| `{family.name}` |" in text
            for label in family.labels:
                assert f"| `{label.name}` | " in text
                assert all(f"`{value}`" in text for value in label.values)


def test_labels_of_one_name_with_several_meanings_name_their_metrics() -> None:
    rows = [line.split(" | ")[:2] for line in page().splitlines() if line.startswith("| `")]
    found = [cells[1] for cells in rows if cells[0] == "| `state`"]

    assert found == [
        "`rallypoint_jobs`",
        "`rallypoint_job_replicas`",
        "`rallypoint_job_requested_resources`",
    ]


def test_cells_do_not_break_the_table() -> None:
    for line in page().splitlines():
        if line.startswith("|"):
            assert line.replace("\\|", "").count("|") in {3, 4, 6}


@pytest.mark.parametrize("query", QUERIES.values(), ids=list(QUERIES))
def test_a_query_uses_existing_metrics_and_labels(query: str) -> None:
    used = promql.metrics(query)

    assert used
    assert used <= SERIES.keys()
    assert promql.labels(query) - {"le"} <= set.union(*(SERIES[name] for name in used))
