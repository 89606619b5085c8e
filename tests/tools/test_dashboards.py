"""The dashboards in ``manifests``: up to date with their source, and with queries of existing metrics only.

tests/monitoring evaluates the queries in a real Prometheus, and checks the JSON against Grafana's schema.
"""

import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest
import yaml

from controller.telemetry.metrics.families import GROUPS
from controller.telemetry.metrics.jobs import FAILURE_REASONS, STATES
from rallypoint.testing.manifests import build
from tests.support import promql
from tools.dashboards.__main__ import DASHBOARDS, FOLDER, main
from tools.dashboards.grafana import COLORS, COLUMNS, Dashboard, Query
from tools.dashboards.job import JOB
from tools.dashboards.jobs import JOBS
from tools.dashboards.operator import OPERATOR

SERIES = {
    name: set(family.label_names)
    for group in GROUPS
    for family in group.families
    for name in ([f"{family.name}_bucket"] if family.type == "histogram" else [family.name])
}
LARGEST_BYTES = 250_000
"""Client-side apply stores an object in an annotation, of which 256 KiB is the limit."""


def queries() -> Iterator[str]:
    for dashboard in DASHBOARDS:
        if dashboard is not JOB:
            yield from (query.expr for panel in dashboard.panels for query in panel.queries)


def test_the_dashboards_are_up_to_date(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """If this fails, run ``make manifests``."""
    assert main([str(tmp_path)]) == 0

    written = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert written == {path.name: path.read_text() for path in FOLDER.iterdir()}
    assert capsys.readouterr().out.split() == [str(tmp_path / f"{item.name}.json") for item in DASHBOARDS]


def test_a_config_map_of_each_dashboard_has_the_sidecars_label() -> None:
    maps = [document for document in build(FOLDER.parent) if document["kind"] == "ConfigMap"]

    assert {name: text for item in maps for name, text in item["data"].items()} == {
        path.name: path.read_text() for path in FOLDER.iterdir()
    }
    for item in maps:
        assert item["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert len(yaml.safe_dump(item)) < LARGEST_BYTES


@pytest.mark.parametrize("expr", dict.fromkeys(queries()))
def test_a_query_uses_existing_metrics_and_labels(expr: str) -> None:
    used = promql.metrics(expr)

    assert used <= SERIES.keys()
    assert promql.labels(expr) - {"le"} <= set.union(*(SERIES[name] for name in used)) | {
        "namespace",
        "job",
        "instance",
    }


@pytest.mark.parametrize("query", [query for panel in OPERATOR.panels for query in panel.queries])
def test_a_query_about_the_operator_omits_other_programs(query: Query) -> None:
    """They may have the same metrics, and the same scrape job."""
    shared = [name for name in promql.selected(query.expr) if not name.startswith("rallypoint_")]

    assert query.expr.count("and on (job, instance) rallypoint_build_info") == len(shared)


def test_a_namespace_leads_to_its_jobs() -> None:
    panels = [
        panel
        for panel in JOBS.to_json()["panels"]
        if "links" in panel.get("fieldConfig", {}).get("defaults", ())
    ]

    assert [panel["title"] for panel in panels] == [
        "Goodput by namespace",
        "Longest wait for pods, by namespace",
        "Pending jobs by namespace",
    ]
    for panel in panels:
        (link,) = panel["fieldConfig"]["defaults"]["links"]
        (label,) = re.findall(r"\$\{__field\.labels\.(\w+)\}", link["url"])
        assert panel["targets"][0]["legendFormat"] == f"{{{{{label}}}}}"
        assert link["url"].startswith(f"/d/{JOB.to_json()['uid']}?var-{JOB.variables[0].name}=")


def test_states_have_a_color_in_graphs() -> None:
    graphs = {panel["title"]: panel for panel in JOBS.to_json()["panels"] if panel["type"] == "timeseries"}

    assert set(STATES) <= COLORS["state"].keys()
    assert set(FAILURE_REASONS) - {"other"} <= COLORS["reason"].keys()
    for title, name in (
        ("Active jobs by state", "running"),
        ("Jobs failed in the last hour, by reason", "oom"),
        ("Jobs created and ended in the last hour", "failed"),
    ):
        assert name in [item["matcher"]["options"] for item in graphs[title]["fieldConfig"]["overrides"]]


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: str(dashboard.name))
def test_panels_have_a_number_a_place_and_a_title_of_their_own(dashboard: Dashboard) -> None:
    panels = dashboard.to_json()["panels"]
    places = [panel["gridPos"] for panel in panels]

    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(place["x"] + place["w"] <= COLUMNS for place in places)
    for place, other in combinations(places, 2):
        assert (
            place["x"] + place["w"] <= other["x"]
            or other["x"] + other["w"] <= place["x"]
            or place["y"] + place["h"] <= other["y"]
            or other["y"] + other["h"] <= place["y"]
        )
    for row in dashboard.rows:
        assert len({(panel.title, panel.type) for panel in row.panels}) == len(row.panels)
