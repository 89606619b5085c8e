"""Resource requests of pods, their sums, and the admission of pods that set ``nodeName`` themselves. Pure."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

from api import quantity
from api.requests import requests as of_spec
from rallypoint.local.manifest import Manifest

Amounts: TypeAlias = dict[str, Fraction]

_ORDER = ("pods", "cpu", "memory", "ephemeral-storage")


def requests(pod: Mapping[str, Any]) -> Amounts:
    """Return what the scheduler reserves for a pod, including the pod itself.

    A pod with invalid amounts, stored by an older version, reserves nothing else.
    """
    try:
        by_name = of_spec(pod["spec"])
    except ValueError:
        by_name = {}
    return {name: request.amount for name, request in by_name.items()} | {"pods": Fraction(1)}


RequestsOf: TypeAlias = Callable[[Mapping[str, Any]], Amounts]
"""``requests`` or a cached version of it."""


def read(written: Mapping[str, Any] | None) -> Amounts:
    """Parse the amounts of an object."""
    return {name: quantity.value(str(amount)) for name, amount in (written or {}).items()}


def insufficient(requested: Amounts, free: Amounts) -> list[str]:
    """Return the names of the resources that do not suffice."""
    return [name for name, amount in requested.items() if amount > 0 and amount > free.get(name, Fraction(0))]


def subtract(minuend: Amounts, subtrahend: Amounts) -> Amounts:
    """Subtract amounts by name; results may be negative."""
    return {
        name: minuend.get(name, Fraction(0)) - subtrahend.get(name, Fraction(0))
        for name in {**minuend, **subtrahend}
    }


def total(pods: Iterable[Mapping[str, Any]], requests_of: RequestsOf = requests) -> Amounts:
    total: Amounts = {}
    for pod in pods:
        for name, amount in requests_of(pod).items():
            total[name] = total.get(name, Fraction(0)) + amount
    return total


@dataclass(frozen=True, slots=True)
class Rejection:
    """The kubelet's rejection of a pod. Source: Kubernetes, pkg/kubelet/kubelet.go, rejectPod."""

    reason: str
    message: str

    @property
    def status(self) -> dict[str, Any]:
        """The status of a rejected pod."""
        return {"phase": "Failed", "reason": self.reason, "message": f"Pod was rejected: {self.message}"}


def rejection(pod: Manifest, others: Iterable[Manifest], capacity: Amounts) -> Rejection | None:
    """Return why the pod does not fit beside the others; None if it fits. Unknown resources are ignored.

    Source: Kubernetes, pkg/kubelet/lifecycle/predicate.go.
    """
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
    """Return millicores for CPU, else the amount."""
    return int(amount * 1000 if resource == "cpu" else amount)
