"""Pod priority: the PriorityClass of a new pod, or the global default.

Source: Kubernetes, plugin/pkg/admission/priority/admission.go, pkg/apis/scheduling/validation/validation.go.

Differs: a pod keeps the priority in its manifest, and an unknown class is accepted, because the manifest may come from
a cluster that has it.
"""

from collections.abc import Iterable, Iterator

from rallypoint.local.apiserver.apimachinery import field_errors
from rallypoint.local.apiserver.apimachinery.field_errors import FieldError
from rallypoint.local.apiserver.apimachinery.unstructured import Json
from rallypoint.local.apiserver.resources.resource import Strategy

SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""The built-in classes."""
COLLECTION = "scheduling.k8s.io/priorityclasses"
"""The collection of the user-defined classes."""
HIGHEST_USER_VALUE = 1_000_000_000
"""The maximum value of a user-defined class."""


def with_priority(pod: Json, classes: Iterable[Json]) -> Json:
    spec = pod["spec"]
    priority_class = _find_class(spec.get("priorityClassName", ""), list(classes))
    if priority_class is not None:
        spec["priorityClassName"] = priority_class["metadata"]["name"]
        spec["priority"] = priority_class["value"]
        spec.setdefault("preemptionPolicy", priority_class.get("preemptionPolicy") or "PreemptLowerPriority")
    spec.setdefault("priority", 0)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    return pod


def _find_class(name: str, classes: list[Json]) -> Json | None:
    if name in SYSTEM_CLASSES:
        return {"metadata": {"name": name}, "value": SYSTEM_CLASSES[name]}
    if name:
        return next(
            (priority_class for priority_class in classes if priority_class["metadata"]["name"] == name), None
        )
    defaults = [priority_class for priority_class in classes if priority_class.get("globalDefault")]
    return min(defaults, key=lambda priority_class: int(priority_class["value"]), default=None)


def _validate(priority_class: Json) -> Iterator[FieldError]:
    name = priority_class["metadata"].get("name", "")
    if name.startswith("system-"):
        if name not in SYSTEM_CLASSES:
            detail = (
                "priority class names with 'system-' prefix are reserved for system use only. "
                f"error: {name} is not a known system priority class"
            )
            yield field_errors.forbidden("metadata.name", detail)
    elif priority_class.get("value", 0) > HIGHEST_USER_VALUE:
        detail = f"maximum allowed value of a user defined priority is {HIGHEST_USER_VALUE}"
        yield field_errors.forbidden("value", detail)
    if priority_class.get("preemptionPolicy") == "":
        yield field_errors.required("preemptionPolicy")


STRATEGY = Strategy(validate=_validate)
