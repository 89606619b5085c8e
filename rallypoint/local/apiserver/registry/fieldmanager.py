"""Server-side apply: sets the fields in a manager's configuration and removes those that it no longer contains.

``metadata.managedFields`` records the fields of each manager that applies.

Differs: creates and updates are not recorded, so an apply never conflicts with them.

Source: structured-merge-diff, typed and fieldpath; the format is that of ``FieldsV1``.
"""

from collections.abc import Iterator
from typing import Any

import orjson

from api.times import format_time
from rallypoint.local.apiserver.apimachinery import errors, field_errors
from rallypoint.local.apiserver.apimachinery.errors import StatusError
from rallypoint.local.apiserver.apimachinery.unstructured import Json
from rallypoint.local.apiserver.registry.requests import Target, WriteOptions, WriteResult
from rallypoint.local.apiserver.registry.writer import Writer
from rallypoint.local.apiserver.schema.cel import MISSING
from rallypoint.local.apiserver.schema.structural import Node, prune_and_default
from rallypoint.local.apiserver.storage.store import Entry

ANY = Node()

UNOWNED_METADATA = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "managedFields",
    "generation",
)
"""Metadata that identifies an applied object and has no owner."""


def apply(writer: Writer, target: Target, applied: Any, options: WriteOptions) -> WriteResult:
    """Apply the configuration of a manager to an object, which is created if it is missing.

    Raises:
        StatusError: 422, the manager is missing; 409, another manager owns a changed field.
    """
    if not options.manager:
        required = field_errors.required("fieldManager", "is required for apply patch")
        raise errors.invalid("meta.k8s.io", "PatchOptions", "", [required])
    if not isinstance(applied, dict):
        raise errors.bad_request("error decoding YAML: the applied configuration is not an object")
    node = target.resource.schema
    _check_unknown_fields(target, applied)
    existing = writer.collection(target.resource).entries.get((target.namespace, target.name))
    manager = FieldManager(
        target, options.manager, [] if existing is None else existing.metadata.get("managedFields", [])
    )
    own = fields(node, _applied_fields(applied))
    entry = manager.entry(own, format_time(writer.clock()))
    if existing is None:
        if target.subresource:
            raise target.not_found
        body = {**applied, "metadata": {**(applied.get("metadata") or {}), "name": target.name}}
        return writer.create(target, body, options, managed_fields=[entry])
    if not options.force:
        _check_conflicts(manager, node, own, applied, existing)

    def merge(old: Json) -> Json:
        remaining = remove(node, old, manager.released_fields(own))
        new = {**_applied_fields(applied), "metadata": applied.get("metadata") or {}}
        merged: Json = combine(node, remaining, new)
        return merged

    others = [other for other in manager.others if other["fieldsV1"]]
    if options.force:
        others = [{**other, "fieldsV1": difference(other["fieldsV1"], own)} for other in others]
    return writer.patch(target, merge, options, [entry, *(other for other in others if other["fieldsV1"])])


def _check_unknown_fields(target: Target, applied: Json) -> None:
    unknown: list[str] = []
    prune_and_default(target.resource.schema, applied, unknown)
    if unknown:
        resource = target.resource
        about = f"{target.namespace}/{target.name}; {resource.api_version}, Kind={resource.kind}"
        listed = "; ".join(f".{path}: field not declared in schema" for path in sorted(unknown))
        raise StatusError(500, "", f"failed to create typed patch object ({about}): {listed}")


def _applied_fields(applied: Json) -> Json:
    """Return the part of an applied object whose fields have owners."""
    given = {
        key: value for key, value in (applied.get("metadata") or {}).items() if key not in UNOWNED_METADATA
    }
    rest = {key: value for key, value in applied.items() if key not in ("apiVersion", "kind", "metadata")}
    return {**rest, "metadata": given} if given else rest


class FieldManager:
    """The field managers of an object, from the view of one of them."""

    def __init__(self, target: Target, manager: str, listed: list[Json]) -> None:
        self._target = target
        self._manager = manager
        own_entries = [entry for entry in listed if self._is_own(entry)]
        self.others = [entry for entry in listed if not self._is_own(entry)]
        self._previous_fields: Json = own_entries[0]["fieldsV1"] if own_entries else {}

    def _is_own(self, entry: Json) -> bool:
        manager_id = (entry.get("manager"), entry.get("subresource", ""))
        return manager_id == (self._manager, self._target.subresource)

    def entry(self, own: Json, now: str) -> Json:
        made = {
            "manager": self._manager,
            "operation": "Apply",
            "apiVersion": self._target.resource.api_version,
            "time": now,
            "fieldsType": "FieldsV1",
            "fieldsV1": own,
        }
        return made | ({"subresource": self._target.subresource} if self._target.subresource else {})

    def released_fields(self, own: Json) -> Json:
        """Return the fields that the manager applied before and no manager owns now."""
        remaining = difference(self._previous_fields, own)
        for other in self.others:
            remaining = difference(remaining, other["fieldsV1"])
        return remaining


def _check_conflicts(manager: FieldManager, node: Node, own: Json, applied: Json, existing: Entry) -> None:
    changed = [
        path
        for path in leaves(own)
        if _value_at(node, applied, path) != _value_at(node, existing.object, path)
    ]
    found = [
        (other["manager"], path)
        for other in manager.others
        for path in changed
        if path in set(leaves(other["fieldsV1"]))
    ]
    if not found:
        return
    reason = "FieldManagerConflict"
    causes = [
        {"reason": reason, "message": f'conflict with "{name}"', "field": _format_path(path)}
        for name, path in found
    ]
    plural = "s" if len(found) > 1 else ""
    message = f"Apply failed with {len(found)} conflict{plural}: {_format_conflicts(found)}"
    raise StatusError(409, "Conflict", message, {"causes": causes})


