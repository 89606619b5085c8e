"""Derives the schema of a job from its wire model, so that model and schema cannot diverge.

The tables of ``facts`` add what a Python type cannot express, and the docstrings of the fields their descriptions. The schemas of pod
templates and other fields that the model keeps as dicts come from a Kubernetes release. A field of an unknown type, or without a docstring,
raises TypeError.

Source: training-operator 1.9, manifests/base/crds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from api.job import Job, ReplicaSpec, ReplicaStatus
from api.meta import Wire
from api.times import Time
from controller.crds import descriptions
from controller.crds.facts import Facts, facts
from controller.crds.kubernetes import PodSchemas
from controller.crds.openapi import QUANTITY, Schema
from controller.crds.rules import MOST_CONTAINERS, MOST_ROLES, creation_rules, update_rules
from controller.kind.validation_rules import ValidationRule

_SCALARS: Mapping[Any, Schema] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer", "format": "int32"},
    Time: {"type": "string", "format": "date-time"},
    int | str: QUANTITY,
}

METADATA: Schema = {"type": "object", "properties": {"name": {"type": "string"}}}
"""Names the one field of the metadata that rules refer to."""


ANYTHING: Schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}

LABEL_SELECTOR = "Deprecated. The operator never writes it."
"""The description of a field that the models do not have."""


def job_schema(
    model: type[Job],
    pods: PodSchemas,
    version: str,
    rules: Sequence[ValidationRule] = (),
    describe: Callable[[str], str] = descriptions.full,
) -> Schema:
    """Return the structural schema of a kind in one of its versions. The API server prunes fields that it does not name.

    Args:
        describe: shortens a description.
    """
    made = _Schemas(pods, facts(model, version), describe)
    spec = made.field(model, "spec", model.model_fields["spec"])
    status = made.field(model, "status", model.model_fields["status"])
    schema: Schema = {
        "description": describe(descriptions.of_model(model)),
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": METADATA,
            "spec": spec,
            "status": status,
        },
    }
    checks = [*creation_rules(rules), *update_rules(rules)] if rules else []
    return schema | ({"x-kubernetes-validations": checks} if checks else {})


@dataclass(frozen=True, slots=True)
class _Schemas:
    """Builds schemas of models, with the pods of one release, and the facts and descriptions of one version."""

    pods: PodSchemas
    facts: Facts
    describe: Callable[[str], str]

    def object(self, model: type[Wire]) -> Schema:
        fields = model.model_fields
        schema: Schema = {"type": "object"}
        if required := [field.alias or name for name, field in fields.items() if _is_required(field)]:
            schema["required"] = required
        schema["properties"] = {
            field.alias or name: self.field(model, name, field) for name, field in fields.items()
        }
        if model is ReplicaStatus:  # deprecated upstream and never written, but readers may expect the field
            schema["properties"]["labelSelector"] = {
                "description": self.describe(LABEL_SELECTOR),
                **self.pods.label_selector,
            }
        return schema

    def field(self, model: type[Wire], name: str, field: FieldInfo) -> Schema:
        annotation = _without_none(field.annotation)
        try:
            if annotation == dict[str, Any] and name == "template":
                schema = _template(self.pods.template)
            elif annotation == list[dict[str, Any]] and name == "metrics":
                schema = {"type": "array", "items": self.pods.metric_spec}
            else:
                schema = self._type(annotation) | self._fact(model, name)
            return {"description": self.describe(descriptions.of_field(model, name))} | schema
        except TypeError as error:
            raise TypeError(f"{model.__name__}.{name}: {error}") from error

    def _fact(self, model: type[Wire], name: str) -> Schema:
        """Return the facts about the model itself or its base classes."""
        holders = [base for base in model.__mro__ if issubclass(base, Wire)]
        return next((self.facts[base, name] for base in holders if (base, name) in self.facts), {})

    def _type(self, annotation: Any) -> Schema:
        if annotation in _SCALARS:
            return dict(_SCALARS[annotation])
        if get_origin(annotation) is list:
            return {"type": "array", "items": self._type(get_args(annotation)[0])}
        if get_origin(annotation) is dict:
            bound = {"maxProperties": MOST_ROLES} if _is_replica_map(annotation) else {}
            return {"type": "object", "additionalProperties": self._type(get_args(annotation)[1]), **bound}
        if isinstance(annotation, type) and issubclass(annotation, Wire):
            return self.object(annotation)
        raise TypeError(
            f"no schema is known for {annotation}; use str, int, bool, a list, a dict or a subclass of Wire"
        )


def _template(template: Schema) -> Schema:
    """Return the schema of a pod template with a bound for the containers. The argument is shared and stays as it is.

    The API server accepts no pod with ephemeral containers. They take an eighth of a definition's bytes, so they have no schema; they are
    kept, so that the pod is refused with the API server's own message.
    """
    spec = template.get("properties", {}).get("spec", {})
    if "containers" not in spec.get("properties", {}):
        return template
    fields = {
        **spec["properties"],
        "containers": {**spec["properties"]["containers"], "maxItems": MOST_CONTAINERS},
        "ephemeralContainers": {"type": "array", "items": ANYTHING},
    }
    return {**template, "properties": {**template["properties"], "spec": {**spec, "properties": fields}}}


def _is_required(field: FieldInfo) -> bool:
    return field.is_required() or _is_replica_map(field.annotation)


def _is_replica_map(annotation: Any) -> bool:
    return bool(_without_none(annotation) == dict[str, ReplicaSpec])


def _without_none(annotation: Any) -> Any:
    """Return the type without ``None``: an optional field may be absent, but is never null."""
    if get_origin(annotation) not in {Union, UnionType}:
        return annotation
    first, *others = (part for part in get_args(annotation) if part is not type(None))
    for other in others:
        first = first | other
    return first
