"""Validation of custom resources: types, limits, enums, required fields, unique list entries, CEL rules.

Source: apiextensions-apiserver, pkg/apiserver/validation and pkg/apiserver/schema/{listtype,cel}.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from rallypoint.local.apiserver.apimachinery import field_errors
from rallypoint.local.apiserver.apimachinery.field_errors import FieldError
from rallypoint.local.apiserver.apimachinery.unstructured import Json
from rallypoint.local.apiserver.schema.cel import MISSING, set_values
from rallypoint.local.apiserver.schema.structural import INTEGER_BOUNDS, Node, projected

UNCHECKED = FieldError(
    "FieldValueInvalid",
    "<nil>",
    "Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
)


BLOCKING = {
    "FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", "FieldValueTypeInvalid",
}  # fmt: skip
"""Errors that prevent the evaluation of CEL rules, which rely on types and sizes."""


def validate(
    node: Node,
    value: Json,
    old: Json | None,
    *,
    part: str = "",
    earlier: Sequence[FieldError] = (),
    later: Sequence[FieldError] = (),
) -> list[FieldError]:
    """Return all errors in an object; ``old`` is the object that it replaces.

    Unchanged values are not validated again, so a schema can become stricter than existing objects. ``part`` limits
    validation to that field, except for the CEL rules. ``earlier`` are the errors found before; ``later`` are added
    between the errors of the schema and those of the rules.
    """
    before = MISSING if old is None else old
    if part:
        inner = node.properties.get(part) or Node()
        errors = _validate_structure(
            inner, value.get(part), before.get(part, MISSING) if old is not None else MISSING
        )
        found = [FieldError(error.reason, _join(part, error.field), error.message) for error in errors]
    else:
        found = _validate_structure(node, value, before)
    found += later
    if any(error.reason in BLOCKING for error in (*earlier, *found)):
        return [*found, UNCHECKED] if _has_rules(node) else found
    return [*found, *_validate_rules(node, value, before, "")]


def _validate_structure(node: Node, value: Any, old: Any) -> list[FieldError]:
    return (
        []
        if value is None
        else [*_validate_values(node, value, old, ""), *_validate_uniqueness(node, value, old, "")]
    )


def validate_enums(node: Node, value: Any, old: Any, path: str = "") -> Iterator[FieldError]:
    """Yield the errors of changed values that the enum of their field does not allow."""
    if value is old:
        return
    if isinstance(value, dict):
        for name, item in value.items():
            part = node.properties.get(name) or node.additional
            if part is not None:
                yield from validate_enums(part, item, _old_member(old, name), _join(path, name))
    elif isinstance(value, list) and node.items is not None:
        for i, item in enumerate(value):
            yield from validate_enums(node.items, item, MISSING, f"{path}[{i}]")
    elif node.enum and value and value not in node.enum:
        yield field_errors.not_supported(path, value, node.enum)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _validate_values(node: Node, value: Any, old: Any, path: str) -> Iterator[FieldError]:
    if value == old:
        return
    wrong = list(_type_errors(node, value, path))
    yield from wrong
    if any(error.reason == "FieldValueTypeInvalid" for error in wrong):
        return
    if value is None:
        return
    if node.enum and value not in node.enum:
        yield field_errors.not_supported(path, value, node.enum)
    yield from _validate_limits(node, value, path)
    if isinstance(value, dict):
        for name in node.required:
            if name not in value:
                yield field_errors.required(_join(path, name))
    for child in _children(node, value, old, path):
        yield from _validate_values(*child)


def _children(node: Node, value: Any, old: Any, path: str) -> Iterator[tuple[Node, Any, Any, str]]:
    """Yield the schema, the value, the old value and the path of each field or item that has a schema."""
    if isinstance(value, dict):
        for name, item in value.items():
            part = node.properties.get(name) or node.additional
            if part is not None:
                yield part, item, _old_member(old, name), _join(path, name)
    elif isinstance(value, list) and node.items is not None:
        old_items = _old_items_by_key(node, old)
        for i, item in enumerate(value):
            yield node.items, item, _old_item(node, old_items, item), f"{path}[{i}]"


def _old_member(old: Any, name: str) -> Any:
    return old.get(name, MISSING) if isinstance(old, dict) else MISSING


def json_type(value: Any) -> str:
    """Return the JSON type as error messages name it."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _type_errors(node: Node, value: Any, path: str) -> Iterator[FieldError]:
    """Yield the errors of a value that does not fit the type of its field or, for numbers, its format."""
    actual = json_type(value)
    expected = "integer,string" if node.int_or_string else node.type
    integral = expected == "integer" and isinstance(value, float) and value.is_integer()
    number = expected == "number" and actual == "integer"
    fits = (
        not expected
        or actual in expected.split(",")
        or number
        or integral
        or (value is None and node.nullable)
    )
    if expected == "integer" and actual == "number" and node.format:
        actual, expected = "float64", node.format
    if not fits:
        yield field_errors.type_invalid(
            path, actual, f'{path} in body must be of type {expected}: "{actual}"'
        )
    if (
        node.type == "integer"
        and isinstance(value, int | float)
        and not _fits_format(node, value, integral=integral)
    ):
        form = f"with format {node.format}" if node.format else "(default format)"
        text = f'Invalid value: "": Checked value must be of type integer {form} in {path}'
        yield FieldError("FieldValueInvalid", "<nil>", text)


