"""The filters of the scheduler beside resources."""

from typing import Any

import pytest

from rallypoint.local.node.scheduler.filters import filter_reason

AFFINITY = "node(s) didn't match Pod's node affinity/selector"


def node(labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "local", "labels": labels or {}}, "spec": spec}


def pod(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": spec}


def term(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return pod(affinity={"nodeAffinity": required})


def named(name: str) -> dict[str, Any]:
    return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}


@pytest.mark.parametrize(
    ("manifest", "there", "expected"),
    [
        pytest.param(pod(), node(), "", id="nothing asked"),
        pytest.param(pod(nodeSelector={"a": "b"}), node({"a": "b"}), "", id="a selector that matches"),
        pytest.param(pod(nodeSelector={"a": "b"}), node({"a": "c"}), AFFINITY, id="a selector that does not"),
        pytest.param(affinity(term("a", "In", "b", "c")), node({"a": "c"}), "", id="In"),
        pytest.param(affinity(term("a", "In", "b")), node(), AFFINITY, id="In without the label"),
        pytest.param(affinity(term("a", "NotIn", "b")), node(), "", id="NotIn without the label"),
        pytest.param(affinity(term("a", "NotIn", "b")), node({"a": "b"}), AFFINITY, id="NotIn"),
        pytest.param(affinity(term("a", "Exists")), node({"a": ""}), "", id="Exists"),
        pytest.param(affinity(term("a", "DoesNotExist")), node({"a": ""}), AFFINITY, id="DoesNotExist"),
        pytest.param(affinity(term("a", "Gt", "3")), node({"a": "4"}), "", id="Gt"),
        pytest.param(affinity(term("a", "Lt", "3")), node({"a": "4"}), AFFINITY, id="Lt"),
        pytest.param(affinity(term("a", "Gt", "3")), node({"a": "many"}), AFFINITY, id="Gt of no number"),
        pytest.param(affinity({}), node(), AFFINITY, id="a term that asks nothing"),
        pytest.param(affinity(term("a", "Exists"), named("local")), node(), "", id="one of two terms"),
        pytest.param(
            affinity(named("else")), node(), "node(s) didn't satisfy plugin(s) [NodeAffinity]", id="by name"
        ),
    ],
)
def test_affinity(manifest: dict[str, Any], there: dict[str, Any], expected: str) -> None:
    assert filter_reason(manifest, there) == expected


TAINT = {"key": "k", "value": "v", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("tolerations", "taint", "keeps_away"),
    [
        pytest.param([], TAINT, True, id="none"),
        pytest.param([{"key": "k", "value": "v"}], TAINT, False, id="equal"),
        pytest.param([{"key": "k", "value": "w"}], TAINT, True, id="another value"),
        pytest.param([{"key": "k", "operator": "Exists"}], TAINT, False, id="any value"),
        pytest.param([{"operator": "Exists"}], TAINT, False, id="everything"),
        pytest.param([{"operator": "Exists", "effect": "NoExecute"}], TAINT, True, id="another effect"),
        pytest.param([], {**TAINT, "effect": "PreferNoSchedule"}, False, id="a mere wish"),
    ],
)
def test_taints(tolerations: list[dict[str, str]], taint: dict[str, str], keeps_away: bool) -> None:
    why = filter_reason(pod(tolerations=tolerations), node(taints=[taint]))

    assert why == ("node(s) had untolerated taint(s)" if keeps_away else "")


def test_a_cordoned_node() -> None:
    tolerant = pod(tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}])

    assert filter_reason(pod(), node(unschedulable=True)) == "node(s) were unschedulable"
    assert filter_reason(tolerant, node(unschedulable=True)) == ""
