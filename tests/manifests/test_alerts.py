"""The alerts for prometheus-operator: they use existing metrics and describe the problem."""

import re
from typing import Any

import pytest

from controller.telemetry.metrics.families import GROUPS
from rallypoint.testing.manifests import build
from rallypoint.testing.service import MANIFESTS
from tests.support import promql

SERIES = {family.name: set(family.label_names) for group in GROUPS for family in group.families}
TARGET = {"namespace", "job", "instance"}
"""Labels that Prometheus or prometheus-operator adds to every series of a target."""
OWN = ("rallypoint_", "training_operator_")
"""How names of metrics begin that only this operator has."""
RUNBOOK = "https://rallypoint.example/docs/how-to/runbook.md"
"""The address of the runbook until an installation sets its own. The domain is reserved for examples."""


def rules() -> list[dict[str, Any]]:
    objects = build(MANIFESTS / "components" / "monitoring")
    (group,) = next(manifest for manifest in objects if manifest["kind"] == "PrometheusRule")["spec"][
        "groups"
    ]
    return list(group["rules"])


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_an_alert_uses_existing_metrics_and_labels(rule: dict[str, Any]) -> None:
    metrics = promql.metrics(rule["expr"])

    assert metrics
    assert promql.labels(rule["expr"]) - {"le"} <= labels_of(metrics) | TARGET


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_an_alert_recognizes_the_operator_by_its_metrics(rule: dict[str, Any]) -> None:
    """A nameSuffix, or another way of discovery, changes the label ``job``. Others have metrics of the same names."""
    shared = [name for name in promql.selected(rule["expr"]) if not name.startswith(OWN)]

    assert 'job="' not in rule["expr"]
    assert rule["expr"].count("and on (job, instance) rallypoint_build_info") == len(shared)


def test_each_alert_has_an_entry_in_the_runbook() -> None:
    page = (MANIFESTS.parent / "docs" / "how-to" / "runbook.md").read_text()
    entries = re.findall(r"^### (Training\w+)$", page, re.MULTILINE)

    assert entries == [rule["alert"] for rule in rules()]
    assert {rule["alert"]: rule["annotations"]["runbook_url"] for rule in rules()} == {
        entry: f"{RUNBOOK}#{entry.lower()}" for entry in entries
    }


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_an_alert_has_a_summary_and_a_severity(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
    named = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    is_aggregated = " by " in rule["expr"]
    there = promql.labels(rule["expr"]) if is_aggregated else labels_of(promql.metrics(rule["expr"]))
    assert named <= there, "or there is an empty place where a name should be"


def labels_of(series: set[str]) -> set[str]:
    return set[str]().union(*(SERIES[name.removesuffix("_bucket")] for name in series - {"up"}))
