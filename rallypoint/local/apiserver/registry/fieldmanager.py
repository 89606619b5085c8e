"""Server-side apply: a manager says which fields it wants; what it wanted before and no longer names goes.

Fields are remembered in ``metadata.managedFields`` as a cluster writes them, for managers that apply. Who creates or
updates is not remembered, so an apply never conflicts with those.

Source: structured-merge-diff, typed and fieldpath; the format is that of ``FieldsV1``.
"""

from collections.abc import Iterator
from typing import Any

import orjson

from rallypoint.local.apiserver.apimachinery import errors, field_errors
from rallypoint.local.apiserver.apimachinery.errors import StatusError
from rallypoint.local.apiserver.apimachinery.metadata import timestamp
from rallypoint.local.apiserver.apimachinery.unstructured import Json
from rallypoint.local.apiserver.registry.requests import Answer, Target, WriteOptions
from rallypoint.local.apiserver.registry.writer import Writer
from rallypoint.local.apiserver.schema.structural import MISSING, Node, shape
from rallypoint.local.apiserver.storage.store import Entry

ANY = Node()

IDENTITY = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "managedFields", "generation")
"""Metadata that an apply mentions to say what it is about; nobody owns it."""


def apply(writer: Writer, target: Target, wanted: Any, options: WriteOptions) -> Answer:
    """Make an object what its manager wants, or create it so.

    Raises:
        StatusError: 400, there is no manager; 409, another manager wants it otherwise.
    """
    if not options.manager:
        required = field_errors.required("fieldManager", "is required for apply patch")
        raise errors.invalid("meta.k8s.io", "PatchOptions", "", [required])
    if not isinstance(wanted, dict):
        raise errors.bad_request("error decoding YAML: the applied configuration is not an object")
    node = target.resource.schema
    _refuse_unknown(target, wanted)
    there = writer.collection(target.resource).entries.get((target.namespace, target.name))
    managed = FieldManager(
        target, options.manager, [] if there is None else there.metadata.get("managedFields", [])
    )
    own = fields(node, _owned(wanted))
    entry = managed.entry(own, timestamp(writer.clock()))
    if there is None:
        if target.subresource:
            raise target.missing
        body = {**wanted, "metadata": {**(wanted.get("metadata") or {}), "name": target.name}}
        return writer.create(target, body, options, managed_fields=[entry])
    _refuse_conflicts(managed, node, own, wanted, there, force=options.force)

    def merged(old: Json) -> Json:
        kept = remove(node, old, managed.abandoned(own))
        laid: Json = combine(node, kept, {**_owned(wanted), "metadata": (wanted.get("metadata") or {})})
        return laid

    others = [other for other in managed.others if other["fieldsV1"]]
    if options.force:
        others = [{**other, "fieldsV1": without(other["fieldsV1"], own)} for other in others]
    return writer.apply(target, merged, options, [entry, *(other for other in others if other["fieldsV1"])])


def _refuse_unknown(target: Target, wanted: Json) -> None:
    unknown: list[str] = []
    shape(target.resource.schema, wanted, unknown)
    if unknown:
        resource = target.resource
        about = f"{target.namespace}/{target.name}; {resource.api_version}, Kind={resource.kind}"
        listed = "; ".join(f".{path}: field not declared in schema" for path in sorted(unknown))
        raise StatusError(500, "", f"failed to create typed patch object ({about}): {listed}")


def _owned(wanted: Json) -> Json:
    """What of an applied object can be owned."""
    given = {key: value for key, value in (wanted.get("metadata") or {}).items() if key not in IDENTITY}
    rest = {key: value for key, value in wanted.items() if key not in ("apiVersion", "kind", "metadata")}
    return {**rest, "metadata": given} if given else rest


class FieldManager:
    """The managers of one object, seen by one of them."""

    def __init__(self, target: Target, manager: str, listed: list[Json]) -> None:
        self._target = target
        self._manager = manager
        mine = [entry for entry in listed if self._is_mine(entry)]
        self.others = [entry for entry in listed if not self._is_mine(entry)]
        self._before: Json = mine[0]["fieldsV1"] if mine else {}

    def _is_mine(self, entry: Json) -> bool:
        place = (entry.get("manager"), entry.get("subresource", ""))
        return place == (self._manager, self._target.subresource)

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

    def abandoned(self, own: Json) -> Json:
        """What the manager wanted before and nobody wants now."""
        left = without(self._before, own)
        for other in self.others:
            left = without(left, other["fieldsV1"])
        return left


def _refuse_conflicts(
    managed: FieldManager, node: Node, own: Json, wanted: Json, there: Entry, *, force: bool
) -> None:
    if force:
        return
    changed = [path for path in leaves(own) if _at(node, wanted, path) != _at(node, there.object, path)]
    found = [
        (other["manager"], path)
        for other in managed.others
        for path in changed
        if path in set(leaves(other["fieldsV1"]))
    ]
    if not found:
        return
    causes = [
        {"reason": "FieldManagerConflict", "message": f'conflict with "{manager}"', "field": _shown(path)}
        for manager, path in found
    ]
    plural = "s" if len(found) > 1 else ""
    message = f"Apply failed with {len(found)} conflict{plural}: {_told(found)}"
    raise StatusError(409, "Conflict", message, {"causes": causes})


