"""The alerts for prometheus-operator: they use existing metrics and describe the problem."""

import re
from typing import Any

import pytest

from controller.telemetry.metrics.families import GROUPS
from rallypoint.testing.manifests import build
from rallypoint.testing.service import MANIFESTS
from tests.support import promql

SERIES = {family.name: set(family.label_names) for group in GROUPS for family in group.families}
TARGET = {"job", "instance"}
"""Labels that Prometheus adds to every series of a target."""


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
    assert rule["expr"].count('{job="training-operator"') >= len(metrics), (
        "others have metrics of the same name"
    )


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_an_alert_has_a_summary_and_a_severity(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert rule["annotations"].keys() == {"summary", "description"}
    named = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    is_aggregated = " by " in rule["expr"]
    there = promql.labels(rule["expr"]) if is_aggregated else labels_of(promql.metrics(rule["expr"]))
    assert named <= there, "or there is an empty place where a name should be"


def labels_of(series: set[str]) -> set[str]:
    return set[str]().union(*(SERIES[name.removesuffix("_bucket")] for name in series - {"up"}))
