"""Admission of pods that the scheduler has not bound, because they set ``nodeName``. Pure.

Source: Kubernetes, pkg/kubelet/lifecycle/predicate.go and pkg/kubelet/kubelet.go, rejectPod.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from rallypoint.local.manifest import Manifest
from rallypoint.local.node.resources import Amounts, insufficient, requests, subtract, total

_ORDER = ("pods", "cpu", "memory", "ephemeral-storage")


@dataclass(frozen=True, slots=True)
class Rejection:
    reason: str
    message: str

    @property
    def status(self) -> dict[str, Any]:
        """The status of a rejected pod."""
        return {"phase": "Failed", "reason": self.reason, "message": f"Pod was rejected: {self.message}"}


def rejection(pod: Manifest, others: Iterable[Manifest], capacity: Amounts) -> Rejection | None:
    """Return why the pod does not fit beside the others; None if it fits. Unknown resources are ignored."""
    requested = {name: amount for name, amount in requests(pod).items() if name in capacity}
    used = total(others)
    missing = insufficient(requested, subtract(capacity, used))
    if not missing:
        return None
    first = min(missing, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER))
    figures = (
        ("requested", requested[first]),
        ("used", used.get(first, Fraction(0))),
        ("capacity", capacity[first]),
    )
    figures_text = ", ".join(f"{what}: {_whole(first, amount)}" for what, amount in figures)
    return Rejection(f"OutOf{first}", f"Node didn't have enough resource: {first}, {figures_text}")


def _whole(resource: str, amount: Fraction) -> int:
    """Thousandths of a core, or pieces."""
    return int(amount * 1000 if resource == "cpu" else amount)
