"""The CustomResourceDefinition of every kind: printer columns, scaling, size and structural schemas."""

from collections.abc import Iterator
from typing import Any

import pytest

from api.v1.pytorchjob import RESOURCE, PyTorchJob
from controller.crds import all_crds
from controller.crds.definition import crd
from controller.crds.kubernetes import PodSchemas, shipped
from controller.crds.openapi import Schema
from controller.kinds import ALL
from tests.support.last_applied import MOST_BYTES, annotations_bytes

RESERVED_BYTES = 8 * 1024
"""For the annotations that overlays and other tools add to a definition."""

DEFINITIONS = [pytest.param(definition, id=definition["metadata"]["name"]) for definition in all_crds()]


def test_every_kind_has_a_definition() -> None:
    assert [definition["spec"]["names"]["kind"] for definition in all_crds()] == [
        kind.resource.kind for kind in ALL
    ]


@pytest.mark.parametrize("definition", DEFINITIONS)
def test_the_definition_fits_into_the_annotation_of_kubectl(definition: dict[str, Any]) -> None:
    """Of all limits for its size, this is the lowest: etcd accepts objects of 1.5 MiB, and only server-side apply does without the annotation."""
    assert annotations_bytes(definition) + RESERVED_BYTES <= MOST_BYTES


@pytest.mark.parametrize("definition", DEFINITIONS)
def test_schemas_are_structural(definition: dict[str, Any]) -> None:
    """Each node has a type, and nothing stands in it that only an API server's own types may have."""
    allowed = {
        "description", "type", "format", "properties", "required", "items", "additionalProperties", "default", "enum", "pattern",
        "maxItems", "maxProperties", "x-kubernetes-int-or-string", "x-kubernetes-list-type", "x-kubernetes-list-map-keys",
        "x-kubernetes-map-type", "x-kubernetes-validations", "x-kubernetes-preserve-unknown-fields", "minimum", "maximum", "minItems",
    }  # fmt: skip
    for path, schema in nodes(definition):
        assert "type" in schema or schema.get("x-kubernetes-int-or-string"), path
        assert schema.keys() <= allowed, path


@pytest.mark.parametrize("definition", DEFINITIONS)
def test_keys_of_lists_are_required_or_defaulted(definition: dict[str, Any]) -> None:
    keyed = [(path, node) for path, node in nodes(definition) if "x-kubernetes-list-map-keys" in node]

    assert keyed
    for path, schema in keyed:
        item = schema["items"]
        for key in schema["x-kubernetes-list-map-keys"]:
            assert key in item.get("required", ()) or "default" in item["properties"][key], f"{path} {key}"


@pytest.mark.parametrize("definition", DEFINITIONS)
def test_a_single_version_is_stored(definition: dict[str, Any]) -> None:
    assert [version["storage"] for version in definition["spec"]["versions"]].count(True) == 1


def test_names_of_pytorchjob() -> None:
    definition = crd(RESOURCE, PyTorchJob, shipped())

    assert definition["metadata"]["name"] == "pytorchjobs.kubeflow.org"
    assert definition["spec"]["names"] == {
        "kind": "PyTorchJob",
        "listKind": "PyTorchJobList",
        "plural": "pytorchjobs",
        "singular": "pytorchjob",
    }
    assert definition["spec"]["scope"] == "Namespaced"


def test_kubectl_prints_state_and_age() -> None:
    (version,) = crd(RESOURCE, PyTorchJob, shipped())["spec"]["versions"]

    assert [(column["name"], column["jsonPath"]) for column in version["additionalPrinterColumns"]] == [
        ("State", ".status.conditions[-1:].type"),
        ("Age", ".metadata.creationTimestamp"),
    ]


def test_workers_can_be_scaled() -> None:
    (version,) = crd(RESOURCE, PyTorchJob, shipped(), scalable=True)["spec"]["versions"]

    assert version["subresources"] == {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.pytorchReplicaSpecs.Worker.replicas",
            "statusReplicasPath": ".status.replicaStatuses.Worker.active",
            "labelSelectorPath": ".status.replicaStatuses.Worker.selector",
        },
    }


def test_other_kinds_cannot_be_scaled() -> None:
    (version,) = crd(RESOURCE, PyTorchJob, shipped())["spec"]["versions"]

    assert version["subresources"] == {"status": {}}


@pytest.mark.parametrize("definition", DEFINITIONS)
def test_no_enumeration_or_limit_of_our_own_blocks_updates(definition: dict[str, Any]) -> None:
    """On Kubernetes 1.29, such limits apply to unchanged fields of stored jobs, too. The bounds of roles and containers are out of reach.

    Our own fields of the run policy have had their limits from the beginning, so no stored job breaks them.
    """
    limits = {"minimum", "maxLength", "pattern", "minItems", "minProperties"}
    for path, schema in nodes(definition):
        ours = (".failurePolicy", ".successPolicy", ".pendingTimeoutSeconds")
        is_new = any(f".runPolicy{field}" in path for field in ours)
        if ".template." in path or is_new or "x-kubernetes-int-or-string" in schema:
            continue
        assert limits.isdisjoint(schema), path
        assert "enum" not in schema or path.endswith((".flavor", ".mpiImplementation", ".managedBy")), path


def test_the_definition_names_the_kubernetes_release() -> None:
    pods = PodSchemas("v1.99.0", {"type": "object"}, {"type": "object"}, {"type": "object"})

    annotations = crd(RESOURCE, PyTorchJob, pods)["metadata"]["annotations"]

    assert annotations == {"kubeflow.org/pod-template-version": "v1.99.0"}


def nodes(definition: dict[str, Any]) -> Iterator[tuple[str, Schema]]:
    for version in definition["spec"]["versions"]:
        yield from below(version["schema"]["openAPIV3Schema"], version["name"])


def below(schema: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from below(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from below(schema[key], f"{path}.{key}")
