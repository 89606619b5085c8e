"""Whether a pod gets a place on the node, and what is said of it if not. Pure.

In which order pods are asked about, and which of them only together, is decided by ``session``.

Source: Kubernetes, pkg/scheduler/framework/types.go, FitError: the words. Differs: they do not go on with what
preemption could have done.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeAlias

from rallypoint.local.manifest import Manifest
from rallypoint.local.node.capacity import Amounts, Asked, lacking, less, read, requests, sum_of
from rallypoint.local.node.pods.status import with_condition
from rallypoint.local.node.scheduler.filters import objection

Hindrance: TypeAlias = Callable[[Manifest], str]


def nothing(pod: Manifest) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Held:
    """A pod that is not bound now, in the words of its scheduler."""

    pod: Manifest
    message: str
    reason: str = "Unschedulable"


@dataclass(slots=True)
class Room:
    """What is left of a node while pods are placed on it."""

    node: Manifest
    left: Amounts
    hindrance: Hindrance = nothing
    """What stands in a pod's way whatever the node, such as a claim that does not exist."""

    asked: Asked = requests

    @classmethod
    def beside(
        cls,
        taken: Iterable[Manifest],
        node: Manifest,
        hindrance: Hindrance = nothing,
        asked: Asked = requests,
    ) -> "Room":
        allocatable = read((node.get("status") or {}).get("allocatable"))
        return cls(node, less(allocatable, sum_of(taken, asked)), hindrance, asked)

    def reasons(self, pod: Manifest) -> list[str]:
        """Why the pod cannot be placed, in kube-scheduler's words; empty when it can."""
        if unwanted := objection(pod, self.node):
            return [unwanted]
        missing = lacking(self.asked(pod), self.left)
        return ["Too many pods" if name == "pods" else f"Insufficient {name}" for name in missing]

    def take(self, pod: Manifest) -> None:
        self.left = less(self.left, self.asked(pod))

    def copy(self) -> "Room":
        return replace(self)


def place(pod: Manifest, room: Room) -> Held | None:
    """Take room for a pod, or say why there is none."""
    if why := room.hindrance(pod):
        return Held(pod, before_any_node(why))
    if reasons := room.reasons(pod):
        return Held(pod, unavailable(reasons))
    room.take(pod)
    return None


def unavailable(reasons: Sequence[str]) -> str:
    return f"0/1 nodes are available: {counted(reasons)}."


def before_any_node(why: str) -> str:
    """The words of what is decided before any node is looked at."""
    return f"0/1 nodes are available: {why}."


def counted(reasons: Sequence[str]) -> str:
    return ", ".join(sorted(f"1 {reason}" for reason in reasons))


def takes_room(pod: Manifest) -> bool:
    """Whether a bound pod still holds what it asked for."""
    return phase(pod) not in ("Succeeded", "Failed")


def phase(pod: Manifest) -> str:
    return str((pod.get("status") or {}).get("phase") or "Pending")


def is_waiting(pod: Manifest) -> bool:
    """Whether a pod wants to be placed."""
    spec, meta = pod["spec"], pod["metadata"]
    return not (spec.get("nodeName") or spec.get("schedulingGates") or meta.get("deletionTimestamp"))


def unschedulable(held: Held, now: datetime) -> dict[str, Any]:
    """The condition of a pod that has no place."""
    condition = {"type": "PodScheduled", "status": "False", "reason": held.reason, "message": held.message}
    return with_condition(held.pod, condition, now)


def order(manifest: Manifest, priority: int) -> tuple[int, str, str, str]:
    """By which waiting pods and PodGroups are sorted."""
    meta = manifest["metadata"]
    return -priority, meta.get("creationTimestamp", ""), meta["namespace"], meta["name"]


def priority(pod: Mapping[str, Any]) -> int:
    return int(pod["spec"].get("priority") or 0)
