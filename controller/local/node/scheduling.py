"""Which pods the node takes, and what is said of the others. Pure.

There is one node, so nodeSelector, affinity, tolerations and spread have nothing to choose among and are not asked.

Source: Kubernetes, pkg/scheduler/framework/types.go, FitError: the words.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from controller.local.node.capacity import Amounts, free, requests, shortages
from controller.local.node.status import with_condition


@dataclass(frozen=True, slots=True)
class Schedule:
    bind: list[Mapping[str, Any]] = field(default_factory=list)
    """Pods that fit, to be bound in this order."""
    refused: list[tuple[Mapping[str, Any], str]] = field(default_factory=list)
    """Pods that do not fit now, each with kube-scheduler's message."""


def schedule(
    pods: Iterable[Mapping[str, Any]], capacity: Amounts, taken: Iterable[Mapping[str, Any]]
) -> Schedule:
    """Place ``pods`` beside ``taken``: by priority, then by age. One that does not fit holds up nobody."""
    left = free(capacity, taken)
    result = Schedule()
    for pod in sorted(pods, key=_order):
        missing = shortages({**requests(pod), "pods": Fraction(1)}, left)
        if missing:
            reasons = ", ".join(f"1 {_words(reason)}" for reason in missing)
            result.refused.append((pod, f"0/1 nodes are available: {reasons}."))
        else:
            result.bind.append(pod)
            left = free(left, [pod])
    return result


def takes_room(pod: Mapping[str, Any]) -> bool:
    """Whether a bound pod still holds what it asked for."""
    return (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")


def is_waiting(pod: Mapping[str, Any]) -> bool:
    """Whether a pod wants to be placed."""
    spec, meta = pod["spec"], pod["metadata"]
    return not (spec.get("nodeName") or spec.get("schedulingGates") or meta.get("deletionTimestamp"))


def unschedulable(pod: Mapping[str, Any], message: str, now: Any) -> dict[str, Any]:
    """The condition of a pod that has no place."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return with_condition(pod, condition, now)


def _order(pod: Mapping[str, Any]) -> tuple[int, str, str]:
    meta = pod["metadata"]
    return -int(pod["spec"].get("priority") or 0), meta.get("creationTimestamp", ""), meta["name"]


def _words(reason: str) -> str:
    return "Too many pods" if reason == "Insufficient pods" else reason
