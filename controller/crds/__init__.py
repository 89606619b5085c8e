"""The CustomResourceDefinitions of all kinds, made from the wire types and the pod template of a Kubernetes release.

``openapi`` turns what an API server publishes into structural schemas, ``kubernetes`` holds the release that ships,
``jobs`` makes the schema of a job from its model and ``facts``, ``definition`` puts the two into a CustomResourceDefinition.
"""

from collections.abc import Iterable
from typing import Any

from controller.crds.definition import crd
from controller.crds.kubernetes import PodSchemas, shipped
from controller.kind import JobKind
from controller.kinds import ALL


def all_crds(schemas: PodSchemas | None = None, kinds: Iterable[JobKind[Any]] = ALL) -> list[dict[str, Any]]:
    """The CustomResourceDefinition of every kind, with the shipped pod template unless others are given."""
    pod_schemas = schemas or shipped()
    return [crd(kind.resource, kind.model, pod_schemas, scalable=kind.scalable) for kind in kinds]
