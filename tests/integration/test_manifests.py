"""``manifests`` in a real kube-apiserver: accepted as they are, and what their ServiceAccount may do."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.testing.controlplane import ControlPlane
from controller.testing.manifests import build

STANDALONE = Path(__file__).parents[2] / "manifests" / "overlays" / "standalone"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


@pytest.fixture(scope="module")
def installed(control_plane: ControlPlane) -> Iterator[list[dict[str, Any]]]:
    """The overlay, but for its Deployment: without a kubelet its pod would only lie about."""
    documents = [document for document in build(STANDALONE) if document["kind"] != "Deployment"]
    control_plane.apply(*documents)
    yield documents
    for kind in ("clusterrolebindings", "clusterroles"):
        control_plane.request("DELETE", f"/apis/rbac.authorization.k8s.io/v1/{kind}/training-operator")


def test_the_deployment_is_accepted(control_plane: ControlPlane, installed: list[dict[str, Any]]) -> None:
    (deployment,) = [document for document in build(STANDALONE) if document["kind"] == "Deployment"]
    path = f"/apis/apps/v1/namespaces/{deployment['metadata']['namespace']}/deployments"

    made = control_plane.request("POST", f"{path}?dryRun=All&fieldValidation=Strict", deployment)

    assert made["spec"]["template"]["spec"]["serviceAccountName"] == "training-operator"


def test_pod_security_accepts_its_pod(control_plane: ControlPlane, installed: list[dict[str, Any]]) -> None:
    (deployment,) = [document for document in build(STANDALONE) if document["kind"] == "Deployment"]
    template = deployment["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "trial"}, "spec": template["spec"]}
    path = f"/api/v1/namespaces/{deployment['metadata']['namespace']}/pods"

    made = control_plane.request("POST", f"{path}?dryRun=All&fieldValidation=Strict", pod)

    assert made["metadata"]["name"] == "trial"


def may(plane: ControlPlane, verb: str, group: str, resource: str) -> bool:
    resource, _, subresource = resource.partition("/")
    attributes = {
        "verb": verb, "group": group, "resource": resource, "subresource": subresource, "namespace": "anywhere",
    }  # fmt: skip
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": "system:serviceaccount:kubeflow:training-operator",
            "groups": ["system:serviceaccounts", "system:authenticated"],
            "resourceAttributes": attributes,
        },
    }
    return bool(plane.request("POST", REVIEWS, review)["status"]["allowed"])


@pytest.mark.parametrize(
    ("verbs", "group", "resource"),
    [
        ("get list watch delete", "kubeflow.org", "pytorchjobs"),
        ("patch", "kubeflow.org", "pytorchjobs/status"),
        ("update", "kubeflow.org", "pytorchjobs/finalizers"),
        ("get list watch create delete", "", "pods"),
        ("get list watch create delete", "", "services"),
        ("create patch", "", "events"),
        ("get create patch delete", "autoscaling", "horizontalpodautoscalers"),
    ],
)
def test_the_controller_may(
    control_plane: ControlPlane, installed: list[dict[str, Any]], verbs: str, group: str, resource: str
) -> None:
    control_plane.wait(
        "the binding", lambda: may(control_plane, verbs.split()[0], group, resource), seconds=10
    )

    assert [verb for verb in verbs.split() if not may(control_plane, verb, group, resource)] == []


@pytest.mark.parametrize(
    ("verbs", "group", "resource"),
    [
        pytest.param("create update patch", "kubeflow.org", "pytorchjobs", id="a spec is never written"),
        pytest.param("get list watch create update", "", "secrets", id="no feature needs secrets yet"),
        pytest.param("create", "", "pods/exec", id="nothing is executed in a pod"),
        pytest.param("update patch", "", "pods", id="pods are not adopted"),
        pytest.param(
            "create update patch", "rbac.authorization.k8s.io", "roles", id="no rights are handed on"
        ),
        pytest.param("get list watch", "", "nodes", id="nodes are not looked at"),
    ],
)
def test_the_controller_may_not(
    control_plane: ControlPlane, installed: list[dict[str, Any]], verbs: str, group: str, resource: str
) -> None:
    assert [verb for verb in verbs.split() if may(control_plane, verb, group, resource)] == []
