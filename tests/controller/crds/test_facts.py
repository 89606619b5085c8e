"""The CustomResourceDefinition of MPIJob: three versions with the same fields, and their differences."""

from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from api.mpijob import RESOURCE, Flavor, MPIJob
from controller.crds.definition import crd
from controller.crds.kubernetes import shipped
from controller.crds.openapi import Schema
from controller.kinds.mpi import MPI

UPSTREAM = """
    spec.mpiReplicaSpecs.*.replicas  spec.mpiReplicaSpecs.*.restartPolicy  spec.mpiReplicaSpecs.*.template.metadata.labels
    spec.mpiReplicaSpecs.*.template.spec.containers  spec.slotsPerWorker  spec.cleanPodPolicy  spec.mainContainer
    spec.backoffLimit  spec.activeDeadlineSeconds  spec.mpiDistribution  spec.runLauncherAsWorker  spec.sshAuthMountPath
    spec.launcherCreationPolicy  spec.mpiImplementation  spec.runPolicy.cleanPodPolicy
    spec.runPolicy.ttlSecondsAfterFinished  spec.runPolicy.activeDeadlineSeconds  spec.runPolicy.backoffLimit
    spec.runPolicy.suspend  spec.runPolicy.managedBy  spec.runPolicy.schedulingPolicy.minAvailable
    spec.runPolicy.schedulingPolicy.queue  spec.runPolicy.schedulingPolicy.minResources.*
    spec.runPolicy.schedulingPolicy.priorityClass  spec.runPolicy.schedulingPolicy.scheduleTimeoutSeconds
    status.conditions.[].type  status.conditions.[].status  status.conditions.[].reason  status.conditions.[].message
    status.conditions.[].lastUpdateTime  status.conditions.[].lastTransitionTime  status.replicaStatuses.*.active
    status.replicaStatuses.*.succeeded  status.replicaStatuses.*.failed  status.replicaStatuses.*.selector
    status.replicaStatuses.*.labelSelector.matchLabels  status.startTime  status.completionTime  status.lastReconcileTime
"""
"""Every field of the originals, in all their versions together."""

QUEUE = "spec.runPolicy.schedulingPolicy.queue"
DIFFERENCES: dict[str, dict[str, Schema]] = {
    "v1": {
        "spec.flavor": {"default": "v1"},
        "spec.runPolicy": {"default": {}},
        "spec.runPolicy.managedBy": {"default": "kubeflow.org/training-operator"},
        "spec.runPolicy.suspend": {"default": False},
    },
    "v2beta1": {
        "spec.flavor": {"default": "v2beta1"},
        "spec.runPolicy": {"default": {}},
        "spec.runPolicy.managedBy": {"default": "kubeflow.org/mpi-operator"},
        "spec.runPolicy.suspend": {"default": False},
        "spec.slotsPerWorker": {"default": 1},
        "spec.runLauncherAsWorker": {"default": False},
        "spec.sshAuthMountPath": {"default": "/root/.ssh"},
        "spec.launcherCreationPolicy": {"default": "AtStartup"},
        "spec.mpiImplementation": {"default": "OpenMPI"},
    },
    "v1alpha2": {
        "spec.flavor": {"default": "v1alpha2"},
        "spec.runPolicy": {"default": {}},
        "spec.runPolicy.managedBy": {"default": "kubeflow.org/mpi-operator"},
    },
}
"""All that one version says and another does not, but for the rule on the queue."""


@pytest.fixture(scope="module")
def definition() -> dict[str, Any]:
    return crd(RESOURCE, MPIJob, shipped())


@pytest.fixture(scope="module")
def schemas(definition: dict[str, Any]) -> dict[str, Schema]:
    return {
        version["name"]: version["schema"]["openAPIV3Schema"] for version in definition["spec"]["versions"]
    }


