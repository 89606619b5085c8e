"""Suggests the name that a manifest meant by an unknown one; fields from the OpenAPI document of its API version. Pure."""

import difflib
import re
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

Schema: TypeAlias = Mapping[str, Any]

CUTOFF = 0.7
"""The least similarity of a suggestion, as difflib measures it."""
OBJECT_META = ("annotations", "finalizers", "generateName", "labels", "name", "namespace", "ownerReferences")
"""Fields of metadata, which the schema of a custom resource may omit."""
_REF = "#/components/schemas/"
_STEP = re.compile(r"[^.\[\]]+|\[\d+\]")
_KINDS = "x-kubernetes-group-version-kind"


def suggestion(document: Schema, group: str, kind: str, path: str) -> str:
    """Return the field to suggest instead of the unknown ``path``: a similar sibling by name, or the path of a field of that name elsewhere.

    Empty if there is none. ``document`` is that of ``/openapi/v3`` for one version of the group.
    """
    schemas: Schema = (document.get("components") or {}).get("schemas") or {}
    root = _root(schemas, group, kind)
    *parents, name = _STEP.findall(path)
    if root is None or name.startswith("["):
        return ""
    return similar(name, _siblings(schemas, root, parents)) or _find(schemas, root, name)


def similar(name: str, names: Iterable[str]) -> str:
    """Return the most similar of the names, in any case; empty if none is similar."""
    by_lower_case = {candidate.lower(): candidate for candidate in names}
    found = difflib.get_close_matches(name.lower(), by_lower_case, n=1, cutoff=CUTOFF)
    return by_lower_case[found[0]] if found else ""


def _root(schemas: Schema, group: str, kind: str) -> Schema | None:
    return next(
        (
            schema
            for schema in schemas.values()
            if any((entry["group"], entry["kind"]) == (group, kind) for entry in schema.get(_KINDS) or ())
        ),
        None,
    )


def _siblings(schemas: Schema, root: Schema, parents: list[str]) -> list[str]:
    """Return the names of the fields of the object at the path; none if the schema does not list them."""
    schema = root
    for step in parents:
        schema = _child(schemas, schema, step)
    if parents == ["metadata"]:
        return list(schema.get("properties") or OBJECT_META)
    return list(schema.get("properties") or ())


def _child(schemas: Schema, schema: Schema, step: str) -> Schema:
    if step.startswith("["):
        found = schema.get("items")
    else:
        found = (schema.get("properties") or {}).get(step) or schema.get("additionalProperties")
    return _resolved(schemas, found) if isinstance(found, Mapping) else {}


def _resolved(schemas: Schema, schema: Schema) -> Schema:
    """Follow a reference, also one in ``allOf``."""
    reference = next((part for part in (schema, *(schema.get("allOf") or ())) if "$ref" in part), None)
    return schemas.get(reference["$ref"].removeprefix(_REF), {}) if reference else schema


def _find(schemas: Schema, root: Schema, name: str) -> str:
    """Return the shortest path of a field with exactly this name; empty if there is none. ``*`` stands for any key."""
    pending = deque([("", root, frozenset[int]())])
    while pending:
        path, schema, parents = pending.popleft()
        if name in (schema.get("properties") or {}):
            return f"{path}.{name}".lstrip(".")
        if id(schema) in parents:
            continue  # A schema that contains itself.
        children = [(f".{field}", field) for field in schema.get("properties") or ()]
        children += [("[]", "[0]")] if schema.get("items") else []
        children += [(".*", "*")] if isinstance(schema.get("additionalProperties"), Mapping) else []
        pending.extend(
            (path + shown, _child(schemas, schema, step), parents | {id(schema)}) for shown, step in children
        )
    return ""
