"""The objects in ``manifests`` against the contract and against each other; a real API server has its say in integration."""

from pathlib import Path
from typing import Any

import pytest

from controller.kinds import ALL
from controller.testing.manifests import build

MANIFESTS = Path(__file__).parents[2] / "manifests"


@pytest.fixture(scope="module")
def objects() -> dict[str, dict[str, Any]]:
    """The objects of the overlay ``standalone`` by kind; there is one of each but for the definitions."""
    return {document["kind"]: document for document in build(MANIFESTS / "overlays" / "standalone")}


def test_what_is_installed(objects: dict[str, dict[str, Any]]) -> None:
    installed = {kind: document["metadata"]["name"] for kind, document in objects.items()}
    del installed["CustomResourceDefinition"]

    assert installed == {
        "Namespace": "kubeflow",
        "ServiceAccount": "training-operator",
        "ClusterRole": "training-operator",
        "ClusterRoleBinding": "training-operator",
        "Deployment": "training-operator",
        "Service": "training-operator",
    }


def test_everything_is_in_the_namespace_that_is_made(objects: dict[str, dict[str, Any]]) -> None:
    placed = {
        document["metadata"]["namespace"]
        for document in objects.values()
        if "namespace" in document["metadata"]
    }
    (subject,) = objects["ClusterRoleBinding"]["subjects"]

    assert placed == {objects["Namespace"]["metadata"]["name"]} == {subject["namespace"]}


def test_the_service_reaches_the_pods(objects: dict[str, dict[str, Any]]) -> None:
    template = objects["Deployment"]["spec"]["template"]
    ports = {
        port["containerPort"]
        for container in template["spec"]["containers"]
        for port in container.get("ports", ())
    }
    service = objects["Service"]

    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    assert service["metadata"]["annotations"]["prometheus.io/port"] == str(
        service["spec"]["ports"][0]["port"]
    )


def test_the_role_covers_every_kind(objects: dict[str, dict[str, Any]]) -> None:
    granted = {
        resource
        for rule in objects["ClusterRole"]["rules"]
        if rule["apiGroups"] == ["kubeflow.org"]
        for resource in rule["resources"]
    }

    for kind in ALL:
        plural = kind.resource.plural
        assert {plural, f"{plural}/status", f"{plural}/finalizers"} <= granted


def test_the_role_grants_nothing_by_wildcard(objects: dict[str, dict[str, Any]]) -> None:
    rules = objects["ClusterRole"]["rules"]

    assert not any("*" in rule[field] for rule in rules for field in ("apiGroups", "resources", "verbs"))


def test_the_pod_may_run_in_a_restricted_namespace(objects: dict[str, dict[str, Any]]) -> None:
    """The rules of Pod Security's profile ``restricted``, and a read-only root file system beside."""
    assert objects["Namespace"]["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]

    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "memory" in container["resources"]["limits"]
