"""Every query of every dashboard and every selector of every alert returns data in a real Prometheus."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from rallypoint.testing.service import MANIFESTS
from tests.support.monitoring.cluster import JOB, Loaded
from tests.support.monitoring.load import KINDS, NAMESPACES, TRAIN
from tests.support.monitoring.pictures import picture
from tests.support.monitoring.prometheus import alert_groups

FOLDER = MANIFESTS / "components" / "monitoring" / "dashboards"
DASHBOARDS = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
PICTURES = MANIFESTS.parent / "docs" / "images"
LARGEST_PICTURE_BYTES = 150_000
CHOICES = {"rallypoint-job": {"namespace": NAMESPACES[0], "job_name": TRAIN}}
"""What a user chooses; for other variables all values are chosen."""
_INTERVALS = {"$__rate_interval": "15s", "$__range": "5m", "[1h]": "[60s]"}
"""What Grafana, and a longer life of the cluster, would have in their place."""
_SELECTOR = re.compile(r"\b(?P<metric>[a-z]\w*_\w+)(?P<matchers>\{[^}]*\})?")


def queries() -> Iterator[Any]:
    for name, dashboard in DASHBOARDS.items():
        for panel in dashboard["panels"]:
            for target in panel.get("targets", ()):
                yield pytest.param(name, target["expr"], id=f"{name}: {panel['title']} {target['refId']}")


def filled(loaded: Loaded, name: str, expr: str) -> str:
    """Return the query with values for its variables, as Grafana fills them in."""
    for interval, value in _INTERVALS.items():
        expr = expr.replace(interval, value)
    for variable in DASHBOARDS[name]["templating"]["list"]:
        if variable["type"] == "query" and f"${variable['name']}" in expr:
            chosen = CHOICES.get(name, {}).get(variable["name"]) or "|".join(values(loaded, name, variable))
            expr = expr.replace(f"${variable['name']}", chosen)
    assert "$" not in re.sub(r'"\$1"', "", expr), "a variable is left"
    return expr


def values(loaded: Loaded, name: str, variable: Any) -> list[str]:
    return loaded.cluster.prometheus.label_values(filled(loaded, name, variable["query"]))


@pytest.mark.parametrize(("name", "expr"), list(queries()))
def test_a_query_returns_data(loaded: Loaded, name: str, expr: str) -> None:
    found = loaded.cluster.query_range(filled(loaded, name, expr), loaded.start, loaded.end)

    assert any(series.points for series in found)


def test_a_query_of_a_missing_metric_returns_nothing(loaded: Loaded) -> None:
    """Otherwise the test above could not fail."""
    assert loaded.cluster.query_range("rallypoint_missing", loaded.start, loaded.end) == []


def test_variables_offer_what_there_is(loaded: Loaded) -> None:
    offered = {
        (name, variable["name"]): values(loaded, name, variable)
        for name, dashboard in DASHBOARDS.items()
        for variable in dashboard["templating"]["list"]
        if variable["type"] == "query"
    }

    frameworks = {"jax", "mpi", "mxnet", "paddle", "pytorch", "tensorflow", "xgboost"}
    assert len(KINDS) == len(frameworks) + 1, "two versions of MPIJobs"
    assert offered["rallypoint-operator", "job"] == [JOB]
    assert set(offered["rallypoint-jobs", "framework"]) == frameworks
    assert offered["rallypoint-jobs", "namespace"] == list(NAMESPACES)
    assert offered["rallypoint-jobs", "resource"] == ["nvidia.com/gpu"]
    assert offered["rallypoint-job", "namespace"] == list(NAMESPACES)
    assert TRAIN in offered["rallypoint-job", "job_name"]


@pytest.mark.parametrize("rule", alert_groups()[0]["rules"], ids=lambda rule: str(rule["alert"]))
def test_an_alerts_selectors_return_data(loaded: Loaded, rule: dict[str, Any]) -> None:
    """An alert itself returns nothing as long as all is well. 429, 5xx and no answer are faults: no series has them yet."""
    outside_groupings = re.sub(r"\b(?:by|on)\s*\([^)]*\)", "", rule["expr"])
    for found in _SELECTOR.finditer(re.sub(r"\bhistogram_quantile\b", "", outside_groupings)):
        selector = found[0].replace(r'code=~"429|5..|<error>"', 'code=~"2.."')
        series = loaded.cluster.query_range(selector, loaded.start, loaded.end)
        assert any(item.points for item in series), selector


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_picture_shows_the_data(loaded: Loaded, name: str, request: pytest.FixtureRequest) -> None:
    data = [
        [
            (
                target["legendFormat"],
                loaded.cluster.query_range(filled(loaded, name, target["expr"]), loaded.start, loaded.end),
            )
            for target in panel.get("targets", ())
        ]
        for panel in DASHBOARDS[name]["panels"]
    ]

    drawn = picture(DASHBOARDS[name], data)

    assert len(drawn.encode()) < LARGEST_PICTURE_BYTES
    if request.config.getoption("write_pictures"):
        PICTURES.mkdir(exist_ok=True)
        (PICTURES / f"dashboard-{name.removeprefix('rallypoint-')}.svg").write_text(drawn)
