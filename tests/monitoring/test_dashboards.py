"""Every query of every dashboard and every selector of every alert returns data in a real Prometheus."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from rallypoint.testing.service import MANIFESTS
from tests.support.monitoring.cluster import JOB, Loaded
from tests.support.monitoring.load import EVICTED, GPU, KINDS, NAMESPACES, RDMA, TRAIN
from tests.support.monitoring.pictures import picture
from tests.support.monitoring.prometheus import Object, Series, alert_groups
from tests.support.running_jobs import MPI_V2BETA1

FOLDER = MANIFESTS / "components" / "monitoring" / "dashboards"
DASHBOARDS = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
PICTURES = MANIFESTS.parent / "docs" / "images"
LARGEST_PICTURE_BYTES = 150_000
CHOICES = {
    "rallypoint-job": {"namespace": NAMESPACES[0], "job_name": TRAIN, "kind": "pytorchjob-controller"},
    "rallypoint-jobs": {"resource": GPU},
}
"""What a user chooses; for other variables all values are chosen."""
_INTERVALS = {"$__rate_interval": "15s", "$__range": "5m", "[1h]": "[60s]", "offset 1h": "offset 60s"}
"""What Grafana, and a longer life of the cluster, would have in their place."""
_SELECTOR = re.compile(r"\b(?P<metric>[a-z]\w*_\w+)(?P<matchers>\{[^}]*\})?")


def queries() -> Iterator[Any]:
    for name, dashboard in DASHBOARDS.items():
        for panel in dashboard["panels"]:
            for target in panel.get("targets", ()):
                yield pytest.param(name, panel, target, id=f"{name}: {panel['title']} {target['refId']}")


def filled(loaded: Loaded, name: str, expr: str, **choices: str) -> str:
    """Return the query with values for its variables, as Grafana fills them in."""
    for interval, value in _INTERVALS.items():
        expr = expr.replace(interval, value)
    choices = CHOICES.get(name, {}) | choices
    for variable in DASHBOARDS[name]["templating"]["list"]:
        if variable["type"] == "query" and f"${variable['name']}" in expr:
            chosen = choices.get(variable["name"]) or "|".join(values(loaded, name, variable))
            expr = expr.replace(f"${variable['name']}", chosen)
    assert "$" not in re.sub(r'"\$1"', "", expr), "a variable is left"
    return expr


def shown(loaded: Loaded, name: str, target: Object, **choices: str) -> list[Series]:
    """Return what the query returns: over the period, or at its end if Grafana asks for that only."""
    start = loaded.end if target["instant"] else loaded.start
    return loaded.cluster.query_range(filled(loaded, name, target["expr"], **choices), start, loaded.end)


def shown_in(loaded: Loaded, name: str, title: str, **choices: str) -> list[Series]:
    """Return what the first query of a panel returns."""
    panel = next(panel for panel in reversed(DASHBOARDS[name]["panels"]) if panel["title"] == title)
    return shown(loaded, name, panel["targets"][0], **choices)


def values(loaded: Loaded, name: str, variable: Any) -> list[str]:
    return loaded.cluster.prometheus.label_values(filled(loaded, name, variable["query"]))


@pytest.mark.parametrize(("name", "panel", "target"), list(queries()))
def test_a_query_returns_data(loaded: Loaded, name: str, panel: Object, target: Object) -> None:
    """Also the labels that name its series, or the columns and rows of its table."""
    found = [series for series in shown(loaded, name, target) if series.points]
    named = re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])
    columns = set[str]()
    for change in panel.get("transformations", ()):
        if change["id"] == "groupingToMatrix":
            named += [change["options"]["columnField"], change["options"]["rowField"]]
        else:
            columns |= change["options"]["indexByName"].keys()

    assert found
    for series in found:
        assert all(series.labels.get(label) for label in named), series.labels
        assert not columns or series.labels.keys() <= columns, series.labels


def test_failures_have_their_reasons(loaded: Loaded) -> None:
    found = shown_in(loaded, "rallypoint-jobs", "Failed jobs by namespace and reason")

    failed = {(item.labels["job_namespace"], item.labels["reason"]) for item in found if item.points[-1][1]}
    assert {(NAMESPACES[0], "evicted"), (NAMESPACES[1], "deadline"), (NAMESPACES[1], "error")} <= failed


def test_an_amount_is_that_of_the_chosen_resource(loaded: Loaded) -> None:
    """The suspended job requests other resources, too: 8 GPUs in each of 3 pods, and one adapter."""
    amounts = {
        resource: [
            item.points[-1][1]
            for item in shown_in(loaded, "rallypoint-jobs", "Requested by suspended jobs", resource=resource)
        ]
        for resource in (GPU, RDMA)
    }

    assert amounts == {GPU: [24], RDMA: [3]}


def test_the_dashboard_of_a_job_says_why_pods_do_not_run(loaded: Loaded) -> None:
    def reasons(title: str, job: str) -> set[str]:
        found = shown_in(loaded, "rallypoint-job", title, job_name=job)
        return {item.labels["reason"] for item in found if item.points}

    assert reasons("Why pods do not run", TRAIN) == {"ImagePullBackOff", "Unschedulable"}
    assert reasons("How containers and pods ended", TRAIN) == {"OOMKilled"}
    assert reasons("How containers and pods ended", EVICTED) == {"Error", "Evicted"}


def test_pods_have_their_phase_and_node(loaded: Loaded) -> None:
    found = shown_in(loaded, "rallypoint-job", "Pods")

    assert sorted(item.labels["phase"] for item in found) == ["Pending", "Pending", "Running", "Running"]
    assert all(item.labels["node"] for item in found)


def test_jobs_of_two_kinds_with_the_same_name_are_shown_apart(loaded: Loaded) -> None:
    pods = {
        kind: {item.labels["pod"] for item in shown_in(loaded, "rallypoint-job", "Pods", kind=kind)}
        for kind in ("pytorchjob-controller", "tfjob-controller")
    }

    workers = {f"{TRAIN}-worker-{number}" for number in range(3)}
    assert pods == {
        "pytorchjob-controller": {f"{TRAIN}-master-0", *workers},
        "tfjob-controller": {f"{TRAIN}-chief-0"},
    }


def test_each_pod_of_a_job_has_a_kind(loaded: Loaded) -> None:
    labels = "label_training_kubeflow_org_"
    expr = f"group by ({labels}operator_name) (kube_pod_labels{{{labels}job_name!=''}})"
    found = loaded.cluster.query_range(expr, loaded.start, loaded.end)

    assert {item.labels.get(f"{labels}operator_name") for item in found} == {
        "jaxjob-controller",
        "mpi-operator",
        "mpijob-controller",
        "mxjob-controller",
        "paddlejob-controller",
        "pytorchjob-controller",
        "tfjob-controller",
        "xgboostjob-controller",
    }


def test_pods_of_a_v2beta1_mpijob_have_roles(loaded: Loaded) -> None:
    number = KINDS.index(MPI_V2BETA1)
    found = shown_in(
        loaded,
        "rallypoint-job",
        "Ready pods by role",
        namespace=NAMESPACES[number % 2],
        job_name=f"mpijob-{number}",
        kind="mpi-operator",
    )

    assert {item.labels["role"] for item in found} == {"launcher", "worker"}


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
    assert offered["rallypoint-jobs", "resource"] == [GPU, RDMA]
    assert offered["rallypoint-job", "namespace"] == list(NAMESPACES)
    assert TRAIN in offered["rallypoint-job", "job_name"]
    assert offered["rallypoint-job", "kind"] == ["pytorchjob-controller", "tfjob-controller"]


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
                shown(loaded, name, target),
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