def test_a_single_version_is_stored_and_all_are_served(definition: dict[str, Any]) -> None:
    versions = definition["spec"]["versions"]

    assert [(version["name"], version["served"], version["storage"]) for version in versions] == [
        ("v1", True, True),
        ("v2beta1", True, False),
        ("v1alpha2", True, False),
    ]
    assert all(version["subresources"] == {"status": {}} for version in versions)
    assert all(len(version["additionalPrinterColumns"]) == 2 for version in versions)
    assert "conversion" not in definition["spec"]  # which is no webhook


@pytest.mark.parametrize("version", DIFFERENCES)
def test_every_field_of_the_originals_exists(schemas: dict[str, Schema], version: str) -> None:
    assert set(UPSTREAM.split()) - dict(fields(schemas[version])).keys() == set()


@pytest.mark.parametrize("version", DIFFERENCES)
def test_versions_have_no_other_differences(schemas: dict[str, Schema], version: str) -> None:
    """Without their descriptions and defaults the three schemas are equal."""
    found = {
        path: node
        for path, node in fields(schemas[version])
        if "default" in node and ".template." not in path
    }
    queue = dict(fields(schemas[version]))[QUEUE].get("x-kubernetes-validations", [])

    assert {path: {"default": node["default"]} for path, node in found.items()} == DIFFERENCES[version]
    assert [rule["message"] for rule in queue] == [f"{QUEUE} is immutable"] * (version == "v1")
    assert orjson.dumps(bare(schemas[version])) == orjson.dumps(bare(schemas["v1"]))


@pytest.mark.parametrize("version", DIFFERENCES)
def test_the_flavor_has_a_default_and_is_immutable(schemas: dict[str, Schema], version: str) -> None:
    flavor = dict(fields(schemas[version]))["spec.flavor"]
    (rule,) = flavor["x-kubernetes-validations"]

    assert flavor["enum"] == ["v1", "v1alpha2", "v2beta1"]
    assert rule["rule"] == "self == oldSelf"
    assert rule["message"].startswith("the flavor of an MPIJob is immutable")


@pytest.mark.parametrize("version", DIFFERENCES)
def test_the_manager_is_the_go_operator_of_the_version(schemas: dict[str, Schema], version: str) -> None:
    manager = dict(fields(schemas[version]))["spec.runPolicy.managedBy"]

    assert manager["default"] == MPI.flavors[Flavor(version)].managed_by


@pytest.mark.parametrize("version", DIFFERENCES)
def test_no_field_is_nullable(schemas: dict[str, Schema], version: str) -> None:
    """The API server then drops the nulls that the MPI Operator of 2020 stored."""
    assert b'"nullable"' not in orjson.dumps(schemas[version])


def test_conditions_are_keyed_by_type(schemas: dict[str, Schema]) -> None:
    conditions = dict(fields(schemas["v1"]))["status.conditions"]

    assert (conditions["x-kubernetes-list-type"], conditions["x-kubernetes-list-map-keys"]) == (
        "map",
        ["type"],
    )


def fields(schema: Schema, prefix: str = "") -> Iterator[tuple[str, Schema]]:
    children = {f"{prefix}{name}": child for name, child in schema.get("properties", {}).items()}
    if "additionalProperties" in schema:
        children[f"{prefix}*"] = schema["additionalProperties"]
    if "items" in schema:
        children[f"{prefix}[]"] = schema["items"]
    for path, child in children.items():
        yield path, child
        yield from fields(child, f"{path}.")


def bare(schema: Schema, path: str = "") -> Schema:
    """The schema without what may differ between versions."""
    bare_schema = {
        key: value
        for key, value in schema.items()
        if key not in {"description", "properties", "items", "additionalProperties"}
    }
    if ".template." not in path:
        bare_schema.pop("default", None)
    if path == QUEUE:
        bare_schema.pop("x-kubernetes-validations", None)
    if "properties" in schema:
        join = f"{path}." if path else ""
        bare_schema["properties"] = {
            name: bare(child, f"{join}{name}") for name, child in schema["properties"].items()
        }
    if "items" in schema:
        bare_schema["items"] = bare(schema["items"], f"{path}.[]")
    if "additionalProperties" in schema:
        bare_schema["additionalProperties"] = bare(schema["additionalProperties"], f"{path}.*")
    return bare_schema
