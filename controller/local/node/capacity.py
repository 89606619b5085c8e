"""What a pod asks of the node, and whether it fits. Pure; binding is done by ``scheduler``."""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, TypeAlias

from controller.local.node import quantity

Amounts: TypeAlias = dict[str, Fraction]


def requests(pod: Mapping[str, Any]) -> Amounts:
    """What the scheduler reserves for a pod: its containers together, or its largest init container if that is more.

    Sidecars (init containers that always restart) run beside the others, and so count among them. A limit without
    a request is a request, as the API server defaults it.

    Source: Kubernetes, component-helpers/resource/helpers.go, PodRequests.
    """
    spec = pod["spec"]
    together: Amounts = {}
    largest: Amounts = {}
    for container in spec.get("initContainers") or ():
        own = _of_container(container)
        if container.get("restartPolicy") == "Always":
            together = _sum(together, own)
            own = together
        else:
            own = _sum(together, own)
        largest = _most(largest, own)
    for container in spec["containers"]:
        together = _sum(together, _of_container(container))
    return _sum(_most(together, largest), _amounts(spec.get("overhead")))


def shortages(wanted: Amounts, free: Amounts) -> list[str]:
    """The resources that are not there, in kube-scheduler's words; empty when the pod fits."""
    return sorted(
        f"Insufficient {name}"
        for name, amount in wanted.items()
        if amount > 0 and amount > free.get(name, Fraction(0))
    )


def free(capacity: Amounts, pods: Iterable[Mapping[str, Any]]) -> Amounts:
    """What is left of ``capacity`` beside ``pods``."""
    left = dict(capacity)
    for pod in pods:
        for name, amount in requests(pod).items():
            left[name] = left.get(name, Fraction(0)) - amount
        left["pods"] = left.get("pods", Fraction(0)) - 1
    return left


def _of_container(container: Mapping[str, Any]) -> Amounts:
    resources = container.get("resources") or {}
    return {**_amounts(resources.get("limits")), **_amounts(resources.get("requests"))}


def _amounts(written: Mapping[str, Any] | None) -> Amounts:
    return {name: quantity.parse(amount) for name, amount in (written or {}).items()}


def _sum(one: Amounts, other: Amounts) -> Amounts:
    return {name: one.get(name, Fraction(0)) + other.get(name, Fraction(0)) for name in {*one, *other}}


def _most(one: Amounts, other: Amounts) -> Amounts:
    return {name: max(one.get(name, Fraction(0)), other.get(name, Fraction(0))) for name in {*one, *other}}
