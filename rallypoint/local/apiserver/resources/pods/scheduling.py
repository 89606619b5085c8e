"""Validation of node affinity and tolerations.

Source: kubernetes, pkg/apis/core/validation/validation.go.
"""

from collections.abc import Iterator

from rallypoint.local.apiserver.apimachinery import field_errors, names
from rallypoint.local.apiserver.apimachinery.field_errors import FieldError
from rallypoint.local.apiserver.apimachinery.unstructured import Json

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def validate_affinity(affinity: Json, path: str) -> Iterator[FieldError]:
    """Validate node affinity."""
    nodes = affinity.get("nodeAffinity") or {}
    required = nodes.get(REQUIRED)
    if required is not None:
        terms_path = f"{path}.nodeAffinity.{REQUIRED}.nodeSelectorTerms"
        if not required.get("nodeSelectorTerms"):
            yield field_errors.required(terms_path, "must have at least one node selector term")
        for i, term in enumerate(required.get("nodeSelectorTerms") or ()):
            yield from _term(term, f"{terms_path}[{i}]")
    for i, preferred in enumerate(nodes.get(PREFERRED) or ()):
        yield from _term(
            preferred.get("preference") or {}, f"{path}.nodeAffinity.{PREFERRED}[{i}].preference"
        )


def _term(term: Json, path: str) -> Iterator[FieldError]:
    for i, requirement in enumerate(term.get("matchExpressions") or ()):
        yield from _requirement(requirement, f"{path}.matchExpressions[{i}]")


def _requirement(requirement: Json, path: str) -> Iterator[FieldError]:
    values = requirement.get("values") or ()
    match requirement.get("operator"):
        case "In" | "NotIn" if not values:
            yield field_errors.required(
                f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'"
            )
        case "Exists" | "DoesNotExist" if values:
            detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            yield field_errors.forbidden(f"{path}.values", detail)
        case "Gt" | "Lt" if len(values) != 1:
            detail = "must be specified single value when `operator` is 'Lt' or 'Gt'"
            yield field_errors.required(f"{path}.values", detail)
        case _:
            pass
    if wrong := names.qualified(requirement.get("key", "")):
        yield field_errors.invalid(f"{path}.key", requirement.get("key", ""), wrong)


def validate_tolerations(tolerations: list[Json] | tuple[()], path: str) -> Iterator[FieldError]:
    for i, toleration in enumerate(tolerations):
        key, operator = toleration.get("key", ""), toleration.get("operator")
        if key and (wrong := names.qualified(key)):
            yield field_errors.invalid(f"{path}[{i}].key", key, wrong)
        if not key and operator != "Exists":
            detail = (
                'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            )
            yield field_errors.invalid(f"{path}[{i}].operator", operator or "", detail)
        if operator == "Exists" and toleration.get("value"):
            detail = "value must be empty when `operator` is 'Exists'"
            yield field_errors.invalid(f"{path}[{i}].operator", toleration["value"], detail)
