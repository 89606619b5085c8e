"""CustomResourceDefinitions: validation, and the resources that they define.

Source: apiextensions-apiserver, pkg/apis/apiextensions/validation and pkg/apiserver/customresource_handler.go.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from rallypoint.local.apiserver.apimachinery import field_errors
from rallypoint.local.apiserver.apimachinery.field_errors import FieldError, quoted
from rallypoint.local.apiserver.apimachinery.selectors import path_reader
from rallypoint.local.apiserver.apimachinery.unstructured import Json
from rallypoint.local.apiserver.resources.columns import BUILTIN, CREATED_AT, NAME
from rallypoint.local.apiserver.resources.resource import Column, Resource, Scale, Strategy
from rallypoint.local.apiserver.schema.structural import Node, compiled

GROUP = "apiextensions.k8s.io"

STEP = re.compile(
    r"\.?(?:(?P<name>[^.\[\]]+)|\[(?P<index>-?\d+|\*|-?\d*:-?\d*|\?\(.*?\))\]|\[['\"](?P<quoted>.*?)['\"]\])"
)

FILTER = re.compile(r"\?\(\s*@\.(?P<path>[\w.]+)\s*==\s*(?P<quote>['\"]?)(?P<value>.*?)(?P=quote)\s*\)")


def default(definition: Json) -> Json:
    spec = definition.setdefault("spec", {})
    names = spec.setdefault("names", {})
    kind = names.get("kind", "")
    names.setdefault("singular", kind.lower())
    names.setdefault("listKind", f"{kind}List")
    spec.setdefault("conversion", {"strategy": "None"})
    return definition


def prepare(definition: Json) -> Json:
    """Prepare a new definition, accepted and established at once."""
    now = definition["metadata"]["creationTimestamp"]
    spec = definition["spec"]
    definition["status"] = {
        "conditions": [
            _condition("NamesAccepted", now, "NoConflicts", "no conflicts found"),
            _condition("Established", now, "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        "acceptedNames": spec["names"],
        "storedVersions": [version["name"] for version in spec["versions"] if version.get("storage")],
    }
    return definition


def prepare_update(definition: Json) -> Json:
    """Add the storage version of a changed definition to ``status.storedVersions``."""
    status, storage = definition.get("status") or {}, _storage(definition)
    stored = status.get("storedVersions") or []
    if storage in stored:
        return definition
    return {**definition, "status": {**status, "storedVersions": [*stored, storage]}}


def _storage(definition: Json) -> str:
    """Return the storage version; "" if no version is marked, which is not valid."""
    versions = definition["spec"].get("versions") or []
    return next((version["name"] for version in versions if version.get("storage")), "")


def collection(definition: Json) -> str:
    """Return the name of the collection of a definition's objects."""
    return f"{definition['spec']['group']}/{definition['spec']['names']['plural']}"


def _condition(kind: str, now: str, reason: str, message: str) -> Json:
    return {"type": kind, "status": "True", "lastTransitionTime": now, "reason": reason, "message": message}


def validate(definition: Json) -> Iterator[FieldError]:
    spec, names = definition["spec"], definition["spec"]["names"]
    expected = f"{names.get('plural', '')}.{spec.get('group', '')}"
    if definition["metadata"].get("name") != expected:
        detail = 'must be spec.names.plural+"."+spec.group'
        yield field_errors.invalid("metadata.name", definition["metadata"].get("name", ""), detail)
    for field in ("group", "scope"):
        if not spec.get(field):
            yield field_errors.required(f"spec.{field}")
    for field in ("plural", "kind"):
        if not names.get(field):
            yield field_errors.required(f"spec.names.{field}")
    versions = spec.get("versions") or []
    if sum(1 for version in versions if version.get("storage")) != 1:
        detail = "must have exactly one version marked as storage version"
        yield field_errors.invalid("spec.versions", versions, detail)
    for i, version in enumerate(versions):
        yield from _validate_version(version, f"spec.versions[{i}]")


def validate_update(definition: Json, old: Json) -> Iterator[FieldError]:
    """``spec.versions`` must contain every stored version."""
    names = [version["name"] for version in definition["spec"].get("versions") or []]
    for i, name in enumerate((definition.get("status") or {}).get("storedVersions") or ()):
        if name not in names:
            detail = (
                f"missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions "
                f"until a storage migration ensures no data remains persisted in {name} and removes {name} from "
                "status.storedVersions"
            )
            yield field_errors.invalid(f"status.storedVersions[{i}]", name, detail)


def _validate_version(version: Json, path: str) -> Iterator[FieldError]:
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    if not schema:
        yield field_errors.required(f"{path}.schema.openAPIV3Schema")
        return
    if schema.get("type") != "object":
        field = f"{path}.schema.openAPIV3Schema.type"
        detail = "must be object at the root"
        yield (
            field_errors.invalid(field, schema["type"], detail)
            if schema.get("type")
            else field_errors.required(field, detail)
        )
    try:
        compiled(schema)
    except (ValueError, re.error) as error:
        yield field_errors.invalid(f"{path}.schema.openAPIV3Schema", "", str(error))


