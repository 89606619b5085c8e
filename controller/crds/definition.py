"""One CustomResourceDefinition: names, versions, what kubectl prints and what can be scaled.

Source: training-operator 1.9, manifests/base/crds; the printer columns and scale paths are what users and HPAs rely on.
"""

from typing import Any

from api.job import Job
from api.meta import Resource
from controller.crds.jobs import SERVICE_NAME, job_schema, replica_field
from controller.crds.kubernetes import PodSchemas
from controller.crds.openapi import Schema

KUBERNETES_VERSION = "kubeflow.org/pod-template-version"
"""Annotation: the Kubernetes release whose pod template the definition contains."""

STATE = {"name": "State", "type": "string", "jsonPath": ".status.conditions[-1:].type"}
AGE = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}

SCALED_ROLE = "Worker"
"""The role that the scale subresource speaks of."""

WITHOUT_SERVICES = {"MPIJob"}
"""Kinds that make no Service a replica, so that a job may have any name that an object may have."""


def crd(resource: Resource, model: type[Job], pods: PodSchemas, *, scalable: bool = False) -> dict[str, Any]:
    """The definition of a kind that has one version, which is served and stored."""
    metadata: Schema = {"type": "object"} if resource.kind in WITHOUT_SERVICES else SERVICE_NAME
    schema = job_schema(model, pods, metadata)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{resource.plural}.{resource.group}",
            "annotations": {KUBERNETES_VERSION: pods.version},
        },
        "spec": {
            "group": resource.group,
            "names": names(resource),
            "scope": "Namespaced",
            "versions": [version(resource.version, schema, subresources(model, scalable))],
        },
    }


def names(resource: Resource) -> dict[str, str]:
    return {
        "kind": resource.kind,
        "listKind": f"{resource.kind}List",
        "plural": resource.plural,
        "singular": resource.singular,
    }


def version(name: str, schema: Schema, served_beside: Schema, *, storage: bool = True) -> dict[str, Any]:
    """One version of a definition; exactly one of them is stored."""
    return {
        "name": name,
        "served": True,
        "storage": storage,
        "subresources": served_beside,
        "additionalPrinterColumns": [STATE, AGE],
        "schema": {"openAPIV3Schema": schema},
    }


def subresources(model: type[Job], scalable: bool) -> Schema:
    """``/status`` for all, ``/scale`` for the kinds whose workers may change in number."""
    if not scalable:
        return {"status": {}}
    replicas, _ = replica_field(model)
    return {
        "status": {},
        "scale": {
            "specReplicasPath": f".spec.{replicas}.{SCALED_ROLE}.replicas",
            "statusReplicasPath": f".status.replicaStatuses.{SCALED_ROLE}.active",
            "labelSelectorPath": f".status.replicaStatuses.{SCALED_ROLE}.selector",
        },
    }