def _told(found: list[tuple[str, tuple[str, ...]]]) -> str:
    """Conflicts in words: one in a line, several by their managers."""
    if len(found) == 1:
        ((manager, path),) = found
        return f'conflict with "{manager}": {_shown(path)}'
    lines: list[str] = []
    for manager in sorted({manager for manager, _ in found}):
        lines.append(f'conflicts with "{manager}":')
        lines += [f"- {_shown(path)}" for other, path in found if other == manager]
    return "\n".join(lines)


def fields(node: Node, value: Any) -> Json:
    """The fields that a value sets, in the form of FieldsV1; {} for one that is owned whole."""
    if isinstance(value, dict) and node.map_type != "atomic":
        return {f"f:{name}": fields(_part(node, name), part) for name, part in value.items()}
    if isinstance(value, list) and node.list_type == "map":
        return {_key(node, item): {".": {}, **fields(node.items or ANY, item)} for item in value}
    if isinstance(value, list) and node.list_type == "set":
        return {f"v:{orjson.dumps(item).decode()}": {} for item in value}
    return {}


def _part(node: Node, name: str) -> Node:
    return node.properties.get(name) or node.additional or ANY


def _key(node: Node, item: Any) -> str:
    given = item if isinstance(item, dict) else {}
    keys = {name: given.get(name, _default(node, name)) for name in node.map_keys}
    known = {name: value for name, value in keys.items() if value is not None}
    return f"k:{orjson.dumps(known, option=orjson.OPT_SORT_KEYS).decode()}"


def _default(node: Node, name: str) -> Any:
    default = _part(node.items or ANY, name).default
    return None if default is MISSING else default


def without(these: Json, those: Json) -> Json:
    """The fields of these that are not among those; a field that still holds others stays."""
    left: Json = {}
    for name, inner in these.items():
        if name not in those:
            left[name] = inner
        elif inner and (rest := without(inner, those[name])):
            left[name] = rest
    return left


def remove(node: Node, value: Any, gone: Json) -> Any:
    """The value without the fields of ``gone``; what is shared with it is not changed."""
    if isinstance(value, dict):
        result = dict(value)
        for name, inner in gone.items():
            field = name.removeprefix("f:")
            if name == "." or field not in result:
                continue
            kept = remove(_part(node, field), result[field], inner) if inner else None
            if kept in (None, {}, []):
                del result[field]
            else:
                result[field] = kept
        return result
    if isinstance(value, list):
        items = ((item, gone.get(_identity(node, item))) for item in value)
        return [
            item if lost is None else remove(node.items or ANY, item, lost)
            for item, lost in items
            if not _whole(lost)
        ]
    return value


def _whole(lost: Json | None) -> bool:
    """Whether an item of a list goes altogether."""
    return lost is not None and (not lost or "." in lost)


def _identity(node: Node, item: Any) -> str:
    return _key(node, item) if node.list_type == "map" else f"v:{orjson.dumps(item).decode()}"


def combine(node: Node, old: Any, wanted: Any) -> Any:
    """The old value with the wanted one laid over it: objects and keyed lists are merged, the rest replaced."""
    if isinstance(wanted, dict) and isinstance(old, dict) and node.map_type != "atomic":
        merged = {name: combine(_part(node, name), old.get(name), part) for name, part in wanted.items()}
        return {**old, **merged}
    if isinstance(wanted, list) and isinstance(old, list) and node.list_type in ("map", "set"):
        there = {_identity(node, item): item for item in old}
        laid = {
            _identity(node, item): combine(node.items or ANY, there.get(_identity(node, item)), item)
            for item in wanted
        }
        kept = [laid.pop(key, item) for key, item in there.items()]
        return [*kept, *laid.values()]
    return wanted


def leaves(these: Json, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of the fields that are owned for themselves."""
    for name, inner in these.items():
        if name == ".":
            continue
        if inner:
            yield from leaves(inner, (*path, name))
        else:
            yield (*path, name)


def _at(node: Node, value: Any, path: tuple[str, ...]) -> Any:
    for step in path:
        if step.startswith("f:"):
            name = step.removeprefix("f:")
            node, value = _part(node, name), value.get(name, MISSING) if isinstance(value, dict) else MISSING
        else:
            items = value if isinstance(value, list) else []
            value = next((item for item in items if _identity(node, item) == step), MISSING)
            node = node.items or ANY
    return value


def _shown(path: tuple[str, ...]) -> str:
    """A path as the messages write it: ``.spec.containers[name="c"].image``."""
    shown = ""
    for step in path:
        kind, _, rest = step.partition(":")
        if kind == "f":
            shown += f".{rest}"
        elif kind == "k":
            keys = ",".join(
                f"{name}={field_errors.quoted(value)}" for name, value in orjson.loads(rest).items()
            )
            shown += f"[{keys}]"
        else:
            shown += f"[={rest}]"
    return shown
