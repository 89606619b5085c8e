"""``rallypoint why`` for a user who can read jobs and little else."""

import json
import secrets
from pathlib import Path

import pytest

from controller.kinds import DEFAULT
from rallypoint.cli import main
from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.controlplane.access import kubeconfig

READS = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "jobs-and-events"},
    "rules": [
        {
            "apiGroups": ["kubeflow.org"],
            "resources": [kind.resource.plural for kind in DEFAULT],
            "verbs": ["get", "list"],
        },
        {"apiGroups": [""], "resources": ["events"], "verbs": ["list"]},
    ],
}


@pytest.fixture
def viewer(control_plane: ControlPlane, crds: list[Path], tmp_path: Path) -> tuple[str, Path]:
    """A new namespace with the job ``j``, and the kubeconfig of one who may read jobs and events there."""
    namespace = f"why-{secrets.token_hex(3)}"
    namespace_path = f"/api/v1/namespaces/{namespace}"
    control_plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    control_plane.request("POST", f"{namespace_path}/serviceaccounts", {"metadata": {"name": "viewer"}})
    control_plane.apply(READS)
    binding = {
        "metadata": {"name": "viewer"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "jobs-and-events",
        },
        "subjects": [{"kind": "ServiceAccount", "name": "viewer", "namespace": namespace}],
    }
    bindings = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings"
    control_plane.request("POST", bindings, binding)
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "JAXJob",
        "metadata": {"name": "j"},
        "spec": {
            "runPolicy": {"suspend": True},
            "jaxReplicaSpecs": {
                "Worker": {"template": {"spec": {"containers": [{"name": "jax", "image": "none"}]}}}
            },
        },
    }
    control_plane.request("POST", f"/apis/kubeflow.org/v1/namespaces/{namespace}/jaxjobs", job)
    folder = control_plane.service_account_folder(namespace, "viewer")
    token = (folder / "token").read_text()
    file = tmp_path / "kubeconfig"
    file.write_text(
        kubeconfig(
            control_plane.server, control_plane.authority.pem, token, user="viewer", namespace=namespace
        )
    )
    return namespace, file


def test_forbidden_pods_do_not_count_as_missing(
    control_plane: ControlPlane, viewer: tuple[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    namespace, file = viewer
    path = f"/apis/kubeflow.org/v1/namespaces/{namespace}/jaxjobs/j"
    job = control_plane.request("GET", path)
    job["spec"]["runPolicy"]["suspend"] = False
    job = control_plane.request("PUT", path, job)
    about = {"kind": "JAXJob", "namespace": namespace, "name": "j", "uid": job["metadata"]["uid"]}
    event = {"metadata": {"name": "j.1"}, "involvedObject": about, "type": "Warning"}
    fields = {"reason": "FailedCreatePod", "message": "exceeded quota"}
    control_plane.request("POST", f"/api/v1/namespaces/{namespace}/events", {**event, **fields})

    assert main(["why", "jaxjob/j", "--kubeconfig", str(file), "-o", "json"]) == 0

    found = json.loads(capsys.readouterr().out)[0]
    assert [(cause["text"], cause["blocks"]) for cause in found["causes"]] == [
        ("FailedCreatePod: exceeded quota", False)
    ]


def test_the_report_names_forbidden_resources(
    viewer: tuple[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    namespace, file = viewer

    assert main(["why", "jaxjob/j", "--kubeconfig", str(file), "-o", "json"]) == 0
    (fields,) = json.loads(capsys.readouterr().out)
    assert main(["why", "--kubeconfig", str(file)]) == 0
    text = capsys.readouterr().out

    assert (fields["namespace"], fields["notRead"]) == (namespace, ["jobs", "pods"])
    assert fields["causes"][0]["text"] == "suspended by its run policy (suspend: true)"
    assert text.endswith("You have no permission to read jobs, pods; this report omits them.\n")


def test_forbidden_jobs_do_not_count_as_none(
    viewer: tuple[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    _, file = viewer

    assert main(["why", "-A", "--kubeconfig", str(file)]) == 0

    assert capsys.readouterr() == (
        "",
        "You have no permission to read jaxjobs, mpijobs, paddlejobs, pytorchjobs, tfjobs, xgboostjobs.\n",
    )
