"""Whether a pod fits on the node, and the message if not. Pure.

``cycle`` decides the order of pods, ``gangs`` which of them are scheduled together.

Source: Kubernetes, pkg/scheduler/framework/types.go, FitError: the messages. Differs: they have no
part about preemption.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeAlias

from rallypoint.local.manifest import Manifest
from rallypoint.local.node.pods.status import with_condition
from rallypoint.local.node.resources import Amounts, RequestsOf, insufficient, read, requests, subtract, total
from rallypoint.local.node.scheduler.filters import filter_reason

VolumeConflictCheck: TypeAlias = Callable[[Manifest], str]


def nothing(pod: Manifest) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """A pod that is not bound now, with the message of its scheduler."""

    pod: Manifest
    message: str
    reason: str = "Unschedulable"


@dataclass(slots=True)
class FreeResources:
    """The free resources of the node during a scheduling cycle."""

    node: Manifest
    left: Amounts
    volume_conflict: VolumeConflictCheck = nothing
    """Returns why a pod fits on no node, such as a missing claim; empty if nothing does."""

    requests_of: RequestsOf = requests

    @classmethod
    def after(
        cls,
        taken: Iterable[Manifest],
        node: Manifest,
        volume_conflict: VolumeConflictCheck = nothing,
        requests_of: RequestsOf = requests,
    ) -> "FreeResources":
        allocatable = read((node.get("status") or {}).get("allocatable"))
        return cls(node, subtract(allocatable, total(taken, requests_of)), volume_conflict, requests_of)

    def reasons(self, pod: Manifest) -> list[str]:
        """Return why the pod does not fit, as kube-scheduler words it; empty if it fits."""
        if reason := filter_reason(pod, self.node):
            return [reason]
        missing = insufficient(self.requests_of(pod), self.left)
        return ["Too many pods" if name == "pods" else f"Insufficient {name}" for name in missing]

    def take(self, pod: Manifest) -> None:
        self.left = subtract(self.left, self.requests_of(pod))

    def copy(self) -> "FreeResources":
        return replace(self)


def reserve(pod: Manifest, free: FreeResources) -> Unschedulable | None:
    """Reserve resources for a pod, or return why it does not fit."""
    if why := free.volume_conflict(pod):
        return Unschedulable(pod, before_any_node(why))
    if reasons := free.reasons(pod):
        return Unschedulable(pod, unavailable(reasons))
    free.take(pod)
    return None


def unavailable(reasons: Sequence[str]) -> str:
    return f"0/1 nodes are available: {counted(reasons)}."


def before_any_node(why: str) -> str:
    """Return the message of a PreFilter failure."""
    return f"0/1 nodes are available: {why}."


def counted(reasons: Sequence[str]) -> str:
    return ", ".join(sorted(f"1 {reason}" for reason in reasons))


def is_active(pod: Manifest) -> bool:
    """Return whether a bound pod still holds its resources."""
    return phase(pod) not in ("Succeeded", "Failed")


def phase(pod: Manifest) -> str:
    return str((pod.get("status") or {}).get("phase") or "Pending")


def is_waiting(pod: Manifest) -> bool:
    """Return whether a pod waits to be scheduled."""
    spec, meta = pod["spec"], pod["metadata"]
    return not (spec.get("nodeName") or spec.get("schedulingGates") or meta.get("deletionTimestamp"))


def unschedulable_condition(refused: Unschedulable, now: datetime) -> dict[str, Any]:
    """Return the PodScheduled condition of an unschedulable pod."""
    texts = {"reason": refused.reason, "message": refused.message}
    return with_condition(refused.pod, {"type": "PodScheduled", "status": "False", **texts}, now)


def order(manifest: Manifest, priority: int) -> tuple[int, str, str, str]:
    """Return the sort key of waiting pods and PodGroups."""
    meta = manifest["metadata"]
    return -priority, meta.get("creationTimestamp", ""), meta["namespace"], meta["name"]


def priority(pod: Mapping[str, Any]) -> int:
    return int(pod["spec"].get("priority") or 0)
