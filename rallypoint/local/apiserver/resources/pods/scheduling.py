"""Validation of affinity, tolerations, topology spread constraints and gates.

Source: kubernetes, pkg/apis/core/validation/validation.go.
"""

from collections.abc import Iterator

from rallypoint.local.apiserver.apimachinery import field_errors, names
from rallypoint.local.apiserver.apimachinery.field_errors import FieldError
from rallypoint.local.apiserver.apimachinery.selectors import validate_label_selector
from rallypoint.local.apiserver.apimachinery.unstructured import Json

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
UNSATISFIABLE_ACTIONS = ("DoNotSchedule", "ScheduleAnyway")


def validate_affinity(affinity: Json, path: str) -> Iterator[FieldError]:
    nodes = affinity.get("nodeAffinity") or {}
    required = nodes.get(REQUIRED)
    if required is not None:
        yield from validate_node_selector(required, f"{path}.nodeAffinity.{REQUIRED}")
    for i, preferred in enumerate(nodes.get(PREFERRED) or ()):
        item_path = f"{path}.nodeAffinity.{PREFERRED}[{i}]"
        yield from _weight(preferred, item_path)
        yield from _term(preferred.get("preference") or {}, f"{item_path}.preference", is_required=False)
    for name in ("podAffinity", "podAntiAffinity"):
        pods = affinity.get(name) or {}
        for i, term in enumerate(pods.get(REQUIRED) or ()):
            yield from _pod_term(term, f"{path}.{name}.{REQUIRED}[{i}]")
        for i, preferred in enumerate(pods.get(PREFERRED) or ()):
            item_path = f"{path}.{name}.{PREFERRED}[{i}]"
            yield from _weight(preferred, item_path)
            yield from _pod_term(preferred.get("podAffinityTerm") or {}, f"{item_path}.podAffinityTerm")


def validate_node_selector(selector: Json, path: str) -> Iterator[FieldError]:
    terms = selector.get("nodeSelectorTerms") or ()
    if not terms:
        yield field_errors.required(f"{path}.nodeSelectorTerms", "must have at least one node selector term")
    for i, term in enumerate(terms):
        yield from _term(term, f"{path}.nodeSelectorTerms[{i}]")


def _weight(preferred: Json, path: str) -> Iterator[FieldError]:
    weight = preferred.get("weight", 0)
    if not 1 <= weight <= 100:
        yield field_errors.invalid(f"{path}.weight", weight, "must be in the range 1-100")


def _pod_term(term: Json, path: str) -> Iterator[FieldError]:
    for name in ("labelSelector", "namespaceSelector"):
        yield from validate_label_selector(term.get(name) or {}, f"{path}.{name}")
    key = term.get("topologyKey", "")
    if not key:
        yield field_errors.required(f"{path}.topologyKey", "can not be empty")
    if wrong := names.qualified(key):
        yield field_errors.invalid(f"{path}.topologyKey", key, wrong)


def _term(term: Json, path: str, *, is_required: bool = True) -> Iterator[FieldError]:
    for i, requirement in enumerate(term.get("matchExpressions") or ()):
        item_path = f"{path}.matchExpressions[{i}]"
        yield from _requirement(requirement, item_path)
        for j, value in enumerate(requirement.get("values") or ()):
            if is_required and (wrong := names.label_value(value)):
                yield field_errors.invalid(f"{item_path}.values[{j}]", value, wrong)


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
        case "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt":
            pass
        case operator:
            yield field_errors.invalid(f"{path}.operator", operator or "", "not a valid selector operator")
    if wrong := names.qualified(requirement.get("key", "")):
        yield field_errors.invalid(f"{path}.key", requirement.get("key", ""), wrong)


def validate_tolerations(tolerations: list[Json] | tuple[()], path: str) -> Iterator[FieldError]:
    for i, toleration in enumerate(tolerations):
        key, operator = toleration.get("key", ""), toleration.get("operator")
        if key and (wrong := names.qualified(key)):
            yield field_errors.invalid(f"{path}[{i}].key", key, wrong)
        if toleration.get("tolerationSeconds") is not None and toleration.get("effect") != "NoExecute":
            detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            yield field_errors.invalid(f"{path}[{i}].effect", toleration.get("effect", ""), detail)
        if not key and operator != "Exists":
            detail = (
                'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            )
            yield field_errors.invalid(f"{path}[{i}].operator", operator or "", detail)
        if operator == "Exists" and toleration.get("value"):
            detail = "value must be empty when `operator` is 'Exists'"
            yield field_errors.invalid(f"{path}[{i}].operator", toleration["value"], detail)
        if operator in (None, "", "Equal") and (wrong := names.label_value(toleration.get("value", ""))):
            yield field_errors.invalid(f"{path}[{i}].operator", toleration["value"], wrong)


def validate_spread(constraints: list[Json] | tuple[()], path: str) -> Iterator[FieldError]:
    """Validate topology spread constraints."""
    pairs: set[tuple[str, str]] = set()
    for i, constraint in enumerate(constraints):
        skew, key = constraint.get("maxSkew", 0), constraint.get("topologyKey", "")
        action = constraint.get("whenUnsatisfiable", "")
        if skew <= 0:
            yield field_errors.invalid(f"{path}[{i}].maxSkew", skew, "must be greater than zero")
        if not key:
            yield field_errors.required(f"{path}[{i}].topologyKey", "can not be empty")
        if not action:
            yield field_errors.not_supported(f"{path}[{i}].whenUnsatisfiable", action, UNSATISFIABLE_ACTIONS)
        if (key, action) in pairs:
            field = f"{path}[{i}].{{topologyKey, whenUnsatisfiable}}"
            yield field_errors.duplicate(field, f"{{{key}, {action}}}")
        pairs.add((key, action))
        yield from validate_label_selector(
            constraint.get("labelSelector") or {}, f"{path}[{i}].labelSelector"
        )


def validate_gates(spec: Json, path: str) -> Iterator[FieldError]:
    """Validate readiness gates and scheduling gates."""
    for i, gate in enumerate(spec.get("readinessGates") or ()):
        condition = gate.get("conditionType", "")
        if wrong := names.qualified(condition):
            yield field_errors.invalid(f"{path}.readinessGates[{i}].conditionType", condition, wrong)
    used_names: set[str] = set()
    for i, gate in enumerate(spec.get("schedulingGates") or ()):
        name = gate.get("name", "")
        if wrong := names.qualified(name):
            yield field_errors.invalid(f"{path}.schedulingGates[{i}]", name, wrong)
        if name in used_names:
            yield field_errors.duplicate(f"{path}.schedulingGates[{i}]", name)
        used_names.add(name)
