"""Decodes, prunes, defaults and validates objects before they are stored."""

from collections.abc import Iterator
from typing import Any

from rallypoint.local.apiserver.apimachinery import errors, field_errors, metadata
from rallypoint.local.apiserver.apimachinery.errors import StatusError, bad_request
from rallypoint.local.apiserver.apimachinery.field_errors import FieldError, quoted
from rallypoint.local.apiserver.apimachinery.unstructured import Json, read_path
from rallypoint.local.apiserver.registry.requests import WriteOptions
from rallypoint.local.apiserver.resources.resource import Resource, Scale
from rallypoint.local.apiserver.schema import validation
from rallypoint.local.apiserver.schema.structural import find_type_mismatch, prune_and_default
from rallypoint.local.apiserver.schema.validation import json_type


def decode_patched(resource: Resource, body: Any, options: WriteOptions, warnings: list[str]) -> Json:
    """``decode`` a patched object; a decoding error makes the patch invalid."""
    try:
        return decode(resource, body, options, warnings)
    except StatusError as error:
        if error.code != 400 or resource.custom:
            raise
        why = error.message.partition(f"handled as a {resource.kind}: ")[2] or error.message
        raise errors.invalid("", "", "", [field_errors.invalid("patch", quoted(body), why)]) from error


def decode(resource: Resource, body: Any, options: WriteOptions, warnings: list[str]) -> Json:
    """Decode, prune and default the object in a body; ``warnings`` collects the unknown fields.

    Raises:
        StatusError: it is of another kind, a value has a wrong type, or it has unknown fields under strict validation.
    """
    _check_kind(resource, body)
    _check_types(resource, body)
    unknown: list[str] = []
    pruned = prune_and_default(resource.schema, body, unknown)
    if resource.custom:
        unknown.sort()
    if unknown and options.validation == "Strict":
        listed = ", ".join(f'unknown field "{path}"' for path in unknown)
        raise bad_request(_conversion_message(resource, resource.kind, f"strict decoding error: {listed}"))
    if options.validation == "Warn":
        warnings += [f'unknown field "{path}"' for path in unknown]
    rest = {name: part for name, part in pruned.items() if name not in ("kind", "apiVersion", "metadata")}
    obj = {
        "kind": resource.kind,
        "apiVersion": resource.storage_api_version,
        "metadata": pruned.get("metadata") or {},
        **rest,
    }
    return resource.strategy.default(obj)


def _conversion_message(resource: Resource, kind: str, why: str) -> str:
    return f'{kind} in version "{resource.version}" cannot be handled as a {resource.kind}: {why}'


def _check_kind(resource: Resource, body: Any) -> None:
    if not isinstance(body, dict):
        why = f"couldn't get version/kind; json parse error: json: cannot unmarshal {json_type(body)}"
        raise bad_request(f"the object provided is unrecognized (must be of type {resource.kind}): {why}")
    kind, version = body.get("kind", ""), body.get("apiVersion", "")
    if resource.custom:
        _check_custom_kind(resource, body, kind, version)
    elif kind and kind != resource.kind:
        why = f"converting (v1.{kind}) to (core.{resource.kind}): unknown conversion"
        raise bad_request(_conversion_message(resource, kind, why))
    elif version and version != resource.api_version:
        message = f"the API version in the data ({version}) does not match the expected API version ({resource.api_version})"
        raise bad_request(message)


def _check_custom_kind(resource: Resource, body: Json, kind: str, version: str) -> None:
    if not kind or not version:
        what = "Kind" if not kind else "apiVersion"
        message = f"the object provided is unrecognized (must be of type {resource.kind}): Object '{what}' is missing in '{body}'"
        raise bad_request(message)
    if version != resource.api_version:
        message = f"the API version in the data ({version}) does not match the expected API version ({resource.api_version})"
        raise bad_request(message)
    if kind != resource.kind:
        wrong = field_errors.invalid("kind", kind, f"must be {resource.kind}")
        raise errors.invalid(resource.group, kind, (body.get("metadata") or {}).get("name", ""), [wrong])


def _check_types(resource: Resource, body: Json) -> None:
    if resource.custom:
        wrong = find_type_mismatch(resource.schema.properties["metadata"], body.get("metadata"))
    else:
        wrong = find_type_mismatch(resource.schema, body)
    if wrong is not None:
        raise bad_request(_conversion_message(resource, resource.kind, str(wrong)))


def validate(resource: Resource, new: Json, old: Json | None = None, part: str = "") -> None:
    """Validate an object before it is stored; ``old`` is the object that it replaces, ``part`` the only field written.

    Raises:
        StatusError: 422, with all errors.
    """
    before = None if old is None else old["metadata"]
    found = list(metadata.validate(new["metadata"], resource.strategy.validate_name, old=before))
    if resource.custom:
        scale = () if resource.scale is None else tuple(_validate_scale(resource.scale, new))
        found += validation.validate(resource.schema, new, old, part=part, earlier=found, later=scale)
    else:
        found += validation.validate_enums(resource.schema, new, old)
    # An unchanged spec is not validated again, so objects from before a stricter rule can still be deleted.
    if old is None or "spec" not in new or new["spec"] != old.get("spec"):
        found += resource.strategy.validate(new)
    if old is not None:
        found += resource.strategy.validate_update(new, old)
    if found:
        raise errors.invalid(resource.group, resource.kind, new["metadata"].get("name", ""), found)


def _validate_scale(scale: Scale, obj: Json) -> Iterator[FieldError]:
    """Validate that the replicas of a custom resource are non-negative integers."""
    for path in (scale.spec, scale.status):
        field_path = "." + ".".join(path)
        for depth in range(1, len(path)):
            holder = read_path(obj, path[:depth])
            if holder is not None and not isinstance(holder, dict):
                reached = "." + ".".join(path[: depth + 1])
                yield _accessor_error(field_path, reached, holder, "map[string]interface{}")
                return
        value = read_path(obj, path)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            yield _accessor_error(field_path, field_path, value, "int64")
        elif value is not None and value < 0:
            yield field_errors.invalid(field_path, value, "should be a non-negative integer")
        elif value is not None and value > LARGEST_SCALE:
            yield field_errors.invalid(field_path, value, f"should be less than or equal to {LARGEST_SCALE}")


LARGEST_SCALE = 2**31 - 1

GO_TYPES = {
    dict: "map[string]interface {}",
    list: "[]interface {}",
    str: "string",
    bool: "bool",
    float: "float64",
}


def _accessor_error(field_path: str, reached: str, value: Any, expected: str) -> FieldError:
    actual = GO_TYPES.get(type(value), "int64")
    shown = value if isinstance(value, str) else quoted(value)
    detail = f"{reached} accessor error: {shown} is of the type {actual}, expected {expected}"
    return field_errors.invalid(field_path, 0, detail)


def immutable(field: str, value: object) -> FieldError:
    return field_errors.invalid(field, value, "field is immutable")
