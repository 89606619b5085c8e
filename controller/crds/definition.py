"""Builds one CustomResourceDefinition: names, versions, printer columns and the scale subresource.

Source: training-operator 1.9, manifests/base/crds; users and HPAs rely on the printer columns and scale paths.
"""

from collections.abc import Sequence
from typing import Any

from api.job import Job, replica_field
from api.meta import Resource
from controller.crds.descriptions import form
from controller.crds.jobs import job_schema
from controller.crds.kubernetes import PodSchemas
from controller.crds.openapi import Schema
from controller.kind.validation_rules import ValidationRule

KUBERNETES_VERSION = "kubeflow.org/pod-template-version"
"""Annotation with the Kubernetes release whose pod template the definition contains."""

STATE = {"name": "State", "type": "string", "jsonPath": ".status.conditions[-1:].type"}
AGE = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}

SCALED_ROLE = "Worker"
"""The role that the scale subresource changes."""


def crd(
    resource: Resource,
    model: type[Job],
    pods: PodSchemas,
    *,
    scalable: bool = False,
    rules: Sequence[ValidationRule] = (),
) -> dict[str, Any]:
    """Return the definition of a kind. The resource's version is the storage version; the model's other versions are also served.

    All versions have the same fields, because there is no conversion webhook.
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
                version(
                    name,
                    job_schema(model, pods, name, rules, form(model, name, resource.version)),
                    beside,
                    storage=name == resource.version,
                )
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
    """Return one version of a definition; exactly one version is stored."""
    return {
        "name": name,
        "served": True,
        "storage": storage,
        "subresources": served_beside,
        "additionalPrinterColumns": [STATE, AGE],
        "schema": {"openAPIV3Schema": schema},
    }


def subresources(model: type[Job], scalable: bool) -> Schema:
    """Return ``/status`` for all kinds, and ``/scale`` for the kinds with a variable number of workers."""
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
