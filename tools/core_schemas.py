"""Generates ``core.json``: the schemas of the built-in resources, from the OpenAPI documents of kube-apiserver.

    .venv/bin/python tools/core_schemas.py DOCUMENT...

The documents are those under ``/openapi/v3``. The generator drops descriptions and zero defaults and keeps what pruning,
defaulting, merging and validation need. Run it once per Kubernetes release.
"""

import sys
from pathlib import Path

import orjson

from rallypoint.local.apiserver.apimachinery.unstructured import Json
from rallypoint.local.apiserver.resources import builtin
from rallypoint.local.apiserver.serving.openapi import REF, references

TARGET = Path(builtin.__file__).with_name("core.json")

USED_FIELDS = (
    "type", "format", "required", "enum", "x-kubernetes-list-type", "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type", "x-kubernetes-patch-merge-key", "x-kubernetes-patch-strategy",
)  # fmt: skip

KINDS = {
    "": {
        "Pod", "Service", "ConfigMap", "Secret", "Namespace", "Node", "ServiceAccount", "Event", "Endpoints",
        "PersistentVolume", "PersistentVolumeClaim", "Binding",
    },
    "batch": {"Job"},
    "autoscaling": {"HorizontalPodAutoscaler", "Scale"},
    "coordination.k8s.io": {"Lease"},
    "events.k8s.io": {"Event"},
    "apiextensions.k8s.io": {"CustomResourceDefinition"},
    "rbac.authorization.k8s.io": {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"},
    "scheduling.k8s.io": {"PriorityClass"},
    "storage.k8s.io": {"StorageClass"},
}  # fmt: skip
"""The kinds whose schemas are kept, by group; their references are kept too."""

VERSIONS = {("autoscaling", "HorizontalPodAutoscaler"): "v2"}
"""The kept version of kinds that have more than one."""


def reduce_schema(schema: Json) -> Json:
    """Return a schema with only the kept fields."""
    schema = _unwrap(schema)
    result: Json = {key: schema[key] for key in USED_FIELDS if key in schema}
    if schema.get("format") == "int-or-string" or "oneOf" in schema:
        return {"x-kubernetes-int-or-string": True, "format": schema.get("format", "quantity")}
    if "$ref" in schema:
        result["$ref"] = schema["$ref"].removeprefix(REF)
    if schema.get("default"):
        result["default"] = schema["default"]
    if "properties" in schema:
        result["properties"] = {name: reduce_schema(part) for name, part in schema["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            result[key] = reduce_schema(schema[key])
    if result == {"type": "object"}:
        result["x-kubernetes-preserve-unknown-fields"] = True
    return result


def _unwrap(schema: Json) -> Json:
    """Unwrap a reference in an ``allOf`` of one element."""
    if len(schema.get("allOf", ())) != 1:
        return schema
    inner: Json = schema["allOf"][0]
    return {key: value for key, value in schema.items() if key != "allOf"} | inner


def collect(documents: list[Json]) -> Json:
    """Return the kept kinds (``group/kind`` to definition name) and the definitions that they need."""
    schemas: dict[str, Json] = {}
    for document in documents:
        schemas |= document["components"]["schemas"]
    kinds: dict[str, str] = {}
    for name, schema in schemas.items():
        for gvk in schema.get("x-kubernetes-group-version-kind", ()):
            group, kind = gvk["group"], gvk["kind"]
            if kind in KINDS.get(group, ()) and gvk["version"] == VERSIONS.get((group, kind), "v1"):
                kinds[f"{group}/{kind}"] = name
    pending, definitions = sorted(kinds.values()), dict[str, Json]()
    while pending:
        name = pending.pop()
        if name not in definitions:
            definitions[name] = reduce_schema(schemas[name])
            pending += sorted(references(definitions[name]))
    return {"kinds": dict(sorted(kinds.items())), "definitions": dict(sorted(definitions.items()))}


def main(paths: list[str]) -> None:
    if not paths:
        sys.exit("name the OpenAPI documents of an API server")
    documents = [orjson.loads(Path(path).read_bytes()) for path in paths]
    TARGET.write_bytes(orjson.dumps(collect(documents)) + b"\n")


if __name__ == "__main__":
    main(sys.argv[1:])
