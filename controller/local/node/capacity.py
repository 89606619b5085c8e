"""What a pod asks of the node, and whether it fits. Pure; binding is done by ``scheduler``."""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, TypeAlias

from api.requests import requests as of_spec

Amounts: TypeAlias = dict[str, Fraction]


def requests(pod: Mapping[str, Any]) -> Amounts:
    """What the scheduler reserves for a pod."""
    return {name: asked.amount for name, asked in of_spec(pod["spec"]).items()}


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
