"""Converts the OpenAPI of an API server into structural schemas: pure functions over dicts.

An API server publishes its types as definitions that refer to each other, with descriptions, enumerations and patch
hints. A CustomResourceDefinition requires one tree without references and only some of the hints. ``select`` removes the parts that no
generated schema contains and keeps the references, so that the file of a Kubernetes release stays short; ``inline`` resolves them.

Enumerations are removed, because an older schema must not refuse the new values of a newer API server. Defaults are removed, except for
the keys of keyed lists, which a schema must either require or default; the API server sets the others when it creates the pod.
"""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any, cast

Schema = dict[str, Any]
Definitions = Mapping[str, Schema]

POD_TEMPLATE = "io.k8s.api.core.v1.PodTemplateSpec"
METRIC_SPEC = "io.k8s.api.autoscaling.v2.MetricSpec"
LABEL_SELECTOR = "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector"

TEXT_MAP: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
QUANTITY: Schema = {
    "x-kubernetes-int-or-string": True,
    "pattern": r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
}
EMBEDDED_META: Schema = {
    "type": "object",
    "properties": {
        "annotations": TEXT_MAP,
        "finalizers": {"type": "array", "items": {"type": "string"}},
        "labels": TEXT_MAP,
        "name": {"type": "string"},
        "namespace": {"type": "string"},
    },
}
"""The fields of a template's metadata that the schema keeps; the API server sets the others."""

_LEAVES: Definitions = {
    "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta": EMBEDDED_META,
    "io.k8s.apimachinery.pkg.api.resource.Quantity": QUANTITY,
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"x-kubernetes-int-or-string": True},
}
_COPIED_KEYS = (
    "type",
    "format",
    "required",
    "default",
    "x-kubernetes-map-type",
    "x-kubernetes-list-map-keys",
)
_PREFIX = "#/components/schemas/"


def select(published: Definitions, roots: Iterable[str]) -> dict[str, Schema]:
    """Return the definitions that ``roots`` need, reduced and ordered by name. KeyError: one is not published."""
    found: dict[str, Schema] = {}
    wanted = list(roots)
    while wanted:
        name = wanted.pop()
        if name not in found and name not in _LEAVES:
            found[name] = slim(published[name])
            wanted.extend(_references(found[name]))
    return dict(sorted(found.items()))


def slim(schema: Schema) -> Schema:
    """Return a published schema without the unused parts; references stay, as ``{"$ref": name}``."""
    if (target := _target(schema)) is not None:
        return {"$ref": target}
    result = {key: schema[key] for key in _COPIED_KEYS if key in schema}
    if schema.get("x-kubernetes-list-type") in {"map", "set"}:  # lists are "atomic" by default
        result["x-kubernetes-list-type"] = schema["x-kubernetes-list-type"]
    for key in ("items", "additionalProperties"):
        if key in schema:
            result[key] = _without_default(slim(schema[key]))
    if "properties" in schema:
        required = schema.get("required", ())
        # The default of a required field is Go's zero value, which the generator writes but nothing applies.
        result["properties"] = {
            name: _without_default(slim(field)) if name in required else slim(field)
            for name, field in schema["properties"].items()
        }
    return result


def inline(definitions: Definitions, name: str) -> Schema:
    """Return the structural schema of one definition. ValueError: it contains itself, which a structural schema cannot express."""
    return _inline(definitions, {"$ref": name}, keys=(), inside=())


def with_atomic_lists(schema: Schema) -> Schema:
    """Return a structural schema whose lists are all atomic: server-side apply tracks each as a whole, and elements may repeat.

    Defaults of keys stay, so that the API server stores the same objects.
    """
    result = {
        key: value
        for key, value in schema.items()
        if key not in {"x-kubernetes-list-type", "x-kubernetes-list-map-keys"}
    }
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            result[key] = with_atomic_lists(schema[key])
    if "properties" in schema:
        result["properties"] = {
            name: with_atomic_lists(field) for name, field in schema["properties"].items()
        }
    return result


def _inline(definitions: Definitions, schema: Schema, keys: Iterable[str], inside: tuple[str, ...]) -> Schema:
    """Resolve references. ``keys`` are the properties that are the keys of the list around this schema."""
    if (name := schema.get("$ref")) is not None:
        if name in _LEAVES:
            return deepcopy(_LEAVES[name])
        if name in inside:
            raise ValueError(f"{name} contains itself")
        return _inline(definitions, definitions[name], keys, (*inside, name))
    result = _without_default(schema)
    if "items" in schema:
        list_keys = schema.get("x-kubernetes-list-map-keys", ())
        result["items"] = _inline(definitions, schema["items"], list_keys, inside)
    if "additionalProperties" in schema:
        result["additionalProperties"] = _inline(definitions, schema["additionalProperties"], (), inside)
    if "properties" in schema:
        result["properties"] = {
            field: _inline(definitions, value, (), inside) | _key_default(value, field in keys)
            for field, value in schema["properties"].items()
        }
    return result


def _key_default(schema: Schema, is_key: bool) -> Schema:
    return {"default": schema["default"]} if is_key and "default" in schema else {}


def _without_default(schema: Schema) -> Schema:
    return {key: value for key, value in schema.items() if key != "default"}


def _target(schema: Schema) -> str | None:
    """Return the name that a schema refers to: directly, or as the only item of an ``allOf`` beside a default."""
    reference = schema.get("$ref")
    if reference is None and len(parts := schema.get("allOf", ())) == 1:
        reference = parts[0].get("$ref")
    return None if reference is None else str(reference).removeprefix(_PREFIX)


def _references(schema: Any) -> Iterable[str]:
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield schema["$ref"]
        for value in cast("Schema", schema).values():
            yield from _references(value)
