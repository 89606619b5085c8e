"""Validation of the security contexts of a pod and its containers.

Source: kubernetes, pkg/apis/core/validation/validation.go.
"""

from collections.abc import Iterator
from typing import Any

from rallypoint.local.apiserver.apimachinery import field_errors, names
from rallypoint.local.apiserver.apimachinery.field_errors import FieldError
from rallypoint.local.apiserver.apimachinery.metadata import validate_unique_name
from rallypoint.local.apiserver.apimachinery.unstructured import Json

HIGHEST_ID = 2**31 - 1


def validate_pod(context: Json, path: str) -> Iterator[FieldError]:
    yield from validate_ids(context, path)
    for i, group in enumerate(context.get("supplementalGroups") or ()):
        yield from _id(group, f"{path}.supplementalGroups[{i}]")
    used_names: set[str] = set()
    for i, parameter in enumerate(context.get("sysctls") or ()):
        yield from validate_unique_name(parameter, f"{path}.sysctls[{i}]", used_names, names.sysctl)


def validate_ids(context: Json, path: str) -> Iterator[FieldError]:
    """Validate the user and groups of a pod or a container."""
    for field in ("runAsUser", "runAsGroup", "fsGroup"):
        yield from _id(context.get(field), f"{path}.{field}")


def _id(value: Any, path: str) -> Iterator[FieldError]:
    if value is not None and not 0 <= value <= HIGHEST_ID:
        yield field_errors.invalid(path, value, f"must be between 0 and {HIGHEST_ID}, inclusive")