def _format_conflicts(found: list[tuple[str, tuple[str, ...]]]) -> str:
    """Format conflicts: a single one in a line, several grouped by manager."""
    if len(found) == 1:
        ((manager, path),) = found
        return f'conflict with "{manager}": {_format_path(path)}'
    lines: list[str] = []
    for manager in sorted({manager for manager, _ in found}):
        lines.append(f'conflicts with "{manager}":')
        lines += [f"- {_format_path(path)}" for other, path in found if other == manager]
    return "\n".join(lines)


def fields(node: Node, value: Any) -> Json:
    """Return the fields that a value sets as FieldsV1; {} for a value that is atomic."""
    if isinstance(value, dict) and node.map_type != "atomic":
        return {f"f:{name}": fields(_child(node, name), part) for name, part in value.items()}
    if isinstance(value, list) and node.list_type == "map":
        return {_item_key(node, item): {".": {}, **fields(node.items or ANY, item)} for item in value}
    if isinstance(value, list) and node.list_type == "set":
        return {f"v:{orjson.dumps(item).decode()}": {} for item in value}
    return {}


def _child(node: Node, name: str) -> Node:
    return node.properties.get(name) or node.additional or ANY


def _item_key(node: Node, item: Any) -> str:
    given = item if isinstance(item, dict) else {}
    keys = {name: given.get(name, _default(node, name)) for name in node.map_keys}
    known = {name: value for name, value in keys.items() if value is not None}
    return f"k:{orjson.dumps(known, option=orjson.OPT_SORT_KEYS).decode()}"


def _default(node: Node, name: str) -> Any:
    default = _child(node.items or ANY, name).default
    return None if default is MISSING else default


def difference(fields_v1: Json, other: Json) -> Json:
    """Return the fields that are not in ``other``; parents of remaining fields stay."""
    remaining: Json = {}
    for name, inner in fields_v1.items():
        if name not in other:
            remaining[name] = inner
        elif inner and (rest := difference(inner, other[name])):
            remaining[name] = rest
    return remaining


def remove(node: Node, value: Any, removed_fields: Json) -> Any:
    """Return a copy of the value without ``removed_fields``."""
    if isinstance(value, dict):
        result = dict(value)
        for name, inner in removed_fields.items():
            field = name.removeprefix("f:")
            if name == "." or field not in result:
                continue
            remaining = remove(_child(node, field), result[field], inner) if inner else None
            if remaining in (None, {}, []):
                del result[field]
            else:
                result[field] = remaining
        return result
    if isinstance(value, list):
        items = ((item, removed_fields.get(_item_identity(node, item))) for item in value)
        return [
            item if removed is None else remove(node.items or ANY, item, removed)
            for item, removed in items
            if not _is_removed(removed)
        ]
    return value


def _is_removed(removed: Json | None) -> bool:
    """Return whether a list item is removed entirely."""
    return removed is not None and (not removed or "." in removed)


def _item_identity(node: Node, item: Any) -> str:
    return _item_key(node, item) if node.list_type == "map" else f"v:{orjson.dumps(item).decode()}"


def combine(node: Node, old: Any, applied: Any) -> Any:
    """Merge the wanted value into the old one: objects and keyed lists are merged, other values replaced."""
    if isinstance(applied, dict) and isinstance(old, dict) and node.map_type != "atomic":
        merged = {name: combine(_child(node, name), old.get(name), part) for name, part in applied.items()}
        return {**old, **merged}
    if isinstance(applied, list) and isinstance(old, list) and node.list_type in ("map", "set"):
        existing = {_item_identity(node, item): item for item in old}
        merged_items = {
            _item_identity(node, item): combine(
                node.items or ANY, existing.get(_item_identity(node, item)), item
            )
            for item in applied
        }
        ordered = [merged_items.pop(key, item) for key, item in existing.items()]
        return [*ordered, *merged_items.values()]
    return applied


def leaves(fields_v1: Json, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the paths of leaf fields."""
    for name, inner in fields_v1.items():
        if name == ".":
            continue
        if inner:
            yield from leaves(inner, (*path, name))
        else:
            yield (*path, name)


def _value_at(node: Node, value: Any, path: tuple[str, ...]) -> Any:
    for step in path:
        if step.startswith("f:"):
            name = step.removeprefix("f:")
            node, value = _child(node, name), value.get(name, MISSING) if isinstance(value, dict) else MISSING
        else:
            items = value if isinstance(value, list) else []
            value = next((item for item in items if _item_identity(node, item) == step), MISSING)
            node = node.items or ANY
    return value


def _format_path(path: tuple[str, ...]) -> str:
    """Format a path as error messages do: ``.spec.containers[name="c"].image``."""
    text = ""
    for step in path:
        kind, _, rest = step.partition(":")
        if kind == "f":
            text += f".{rest}"
        elif kind == "k":
            keys = ",".join(
                f"{name}={field_errors.quoted(value)}" for name, value in orjson.loads(rest).items()
            )
            text += f"[{keys}]"
        else:
            text += f"[={rest}]"
    return text