STRATEGY = Strategy(
    default=default,
    prepare_create=prepare,
    prepare_update=prepare_update,
    validate=validate,
    validate_update=validate_update,
    counts_generation=True,
)


def definition_resource(schema: Node) -> Resource:
    """Return the resource ``customresourcedefinitions``."""
    return Resource(
        group=GROUP,
        version="v1",
        kind="CustomResourceDefinition",
        plural="customresourcedefinitions",
        singular="customresourcedefinition",
        namespaced=False,
        short_names=("crd", "crds"),
        categories=("api-extensions",),
        schema=schema,
        strategy=STRATEGY,
        subresources=("status",),
        columns=BUILTIN["CustomResourceDefinition"],
    )


def resources(definition: Json, metadata: Node) -> list[Resource]:
    """Return the resources of a definition, one per served version; ``metadata`` is the schema of ObjectMeta."""
    spec, names = definition["spec"], definition["spec"]["names"]
    schemas = {
        version["name"]: _schema(version["schema"]["openAPIV3Schema"], metadata)
        for version in spec["versions"]
    }
    return [
        _resource(spec, names, version, _storage(definition), schemas)
        for version in spec["versions"]
        if version.get("served")
    ]


def _resource(spec: Json, names: Json, version: Json, storage: str, schemas: Mapping[str, Node]) -> Resource:
    subresources = version.get("subresources") or {}
    return Resource(
        group=spec["group"],
        version=version["name"],
        kind=names["kind"],
        plural=names["plural"],
        singular=names["singular"],
        list_kind=names["listKind"],
        namespaced=spec["scope"] == "Namespaced",
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        schema=schemas[version["name"]],
        strategy=Strategy(counts_generation=True, status_owns_metadata=False, requires_version=True),
        subresources=tuple(name for name in ("status", "scale") if name in subresources),
        scale=_scale(subresources.get("scale")),
        columns=_columns(version.get("additionalPrinterColumns")),
        fields={
            field["jsonPath"].lstrip("."): path_reader(field["jsonPath"].lstrip("."))
            for field in version.get("selectableFields") or ()
        },
        custom=True,
        source=version["schema"]["openAPIV3Schema"],
        storage_version=storage,
        forms={f"{spec['group']}/{name}": schema for name, schema in schemas.items()},
    )


def _schema(schema: Json, metadata: Node) -> Node:
    """Return the compiled schema of a resource with the fields that every object has."""
    root = compiled(schema)
    text = Node(type="string")
    own = root.properties.get("metadata", metadata).properties
    name_limits: dict[str, Node] = {name: own[name] for name in ("name", "generateName") if name in own}
    object_meta = replace(metadata, properties={**metadata.properties, **name_limits})
    return replace(
        root, properties={**root.properties, "apiVersion": text, "kind": text, "metadata": object_meta}
    )


def _scale(paths: Json | None) -> Scale | None:
    if paths is None:
        return None
    fields = ("specReplicasPath", "statusReplicasPath", "labelSelectorPath")
    return Scale(*(tuple(filter(None, paths.get(field, "").split("."))) for field in fields))


def _columns(columns: list[Json] | None) -> tuple[Column, ...]:
    if not columns:
        return (NAME, Column("Age", CREATED_AT.cell, type="date", reads="age"))
    return NAME, *(
        Column(
            column["name"],
            _typed_cell(json_path(column["jsonPath"]), column["type"]),
            type=column["type"],
            reads="age" if column["type"] == "date" else "",
            unknown=None,
            format=column.get("format", ""),
            description=column.get("description", ""),
            priority=column.get("priority", 0),
        )
        for column in columns
    )


def _typed_cell(read: Callable[[Json], Any], kind: str) -> Callable[[Json], Any]:
    """Return a cell of a column type: strings show any value, the others only values of their type."""

    def cell(obj: Json) -> Any:
        value = read(obj)
        match kind:
            case "string":
                return value if value is None or isinstance(value, str) else quoted(value)
            case "integer":
                return int(value) if isinstance(value, int | float) else None
            case "number":
                return float(value) if isinstance(value, int | float) else None
            case "boolean":
                return value if isinstance(value, bool) else None
            case _:
                return value if isinstance(value, str) else None

    return cell


def json_path(path: str) -> Any:
    """Return a reader of a printer column's JSONPath: names, indexes, slices, ``[*]`` and equality filters."""
    steps = [(m["name"] or m["quoted"], m["index"]) for m in STEP.finditer(path)]

    def read(obj: Json) -> Any:
        values: list[Any] = [obj]
        for name, index in steps:
            values = [found for value in values for found in _step(value, name, index)]
        return values[0] if values else None

    return read


def _step(value: Any, name: str | None, index: str | None) -> list[Any]:
    if name is not None:
        return [value[name]] if isinstance(value, dict) and name in value else []
    if not isinstance(value, list) or index is None:
        return []
    if index == "*":
        return value
    if index.startswith("?"):
        if (equality := FILTER.fullmatch(index)) is None:
            return []
        return [item for item in value if path_reader(equality["path"])(item) == equality["value"]]
    if ":" in index:
        start, _, end = index.partition(":")
        return value[int(start) if start else None : int(end) if end else None]
    position = int(index)
    return [value[position]] if -len(value) <= position < len(value) else []
