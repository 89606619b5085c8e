"""``manifests`` in a real kube-apiserver: it accepts them, and the ServiceAccount has its permissions."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.kinds import DEFAULT
from rallypoint.testing.controlplane import ControlPlane, binaries
from rallypoint.testing.manifests import build
from rallypoint.testing.service import ACCOUNT, MXJOB, OPERATOR_NAMESPACE, STANDALONE, install

LEASE = "1ca428e5.training-operator.kubeflow.org"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


@pytest.fixture(scope="module", autouse=True)
def installed(control_plane: ControlPlane) -> Iterator[None]:
    install(control_plane)
    yield
    for kind in ("clusterrolebindings", "clusterroles"):
        for name in ("training-operator", "training-operator-mpi"):
            control_plane.request("DELETE", f"/apis/rbac.authorization.k8s.io/v1/{kind}/{name}")


def kustomize(folder: Path) -> list[dict[str, Any]]:
    """What ``kubectl kustomize`` makes of it."""
    kubectl = binaries.ensure(["kubectl"])["kubectl"]
    made = subprocess.run(
        [str(kubectl), "kustomize", str(folder)], capture_output=True, text=True, check=True
    )
    return list(yaml.load_all(made.stdout, Loader=yaml.CSafeLoader))


def in_order(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(documents, key=lambda document: (document["kind"], document["metadata"]["name"]))


@pytest.mark.parametrize("overlay", ["standalone", "without-mpi", "kubeflow", "mpi-v1"])
def test_kustomize_builds_the_same_objects(overlay: str) -> None:
    """But for a namespace that it gives to FlowSchemas, not knowing that they have none."""
    made = kustomize(STANDALONE.parent / overlay)
    for document in made:
        if document["kind"] == "FlowSchema":
            del document["metadata"]["namespace"]

    assert in_order(made) == in_order(build(STANDALONE.parent / overlay))


@pytest.mark.parametrize(
    ("components", "added"),
    [
        (["mxjob"], ("CustomResourceDefinition", "mxjobs.kubeflow.org")),
        (["monitoring"], ("ConfigMap", "training-operator-dashboard-jobs")),
        (["secure-metrics"], ("ClusterRole", "training-operator-metrics-reader")),
        (["monitoring", "secure-metrics"], ("ServiceMonitor", "training-operator")),
    ],
)
def test_kustomize_adds_components_as_the_builder_of_the_tests_does(
    tmp_path: Path, components: list[str], added: tuple[str, str]
) -> None:
    """Some patch the Deployment, the Service or another component, one generates ConfigMaps; tests/manifests checks objects with the builder alone."""
    (tmp_path / "kustomization.yaml").write_text(
        yaml.safe_dump(
            {
                "namespace": OPERATOR_NAMESPACE,
                "resources": [os.path.relpath(STANDALONE, tmp_path)],
                "components": [
                    os.path.relpath(MXJOB.parent / component, tmp_path) for component in components
                ],
            }
        )
    )

    made = kustomize(tmp_path)

    for document in made:
        if document["kind"] == "FlowSchema":
            del document["metadata"]["namespace"]
    names = {(document["kind"], document["metadata"]["name"]) for document in made}
    assert added in names
    assert in_order(made) == in_order(build(tmp_path))


def test_kustomize_builds_the_same_objects_for_one_namespace(tmp_path: Path) -> None:
    overlay = os.path.relpath(STANDALONE.parent / "namespaced", tmp_path)
    (tmp_path / "kustomization.yaml").write_text(
        yaml.safe_dump({"namespace": "team", "resources": [overlay]})
    )

    assert in_order(kustomize(tmp_path)) == in_order(build(tmp_path))


def test_an_overlay_can_change_namespace_and_names(tmp_path: Path) -> None:
    """The overlay installs a second operator beside one of the same names; its account gets the permissions."""
    base = Path(os.path.relpath(STANDALONE.parents[1] / "base", tmp_path))
    overlay = {"resources": [str(base)], "namespace": "elsewhere", "nameSuffix": "-two"}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))

    made = kustomize(tmp_path)

    subject = {"kind": "ServiceAccount", "name": "training-operator-two", "namespace": "elsewhere"}
    bindings = [manifest for manifest in made if "subjects" in manifest]
    assert {manifest["kind"] for manifest in bindings} == {"RoleBinding", "ClusterRoleBinding"}
    assert all(manifest["subjects"] == [subject] for manifest in bindings)
    (pods,) = [manifest for manifest in made if manifest["kind"] == "Deployment"]
    assert pods["spec"]["template"]["spec"]["serviceAccountName"] == "training-operator-two"


def deployment() -> dict[str, Any]:
    (found,) = [document for document in build(STANDALONE) if document["kind"] == "Deployment"]
    return found


def test_the_deployment_is_accepted(control_plane: ControlPlane) -> None:
    path = f"/apis/apps/v1/namespaces/{OPERATOR_NAMESPACE}/deployments?dryRun=All&fieldValidation=Strict"

    made = control_plane.request("POST", path, deployment())

    assert made["spec"]["template"]["spec"]["serviceAccountName"] == "training-operator"


def test_the_network_policy_is_accepted(control_plane: ControlPlane) -> None:
    (policy,) = build(STANDALONE.parents[1] / "components" / "network-policy")
    path = f"/apis/networking.k8s.io/v1/namespaces/{OPERATOR_NAMESPACE}/networkpolicies?dryRun=All&fieldValidation=Strict"

    made = control_plane.request("POST", path, policy)

    assert made["spec"]["policyTypes"] == ["Ingress", "Egress"]


def test_the_roles_for_users_are_accepted(control_plane: ControlPlane) -> None:
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles?dryRun=All&fieldValidation=Strict"
    roles = build(STANDALONE.parents[1] / "components" / "user-roles")

    made = [control_plane.request("POST", path, role) for role in roles]

    assert [manifest["metadata"]["name"] for manifest in made] == [
        "kubeflow-training-admin",
        "kubeflow-training-edit",
        "kubeflow-training-view",
    ]


def test_pod_security_accepts_the_pod(control_plane: ControlPlane, namespace: str) -> None:
    """As the namespace of the overlay ``standalone`` does."""
    core = f"/api/v1/namespaces/{namespace}"
    enforce = {"pod-security.kubernetes.io/enforce": "restricted"}
    control_plane.request("PATCH", core, {"metadata": {"labels": enforce}})
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "training-operator"}}
    control_plane.request("POST", f"{core}/serviceaccounts", account)
    spec = deployment()["spec"]["template"]["spec"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "trial"}, "spec": spec}

    made = control_plane.request("POST", f"{core}/pods?dryRun=All&fieldValidation=Strict", pod)

    assert made["metadata"]["name"] == "trial"


def can(
    plane: ControlPlane, verb: str, group: str, resource: str, *, namespace: str = "anywhere", name: str = ""
) -> bool:
    resource, _, subresource = resource.partition("/")
    attributes = {
        "verb": verb, "group": group, "resource": resource, "subresource": subresource,
        "namespace": namespace, "name": name,
    }  # fmt: skip
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": ACCOUNT,
            "groups": ["system:serviceaccounts", "system:authenticated"],
            "resourceAttributes": attributes,
        },
    }
    return bool(plane.request("POST", REVIEWS, review)["status"]["allowed"])


@pytest.mark.parametrize(
    ("verbs", "group", "resource"),
    [
        *(("get list watch delete", "kubeflow.org", kind.resource.plural) for kind in DEFAULT),
        *(("patch", "kubeflow.org", f"{kind.resource.plural}/status") for kind in DEFAULT),
        *(("update", "kubeflow.org", f"{kind.resource.plural}/finalizers") for kind in DEFAULT),
        ("get list watch create delete", "", "pods"),
        ("get list watch create delete", "", "services"),
        ("create patch", "", "events"),
        ("get create patch delete", "autoscaling", "horizontalpodautoscalers"),
        ("get", "", "nodes"),
    ],
)
def test_the_controller_has_its_permissions(
    control_plane: ControlPlane, verbs: str, group: str, resource: str
) -> None:
    control_plane.wait(
        "the binding", lambda: can(control_plane, verbs.split()[0], group, resource), seconds=10
    )

    assert [verb for verb in verbs.split() if not can(control_plane, verb, group, resource)] == []


@pytest.mark.parametrize(
    ("verbs", "group", "resource"),
    [
        pytest.param("create update patch", "kubeflow.org", "pytorchjobs", id="no writes of a spec"),
        pytest.param("list watch update patch delete", "", "secrets", id="no reads of other secrets"),
        pytest.param("create", "", "pods/exec", id="no exec into pods"),
        pytest.param("update patch", "", "pods", id="no adoption of pods"),
        pytest.param(
            "create update patch", "rbac.authorization.k8s.io", "roles", id="no grants of permissions"
        ),
        pytest.param("list watch update patch delete", "", "nodes", id="no lists of nodes"),
    ],
)
def test_the_controller_has_no_other_permissions(
    control_plane: ControlPlane, verbs: str, group: str, resource: str
) -> None:
    assert [verb for verb in verbs.split() if can(control_plane, verb, group, resource)] == []


def test_the_controller_can_hold_its_lease_only(control_plane: ControlPlane) -> None:
    """The lease is in its own namespace; RBAC cannot restrict create to a name. It lists the leases of nodes, to find lost ones."""

    def verbs(namespace: str, name: str) -> list[str]:
        every = ["get", "list", "watch", "create", "update", "patch", "delete"]
        lease = ("coordination.k8s.io", "leases")
        return [verb for verb in every if can(control_plane, verb, *lease, namespace=namespace, name=name)]

    assert verbs(OPERATOR_NAMESPACE, LEASE) == ["get", "list", "watch", "create", "update"]
    assert verbs(OPERATOR_NAMESPACE, "other") == ["list", "create"]
    assert verbs("default", LEASE) == ["list"]
