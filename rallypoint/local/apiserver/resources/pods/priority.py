"""The priority of a new pod, by the class that it names or by the one that is for all.

Source: Kubernetes, plugin/pkg/admission/priority/admission.go, pkg/apis/scheduling/validation/validation.go. Differs: a priority that the pod says itself counts, and
a class that does not exist is one like any other, because the manifest may be from a cluster that has it.
"""

from collections.abc import Iterable, Iterator

from rallypoint.local.apiserver.apimachinery import field_errors
from rallypoint.local.apiserver.apimachinery.field_errors import FieldError
from rallypoint.local.apiserver.apimachinery.unstructured import Json
from rallypoint.local.apiserver.resources.resource import Strategy

SYSTEM = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""Classes that every cluster has."""
CLASSES = "scheduling.k8s.io/priorityclasses"
"""The collection of the others."""
HIGHEST = 1_000_000_000
"""Of classes that people make."""


def with_priority(pod: Json, classes: Iterable[Json]) -> Json:
    spec = pod["spec"]
    chosen = _chosen(spec.get("priorityClassName", ""), list(classes))
    if chosen is not None:
        spec["priorityClassName"] = chosen["metadata"]["name"]
        spec["priority"] = chosen["value"]
        spec.setdefault("preemptionPolicy", chosen.get("preemptionPolicy") or "PreemptLowerPriority")
    spec.setdefault("priority", 0)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    return pod


def _chosen(name: str, classes: list[Json]) -> Json | None:
    if name in SYSTEM:
        return {"metadata": {"name": name}, "value": SYSTEM[name]}
    if name:
        return next((one for one in classes if one["metadata"]["name"] == name), None)
    defaults = [one for one in classes if one.get("globalDefault")]
    return min(defaults, key=lambda one: int(one["value"]), default=None)


def _problems(one: Json) -> Iterator[FieldError]:
    name = one["metadata"].get("name", "")
    if name.startswith("system-"):
        if name not in SYSTEM:
            detail = (
                "priority class names with 'system-' prefix are reserved for system use only. "
                f"error: {name} is not a known system priority class"
            )
            yield field_errors.forbidden("metadata.name", detail)
    elif one.get("value", 0) > HIGHEST:
        detail = f"maximum allowed value of a user defined priority is {HIGHEST}"
        yield field_errors.forbidden("value", detail)


STRATEGY = Strategy(validate=_problems)
