"""A page for each kind: every field of ours with its type, default and description, by version."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import orjson

from api.job import replica_field
from controller.crds.definition import subresources
from controller.crds.jobs import job_schema
from controller.crds.kubernetes import shipped
from controller.crds.openapi import Schema
from controller.kind import JobKind
from controller.kinds import ALL
from controller.kinds.mpi import MPI
from controller.kinds.mpi.names import LAUNCHER, WORKER
from tools.markdown import cell, code, table

EXPLANATIONS: Mapping[str, str] = {
    MPI.resource.kind: "[MPIJob](../mpijob.md) explains v2beta1, [MPIJob of v1 and v1alpha2](../mpijob-v1.md) the others, "
    "and [versions and flavors](../mpijob-versions.md) which of them a job follows."
}
"""Kinds that have more pages than the one of their name."""

KUBERNETES: Mapping[str, str] = {
    "template": "PodTemplateSpec",
    "metrics": "array of MetricSpec",
    "labelSelector": "LabelSelector",
}
"""Fields whose type is one of Kubernetes; no page describes what is inside."""

_DEFAULT = re.compile(r" ?Defaults to (.+?)\.(?= |$)")
_TYPES = {"int64": "integer (64 bit)", "date-time": "time"}


def pages() -> dict[str, str]:
    """Return the pages by path."""
    return {f"api/{kind.resource.singular}.md": "".join(_page(kind)) for kind in ALL}


@dataclass(frozen=True)
class Node:
    """A place in the schemas of a kind: the schema of each version, in the order of the definition."""

    path: str
    schemas: Mapping[str, Schema]

    @cached_property
    def any(self) -> Schema:
        """The schema of the first version. Versions differ only in descriptions, defaults and rules."""
        return next(iter(self.schemas.values()))

    def below(self, step: str, suffix: str) -> "Node":
        schemas = {version: schema[step] for version, schema in self.schemas.items()}
        return Node(f"{self.path}{suffix}", schemas)

    def fields(self) -> Iterator[tuple[str, "Node"]]:
        for name in self.any.get("properties", {}):
            schemas = {version: schema["properties"][name] for version, schema in self.schemas.items()}
            yield name, Node(f"{self.path}.{name}", schemas)

    def contents(self) -> "Node":
        """Return the elements of a list or the values of a map; anything else is itself."""
        if "items" in self.any:
            return self.below("items", "[]")
        if "additionalProperties" in self.any:
            return self.below("additionalProperties", "[role]")
        return self


def _page(kind: JobKind[Any]) -> Iterator[str]:
    resource, model = kind.resource, kind.model
    versions = (resource.version, *model.other_versions)
    schemas = {
        version: job_schema(model, shipped(), version, kind.validation_rules)["properties"]
        for version in versions
    }
    description = job_schema(model, shipped(), resource.version)["description"]
    explanation = EXPLANATIONS.get(
        resource.kind, f"[{resource.kind}](../{resource.singular}.md) explains how such a job behaves."
    )
    yield (
        f"# Fields of {resource.kind}\n\n"
        "<!-- Made by `make docs` from the docstrings in api/; edit those instead. -->\n\n"
        f"{description} {explanation} `kubectl explain {resource.singular}.spec` shows these descriptions too.\n"
    )
    yield "\n"
    for name, value in _facts(kind, versions):
        yield f"- {name}: {value}\n"
    known = _role_defaults(kind)
    for part in ("spec", "status"):
        root = Node(part, {version: properties[part] for version, properties in schemas.items()})
        yield from _objects(root, known)
    yield "\n## Validation\n\nThe API server refuses a job that breaks one of these rules; [validation](../validation.md) has the details.\n"
    yield from table(("field", "rule", "also for updates"), _rules(kind))


def _facts(kind: JobKind[Any], versions: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    resource = kind.resource
    yield "API versions", code(*(f"{resource.group}/{version}" for version in versions))
    yield "resource", code(f"{resource.plural}.{resource.group}") + ", namespaced"
    yield "subresources", code(*subresources(kind.model, kind.scalable))
    yield "pod templates", f"those of Kubernetes {shipped().version}"


def _role_defaults(kind: JobKind[Any]) -> Mapping[str, Mapping[str, str]]:
    """Return by field and version what the operator takes for a role that leaves the field out."""
    variants = getattr(kind, "flavors", {kind.resource.version: kind})
    names = getattr(kind, "role_names", (LAUNCHER, WORKER))
    field = replica_field(kind.model)
    job = kind.model.model_validate({"spec": {field.wire_name: {name: {} for name in names}}})
    known: dict[str, dict[str, str]] = {"replicas": {}, "restartPolicy": {}}
    for version, variant in variants.items():
        roles = variant.roles(job)
        known["replicas"][version] = _by_role({name: str(role.replicas) for name, role in roles.items()})
        known["restartPolicy"][version] = _by_role(
            {name: role.restart_policy for name, role in roles.items()}
        )
    return known


def _by_role(values: Mapping[str, str]) -> str:
    """Return one value for all roles, or that of each."""
    if len(set(values.values())) == 1:
        return code(next(iter(values.values())))
    return ", ".join(f"{code(value)} ({role})" for role, value in values.items())


def _objects(node: Node, known: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Yield the table of an object, then those of the objects in it. ``known`` are defaults that take precedence over described ones."""
    yield f"\n## {node.path}\n"
    required = set(node.any.get("required", ()))
    fields = list(node.fields())
    rows = (
        (code(name), _type(name, field, is_required=name in required), *_texts(field, known.get(name, {})))
        for name, field in fields
    )
    yield from table(("field", "type", "default", "description"), rows)
    for name, field in fields:
        contents = field.contents()
        if "properties" in contents.any and name not in KUBERNETES:
            yield from _objects(contents, known)


