"""OpenAPI documents: the paths and schemas that kubectl reads. That of version 2 is empty.

The types of Kubernetes have no descriptions there, so ``kubectl explain`` shows only types and names of them.
"""

from typing import Any

from rallypoint.local.apiserver.apimachinery.unstructured import Json
from rallypoint.local.apiserver.resources import builtin
from rallypoint.local.apiserver.resources.catalog import Catalog
from rallypoint.local.apiserver.resources.resource import Resource
from rallypoint.local.apiserver.serving.discovery import VERSION

REF = "#/components/schemas/"

FIELD_VALIDATION = {
    "name": "fieldValidation",
    "in": "query",
    "schema": {"type": "string", "uniqueItems": True},
}

ACTIONS = {"get": "get", "put": "put", "patch": "patch", "delete": "delete"}


INFO = {"title": "Kubernetes", "version": VERSION["gitVersion"]}
EMPTY_V2 = {"swagger": "2.0", "info": INFO, "paths": {}}
"""The document of ``/openapi/v2``: kubectl reads it for kinds that no document of version 3 has, before it says that they do not exist."""
PROTOBUF_V2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""The media type of an empty message, which is an empty document."""


def index(catalog: Catalog) -> Json:
    """Return the document of ``/openapi/v3``, the index of the others."""
    paths = [
        _group_path(group, version) for group, found in catalog.group_versions().items() for version in found
    ]
    return {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}"} for path in paths}}


def _group_path(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


def document(catalog: Catalog, group: str, version: str) -> Json | None:
    """Return the document of a group version; None if it is not served."""
    found = [resource for resource in catalog if (resource.group, resource.version) == (group, version)]
    if not found:
        return None
    schemas: Json = {}
    for resource in found:
        schemas |= _schemas(resource)
    return {
        "openapi": "3.0.0",
        "info": INFO,
        "paths": {_path(resource): _path_item(resource) for resource in found},
        "components": {"schemas": schemas},
    }


def _path(resource: Resource) -> str:
    inside = "namespaces/{namespace}/" if resource.namespaced else ""
    return f"/{_group_path(resource.group, resource.version)}/{inside}{resource.plural}/{{name}}"


def _path_item(resource: Resource) -> Json:
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    name = _schema_name(resource)
    answer = {
        "200": {"content": {"application/json": {"schema": {"$ref": f"{REF}{name}"}}}, "description": "OK"}
    }
    item: Json = {}
    for method, action in ACTIONS.items():
        item[method] = {
            "operationId": f"{method}{resource.group}{resource.version}{resource.kind}",
            "responses": answer,
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": kind,
        }
    item["patch"]["parameters"] = [FIELD_VALIDATION]
    item["put"]["parameters"] = [FIELD_VALIDATION]
    return item


def _schema_name(resource: Resource) -> str:
    """Return the name of a resource's schema."""
    if not resource.custom:
        return builtin.schemas().kinds[f"{resource.group}/{resource.kind}"]
    return ".".join([*reversed(resource.group.split(".")), resource.version, resource.kind])


def _schemas(resource: Resource) -> Json:
    name = _schema_name(resource)
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    if resource.custom:
        return {name: {**resource.source, "x-kubernetes-group-version-kind": [kind]}}
    definitions = builtin.schemas().definitions
    pending, found = [name], dict[str, Any]()
    while pending:
        definition = pending.pop()
        if definition not in found:
            found[definition] = _publish(definitions[definition])
            pending += references(definitions[definition])
    return {**found, name: {**found[name], "x-kubernetes-group-version-kind": [kind]}}


def _publish(schema: Any) -> Any:
    """Return a stored schema with OpenAPI references."""
    if isinstance(schema, list):
        return [_publish(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    shown = {key: _publish(value) for key, value in schema.items() if key != "$ref"}
    if isinstance(schema.get("$ref"), str):
        target = {"$ref": REF + schema["$ref"]}
        return {**shown, "allOf": [target]} if shown else target
    return shown


def references(schema: Any) -> set[str]:
    """Return the definitions that a schema refers to."""
    if isinstance(schema, list):
        return set[str]().union(*(references(item) for item in schema))
    if not isinstance(schema, dict):
        return set()
    own = {schema["$ref"]} if isinstance(schema.get("$ref"), str) else set[str]()
    return own.union(*(references(item) for item in schema.values()))
