"""The resource requests of a pod, from its spec.

Source: Kubernetes, component-helpers/resource/helpers.go, PodRequests.
"""

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from api import quantity
from api.quantity import Form, Quantity

Amounts = dict[str, Quantity]
"""By resource, such as ``cpu``."""

Extended = tuple[tuple[str, int], ...]
"""Extended resources and their amounts, ordered by name."""

NONE = Quantity(Fraction(0), Form.DECIMAL)


def requests(spec: Mapping[str, Any]) -> Amounts:
    """Return what the scheduler reserves for a pod: the sum of its containers, or its largest init container if that is more.

    Sidecars (init containers that always restart) count like containers. A limit without a request counts as the request, as the
    API server defaults it. Pod-level requests precede those of the containers; pod-level limits count only if no container
    requests the resource.

    Raises:
        ValueError: an amount is not a quantity.
    """
    together: Amounts = {}
    largest: Amounts = {}
    for container in spec.get("initContainers") or ():
        own = _own(container)
        if container.get("restartPolicy") == "Always":
            together = total(together, own)
            own = together
        else:
            own = total(together, own)
        largest = _most(largest, own)
    for container in spec.get("containers") or ():
        together = total(together, _own(container))
    whole = spec.get("resources") or {}
    requested = {
        **amounts(whole.get("limits")),
        **_most(together, largest),
        **amounts(whole.get("requests")),
    }
    return total(requested, amounts(spec.get("overhead")))


def extended_resources(spec: Mapping[str, Any]) -> Extended:
    """Return the extended resources that a pod requests, such as ``nvidia.com/gpu``; none if an amount is not a quantity.

    Source: Kubernetes, pkg/apis/core/v1/helper/helpers.go, IsExtendedResourceName.
    """
    try:
        requested = requests(spec)
    except ValueError:
        return ()  # the API server refuses such a pod
    return tuple(
        (name, math.ceil(requested[name].amount))
        for name in sorted(requested)
        if _is_extended(name) and requested[name].amount > 0
    )


def _is_extended(resource: str) -> bool:
    return "/" in resource and "kubernetes.io/" not in resource and not resource.startswith("requests.")


def amounts(written: Mapping[str, Any] | None) -> Amounts:
    """Raises ValueError: an amount is not a quantity."""
    return {name: quantity.read(str(amount)) for name, amount in (written or {}).items()}


def total(first: Amounts, other: Amounts) -> Amounts:
    return {name: first.get(name, NONE) + other.get(name, NONE) for name in {**first, **other}}


def _own(container: Mapping[str, Any]) -> Amounts:
    resources = container.get("resources") or {}
    return {**amounts(resources.get("limits")), **amounts(resources.get("requests"))}


def _most(first: Amounts, other: Amounts) -> Amounts:
    pairs = {name: (first.get(name, NONE), other.get(name, NONE)) for name in {**first, **other}}
    return {name: max(pair, key=lambda each: each.amount) for name, pair in pairs.items()}
