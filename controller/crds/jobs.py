"""The schema of a job, made from its wire model, so that model and schema cannot drift apart.

What a Python type cannot say is in the tables here: widths of integers, transition rules, the fields that are passed
through as dicts. A field that neither a type nor a table describes raises TypeError.

Source: training-operator 1.9, manifests/base/crds and pkg/webhooks.
"""

from collections.abc import Mapping
from datetime import datetime
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from api.job import Job, JobSpec, ReplicaSpec, ReplicaStatus, RunPolicy, SchedulingPolicy
from api.labels import MANAGED_BY_MULTIKUEUE, MANAGED_BY_US
from api.meta import Wire
from controller.crds.kubernetes import PodSchemas
from controller.crds.openapi import QUANTITY, Schema

_SCALARS: Mapping[Any, Schema] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer", "format": "int32"},
    datetime: {"type": "string", "format": "date-time"},
    int | str: QUANTITY,
}

_MANAGED_BY = "(has({0}.runPolicy) && has({0}.runPolicy.managedBy) ? {0}.runPolicy.managedBy : '')"  # never '' by its enum

_FACTS: Mapping[tuple[type[Wire], str], Schema] = {
    (RunPolicy, "active_deadline_seconds"): {"format": "int64"},
    (RunPolicy, "suspend"): {"default": False},
    # As the webhooks of the original have it, in the words of the API server.
    (RunPolicy, "managed_by"): {"enum": [MANAGED_BY_US, MANAGED_BY_MULTIKUEUE]},
    (SchedulingPolicy, "queue"): {
        "x-kubernetes-validations": [
            {"rule": "self == oldSelf", "message": "spec.runPolicy.schedulingPolicy.queue is immutable"}
        ]
    },
    # Differs: the original takes a negative number and then makes no pods, or one for ever.
    (ReplicaSpec, "replicas"): {"minimum": 0},
}
"""Merged over what the field's type says."""

_SPEC_RULES = [
    {
        # On the spec, since a rule on the field itself is silent when the field is added or taken away.
        "rule": f"{_MANAGED_BY.format('self')} == {_MANAGED_BY.format('oldSelf')}",
        "message": "field is immutable",
        "fieldPath": ".runPolicy.managedBy",
    }
]

SERVICE_NAME: Schema = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 63, "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$"}},
}
"""The metadata of kinds whose replicas have Services: a Service of any other name would be refused, for ever."""


def job_schema(model: type[Job], pods: PodSchemas, metadata: Schema) -> Schema:
    """The structural schema of a kind, closed: fields it does not name are pruned.

    ``metadata`` may restrict the job's name, and nothing else.
    """
    spec, status = model.model_fields["spec"], model.model_fields["status"]
    return {
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": metadata,
            "spec": _field(model, "spec", spec, pods),
            "status": _field(model, "status", status, pods),
        },
    }


def replica_field(model: type[Job]) -> tuple[str, FieldInfo]:
    """The field of the spec that maps roles to replica specs, by its name on the wire."""
    spec = _plain(model.model_fields["spec"].annotation)
    for name, field in spec.model_fields.items():
        if _is_replica_map(field.annotation):
            return field.alias or name, field
    raise TypeError(f"{spec.__name__} has no replica specs")


def _object(model: type[Wire], pods: PodSchemas) -> Schema:
    fields = model.model_fields
    schema: Schema = {"type": "object"}
    if required := [field.alias or name for name, field in fields.items() if _is_required(field)]:
        schema["required"] = required
    schema["properties"] = {
        field.alias or name: _field(model, name, field, pods) for name, field in fields.items()
    }
    if issubclass(model, JobSpec):
        schema["x-kubernetes-validations"] = _SPEC_RULES
    if model is ReplicaStatus:  # deprecated upstream and never written, but what reads it must find the field
        schema["properties"]["labelSelector"] = pods.label_selector
    return schema


def _field(model: type[Wire], name: str, field: FieldInfo, pods: PodSchemas) -> Schema:
    annotation = _plain(field.annotation)
    if annotation == dict[str, Any] and name == "template":
        return pods.template
    if annotation == list[dict[str, Any]] and name == "metrics":
        return {"type": "array", "items": pods.metric_spec}
    try:
        return _type(annotation, pods) | _FACTS.get((model, name), {})
    except TypeError as error:
        raise TypeError(f"{model.__name__}.{name}: {error}") from error


def _type(annotation: Any, pods: PodSchemas) -> Schema:
    if annotation in _SCALARS:
        return dict(_SCALARS[annotation])
    if get_origin(annotation) is list:
        return {"type": "array", "items": _type(get_args(annotation)[0], pods)}
    if get_origin(annotation) is dict:
        return {"type": "object", "additionalProperties": _type(get_args(annotation)[1], pods)}
    if isinstance(annotation, type) and issubclass(annotation, Wire):
        return _object(annotation, pods)
    raise TypeError(f"no schema is known for {annotation}")


def _is_required(field: FieldInfo) -> bool:
    return field.is_required() or _is_replica_map(field.annotation)


def _is_replica_map(annotation: Any) -> bool:
    return bool(_plain(annotation) == dict[str, ReplicaSpec])


def _plain(annotation: Any) -> Any:
    """The type without ``None``: on the wire a field that may be absent is never null."""
    if get_origin(annotation) not in {Union, UnionType}:
        return annotation
    first, *others = (part for part in get_args(annotation) if part is not type(None))
    for other in others:
        first = first | other
    return first