def _type(name: str, node: Node, *, is_required: bool) -> str:
    text = KUBERNETES.get(name) or _type_of(node)
    if choices := node.any.get("enum"):
        text = f"{text}: {code(*choices)}"
    return f"{text}, required" if is_required else text


def _type_of(node: Node) -> str:
    schema = node.any
    if "properties" in schema:
        anchor = re.sub(r"[^\w\- ]", "", node.path.lower())
        return f"[object](#{anchor})"
    if "items" in schema:
        return f"array of {_type_of(node.contents())}"
    if "additionalProperties" in schema:
        return f"map of {_type_of(node.contents())}"
    if schema.get("x-kubernetes-int-or-string"):
        return "quantity"
    return _TYPES.get(schema.get("format", ""), str(schema["type"]))


def _texts(node: Node, known: Mapping[str, str]) -> tuple[str, str]:
    """Return default and description."""
    defaults: dict[str, str] = {}
    descriptions: dict[str, str] = {}
    for version, schema in node.schemas.items():
        text = schema["description"]
        named = _DEFAULT.search(text)
        by_server = code(orjson.dumps(schema["default"]).decode().strip('"')) if "default" in schema else ""
        defaults[version] = known.get(version) or (named[1] if named else by_server)
        descriptions[version] = _DEFAULT.sub("", text).strip()
    return _by_version(defaults, "; "), _by_version(descriptions, " ")


def _by_version(texts: Mapping[str, str], separator: str) -> str:
    """Return one text for all versions, or that of each."""
    versions: dict[str, list[str]] = {}
    for version, text in texts.items():
        versions.setdefault(text, []).append(version)
    if len(versions) == 1:
        return cell(next(iter(versions)))
    return cell(separator.join(f"{', '.join(names)}: {text}" for text, names in versions.items() if text))


def _rules(kind: JobKind[Any]) -> Iterator[tuple[str, str, str]]:
    yield code("spec"), "a job must have a spec", "no"
    for rule in kind.validation_rules:
        field = "metadata.name" if rule.field == "name" else f"spec{rule.field}"
        yield code(field), cell(rule.message), "yes" if rule.on_update else "no"
