"""Whether the node takes a pod that it is given: one that names it itself has not been asked by the scheduler. Pure.

Source: Kubernetes, pkg/kubelet/lifecycle/predicate.go and pkg/kubelet/kubelet.go, rejectPod.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from rallypoint.local.manifest import Manifest
from rallypoint.local.node.capacity import Amounts, lacking, less, requests, sum_of

_ORDER = ("pods", "cpu", "memory", "ephemeral-storage")


@dataclass(frozen=True, slots=True)
class Rejection:
    reason: str
    message: str

    @property
    def status(self) -> dict[str, Any]:
        """Of a pod that will never run."""
        return {"phase": "Failed", "reason": self.reason, "message": f"Pod was rejected: {self.message}"}


def rejection(pod: Manifest, others: Iterable[Manifest], capacity: Amounts) -> Rejection | None:
    """Why the pod does not fit beside the others; None when it does. What the node knows nothing of is not asked."""
    wanted = {name: amount for name, amount in requests(pod).items() if name in capacity}
    used = sum_of(others)
    missing = lacking(wanted, less(capacity, used))
    if not missing:
        return None
    first = min(missing, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER))
    figures = (
        ("requested", wanted[first]),
        ("used", used.get(first, Fraction(0))),
        ("capacity", capacity[first]),
    )
    told = ", ".join(f"{what}: {_whole(first, amount)}" for what, amount in figures)
    return Rejection(f"OutOf{first}", f"Node didn't have enough resource: {first}, {told}")


def _whole(resource: str, amount: Fraction) -> int:
    """Thousandths of a core, or pieces."""
    return int(amount * 1000 if resource == "cpu" else amount)