def _fits_format(node: Node, value: float, *, integral: bool) -> bool:
    bound = INTEGER_BOUNDS.get(node.format, math.inf)
    return (isinstance(value, int) or integral) and -bound <= value < bound


def _validate_limits(node: Node, value: Any, path: str) -> Iterator[FieldError]:
    limits = node.limits
    if isinstance(value, str):
        yield from _validate_string(node, value, path)
    elif isinstance(value, list):
        least, most = limits.get("minItems", 0), limits.get("maxItems", math.inf)
        yield from _validate_count(path, len(value), least, most, "items")
    elif isinstance(value, dict):
        least, most = limits.get("minProperties", 0), limits.get("maxProperties", math.inf)
        yield from _validate_count(path, len(value), least, most, "properties")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _validate_range(limits, value, path)


def _validate_string(node: Node, value: str, path: str) -> Iterator[FieldError]:
    """Yield the first error in a string."""
    least, most = node.limits.get("minLength", 0), node.limits.get("maxLength", math.inf)
    if len(value) > most:
        yield field_errors.too_long(path, most)
    elif len(value) < least:
        yield field_errors.invalid(path, value, f"{path} in body should be at least {least} chars long")
    elif node.pattern is not None and not node.pattern.search(value):
        yield field_errors.invalid(path, value, f"{path} in body should match '{node.pattern.pattern}'")


def _validate_count(path: str, count: int, least: int, most: float, what: str) -> Iterator[FieldError]:
    if count < least:
        yield field_errors.invalid(path, count, f"{path} in body should have at least {least} {what}")
    if count > most:
        yield field_errors.too_many(path, count, int(most))


def _validate_range(limits: Json, value: float, path: str) -> Iterator[FieldError]:
    low, high = limits.get("minimum", -math.inf), limits.get("maximum", math.inf)
    if value < low or (value == low and limits.get("exclusiveMinimum")):
        words = "greater than" if limits.get("exclusiveMinimum") else "greater than or equal to"
        yield field_errors.invalid(path, value, f"{path} in body should be {words} {low}")
    if value > high or (value == high and limits.get("exclusiveMaximum")):
        words = "less than" if limits.get("exclusiveMaximum") else "less than or equal to"
        yield field_errors.invalid(path, value, f"{path} in body should be {words} {high}")
    step = limits.get("multipleOf")
    if step and value % step:
        yield field_errors.invalid(path, value, f"{path} in body should be a multiple of {step}")


def _validate_uniqueness(node: Node, value: Any, old: Any, path: str) -> Iterator[FieldError]:
    if value == old:
        return
    if isinstance(value, dict):
        for name, item in value.items():
            part = node.properties.get(name) or node.additional
            if part is not None:
                yield from _validate_uniqueness(part, item, _old_member(old, name), _join(path, name))
    elif isinstance(value, list):
        identities: set[bytes] = set()
        for i, item in enumerate(value):
            identity = _identity(node, item)
            if identity is not None:
                encoded = orjson.dumps(identity, option=orjson.OPT_SORT_KEYS)
                if encoded in identities:
                    yield field_errors.duplicate(f"{path}[{i}]", identity)
                identities.add(encoded)
            if node.items is not None:
                yield from _validate_uniqueness(node.items, item, MISSING, f"{path}[{i}]")


def _identity(node: Node, item: Any) -> Any:
    """Return the part of a list item that must be unique; None for atomic lists."""
    if node.list_type == "set":
        return item
    if node.list_type == "map" and isinstance(item, dict):
        return {key: item[key] for key in node.map_keys if key in item}
    return None


def _has_rules(node: Node, visited: set[int] | None = None) -> bool:
    visited = set() if visited is None else visited
    if id(node) in visited:
        return False
    visited.add(id(node))
    parts = [*node.properties.values(), *(part for part in (node.additional, node.items) if part is not None)]
    return bool(node.rules) or any(_has_rules(part, visited) for part in parts)


def _validate_rules(node: Node, value: Any, old: Any, path: str) -> Iterator[FieldError]:
    if value is None or value == old:
        return
    rules = [rule for rule in node.rules if rule.applies(value, old)]
    if rules and node.rule_fields is not None:
        set_values(projected(node, value, node.rule_fields), projected(node, old, node.rule_fields))
    elif rules:
        set_values(value, old)
    for rule in rules:
        error = rule.check(value, path)
        if error is not None:
            yield error
    for child in _children(node, value, old, path):
        yield from _validate_rules(*child)


def _old_item(node: Node, old_items: dict[bytes, Any], item: Any) -> Any:
    return old_items.get(_list_key(node, item), MISSING) if old_items else MISSING


def _old_items_by_key(node: Node, old: Any) -> dict[bytes, Any]:
    """Return the old items of a map-list by key; items of other lists are not correlated."""
    if node.list_type != "map" or not isinstance(old, list):
        return {}
    return {_list_key(node, item): item for item in old}


def _list_key(node: Node, item: Any) -> bytes:
    return orjson.dumps(_identity(node, item), option=orjson.OPT_SORT_KEYS)
