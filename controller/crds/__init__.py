"""Generates the CustomResourceDefinitions of all kinds from the wire types and the pod template of a Kubernetes release.

``openapi`` converts the OpenAPI of an API server into structural schemas. ``kubernetes`` contains the shipped release.
``jobs`` makes the schema of a job from its model, ``facts`` and the kind's validation ``rules``. ``definition`` combines them into a CustomResourceDefinition.
"""

from collections.abc import Iterable
from typing import Any

from controller.crds.definition import crd
from controller.crds.kubernetes import PodSchemas, shipped
from controller.kind import JobKind
from controller.kinds import ALL


def all_crds(schemas: PodSchemas | None = None, kinds: Iterable[JobKind[Any]] = ALL) -> list[dict[str, Any]]:
    """Return the CustomResourceDefinition of every kind, with the shipped pod template unless others are given."""
    pod_schemas = schemas or shipped()
    return [
        crd(kind.resource, kind.model, pod_schemas, scalable=kind.scalable, rules=kind.validation_rules)
        for kind in kinds
    ]
