"""The page of metrics: in step with the table, and asking only for what there is."""

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


def test_what_is_kept_is_in_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_no_cell_breaks_its_table() -> None:
    for line in page().splitlines():
        if line.startswith("|"):
            assert line.replace("\\|", "").count("|") in {3, 4, 6}


@pytest.mark.parametrize("query", QUERIES.values(), ids=list(QUERIES))
def test_a_query_asks_for_what_there_is(query: str) -> None:
    asked = promql.metrics(query)

    assert asked
    assert asked <= SERIES.keys()
    assert promql.labels(query) - {"le"} <= set.union(*(SERIES[name] for name in asked))
