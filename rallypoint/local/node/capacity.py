"""What pods ask of the node, and what is left beside them. Pure."""

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any, TypeAlias

from api import quantity
from api.requests import requests as of_spec

Amounts: TypeAlias = dict[str, Fraction]


def requests(pod: Mapping[str, Any]) -> Amounts:
    """What the scheduler reserves for a pod, itself among it.

    One whose amounts cannot be read, as of a site of before, takes nothing else: it must not keep others from their places.
    """
    try:
        asked = of_spec(pod["spec"])
    except ValueError:
        asked = {}
    return {name: each.amount for name, each in asked.items()} | {"pods": Fraction(1)}


Asked: TypeAlias = Callable[[Mapping[str, Any]], Amounts]
"""``requests``, or what remembers its answers: a pod keeps asking for the same."""


def read(written: Mapping[str, Any] | None) -> Amounts:
    """Amounts as an object spells them."""
    return {name: quantity.value(str(amount)) for name, amount in (written or {}).items()}


def lacking(wanted: Amounts, free: Amounts) -> list[str]:
    """The resources that are not there; empty when all are."""
    return [name for name, amount in wanted.items() if amount > 0 and amount > free.get(name, Fraction(0))]


def less(one: Amounts, other: Amounts) -> Amounts:
    """What is left of ``one`` without ``other``; below zero where that is more."""
    return {name: one.get(name, Fraction(0)) - other.get(name, Fraction(0)) for name in {**one, **other}}


def sum_of(pods: Iterable[Mapping[str, Any]], asked: Asked = requests) -> Amounts:
    total: Amounts = {}
    for pod in pods:
        for name, amount in asked(pod).items():
            total[name] = total.get(name, Fraction(0)) + amount
    return total
