"""One CustomResourceDefinition: names, versions, what kubectl prints and what can be scaled.

Source: training-operator 1.9, manifests/base/crds; the printer columns and scale paths are what users and HPAs rely on.
"""

from typing import Any

from api.job import Job, replica_field
from api.meta import Resource
from controller.crds.jobs import job_schema
from controller.crds.kubernetes import PodSchemas
from controller.crds.openapi import Schema

KUBERNETES_VERSION = "kubeflow.org/pod-template-version"
"""Annotation: the Kubernetes release whose pod template the definition contains."""

STATE = {"name": "State", "type": "string", "jsonPath": ".status.conditions[-1:].type"}
AGE = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}

SCALED_ROLE = "Worker"
"""The role that the scale subresource speaks of."""


def crd(resource: Resource, model: type[Job], pods: PodSchemas, *, scalable: bool = False) -> dict[str, Any]:
    """The definition of a kind: the resource's version is stored, the others of the model are served beside it.

    Objects go from version to version as they are, with no webhook, so all versions have the same fields.
    """
    beside = subresources(model, scalable)
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
            "versions": [
                version(name, job_schema(model, pods, name), beside, storage=name == resource.version)
                for name in (resource.version, *model.other_versions)
            ],
        },
    }


def names(resource: Resource) -> dict[str, str]:
    return {
        "kind": resource.kind,
        "listKind": f"{resource.kind}List",
        "plural": resource.plural,
        "singular": resource.singular,
    }


def version(name: str, schema: Schema, served_beside: Schema, *, storage: bool) -> dict[str, Any]:
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
    replicas = replica_field(model).wire_name
    return {
        "status": {},
        "scale": {
            "specReplicasPath": f".spec.{replicas}.{SCALED_ROLE}.replicas",
            "statusReplicasPath": f".status.replicaStatuses.{SCALED_ROLE}.active",
            "labelSelectorPath": f".status.replicaStatuses.{SCALED_ROLE}.selector",
        },
    }
