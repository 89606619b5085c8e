"""Node filters: unschedulable, taints, node affinity and node selector. Pure.

The one node replaces as many as a job needs, so pod affinity, topology spread and host ports are ignored.

Source: Kubernetes, pkg/scheduler/framework/plugins (nodeunschedulable, tainttoleration, nodeaffinity): order and texts.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from rallypoint.local.manifest import Manifest

UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
_FILTERING_EFFECTS = ("NoSchedule", "NoExecute")


def filter_reason(pod: Manifest, node: Manifest) -> str:
    """Return why this node is filtered out for this pod; empty if it is not."""
    spec = node.get("spec") or {}
    cordon = {"key": UNSCHEDULABLE, "effect": "NoSchedule"}
    if spec.get("unschedulable") and not _is_tolerated(cordon, pod):
        return "node(s) were unschedulable"
    taints = [taint for taint in spec.get("taints") or () if taint.get("effect") in _FILTERING_EFFECTS]
    if not all(_is_tolerated(taint, pod) for taint in taints):
        return "node(s) had untolerated taint(s)"
    return _affinity_mismatch(pod, node)


def _is_tolerated(taint: Mapping[str, Any], pod: Manifest) -> bool:
    return any(_tolerates(toleration, taint) for toleration in pod["spec"].get("tolerations") or ())


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    same_value = (toleration.get("value") or "") == (taint.get("value") or "")
    return toleration.get("operator") == "Exists" or (bool(toleration.get("key")) and same_value)


def _affinity_mismatch(pod: Manifest, node: Manifest) -> str:
    labels = node["metadata"].get("labels") or {}
    fields = {"metadata.name": node["metadata"]["name"]}
    terms = _terms(pod)
    selector = pod["spec"].get("nodeSelector") or {}
    if terms and not any(_all_match(term.get("matchFields"), fields) for term in terms):
        return "node(s) didn't satisfy plugin(s) [NodeAffinity]"
    chosen = all(labels.get(key) == value for key, value in selector.items())
    if chosen and (terms is None or any(_matches(term, labels, fields) for term in terms)):
        return ""
    return "node(s) didn't match Pod's node affinity/selector"


def _terms(pod: Manifest) -> list[Mapping[str, Any]] | None:
    """Return the required terms of the node affinity; None without required affinity."""
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return None if required is None else list(required.get("nodeSelectorTerms") or ())


def _matches(term: Mapping[str, Any], labels: Mapping[str, str], fields: Mapping[str, str]) -> bool:
    """A term without any requirement matches nothing."""
    expressions, about_fields = term.get("matchExpressions"), term.get("matchFields")
    has_requirements = bool(expressions or about_fields)
    return has_requirements and _all_match(expressions, labels) and _all_match(about_fields, fields)


def _all_match(requirements: Iterable[Mapping[str, Any]] | None, values: Mapping[str, str]) -> bool:
    return all(_match(requirement, values.get(requirement["key"])) for requirement in requirements or ())


def _match(requirement: Mapping[str, Any], value: str | None) -> bool:
    listed = requirement.get("values") or []
    match requirement["operator"]:
        case "In":
            return value in listed
        case "NotIn":
            return value not in listed
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            return _is_beyond(operator, value or "", listed)
        case _:
            return False


def _is_beyond(operator: str, value: str, bounds: list[str]) -> bool:
    """Return whether an integer is above or below the bound; False for invalid values."""
    try:
        number, (bound,) = int(value), map(int, bounds)
    except ValueError:
        return False
    return number > bound if operator == "Gt" else number < bound
