"""The priority of a new pod, by the class that it names or by the one that is for all.

Source: Kubernetes, plugin/pkg/admission/priority/admission.go. Differs: a priority that the pod says itself counts, and
a class that does not exist is one like any other, because the manifest may be from a cluster that has it.
"""

from collections.abc import Iterable

from controller.local.apiserver.refusals import Json

SYSTEM = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""Classes that every cluster has."""
CLASSES = "scheduling.k8s.io/priorityclasses"
"""The collection of the others."""


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
