"""Resource requests of pods and their sums. Pure."""

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any, TypeAlias

from api import quantity
from api.requests import requests as of_spec

Amounts: TypeAlias = dict[str, Fraction]


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


def insufficient(wanted: Amounts, free: Amounts) -> list[str]:
    """Return the names of the resources that do not suffice."""
    return [name for name, amount in wanted.items() if amount > 0 and amount > free.get(name, Fraction(0))]


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
