"""From training-operator to here and back, and out of the cluster, by the very commands of the pages in docs/how-to.

``training-operator.yaml`` stands for the original's manifests, applied by another tool than kubectl.
"""

import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import yaml

from api.meta import Resource
from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.manifests import build
from rallypoint.testing.service import KUBEFLOW, STANDALONE, in_cluster_service
from tests.support.definitions import open_definition
from tests.support.jobs import Jobs, job
from tests.support.kubectl import run

ROOT = Path(__file__).parents[2]
HOW_TO = ROOT / "docs" / "how-to"
GUIDE = HOW_TO / "upgrade-from-training-operator.md"
MPI_GUIDE = HOW_TO / "upgrade-from-mpi-operator.md"
UNINSTALL = HOW_TO / "uninstall.md"
ORIGINAL = Path(__file__).with_name("training-operator.yaml")
INSTALL_THE_ORIGINAL = (
    f"kubectl apply --server-side --force-conflicts --field-manager=argocd-controller -f {ORIGINAL}"
)


@pytest.fixture
def plane() -> Generator[ControlPlane]:
    with ControlPlane(nodes=1) as plane:
        yield plane


def commands(heading: str, guide: Path = GUIDE) -> list[str]:
    """Those under a heading of the guide."""
    return [line.strip() for line in section(heading, guide).splitlines() if re.match(" *kubectl ", line)]


def section(heading: str, guide: Path) -> str:
    found = guide.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    assert found, f"{guide} has no heading {heading}"
    return found


def install_everything(plane: ControlPlane, folder: Path, overlay: Path = STANDALONE) -> Path:
    """Install the overlay with all components. Return a file of the objects, without the namespace and the CRDs.

    The definitions of prometheus-operator are stand-ins; old servers do not have admission policies that change objects.
    """
    for kind, plural in (("ServiceMonitor", "servicemonitors"), ("PrometheusRule", "prometheusrules")):
        stand_in = Resource("monitoring.coreos.com", "v1", kind, plural)
        plane.apply(open_definition(stand_in, has_status=False))
    left_out = {"flow-control", "mpi"} | (set() if has_policies(plane) else {"mpi-flavor-policy"})
    components = [path for path in (ROOT / "manifests" / "components").iterdir() if path.name not in left_out]
    (namespace,) = (
        document["metadata"]["namespace"] for document in build(overlay) if document["kind"] == "Deployment"
    )
    kustomization = {
        "namespace": namespace,
        "resources": [str(overlay)],
        "components": sorted(map(str, components)),
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    documents = build(folder)
    plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}, *documents)
    file = folder / "objects.yaml"
    file.write_text(
        yaml.safe_dump_all(
            document
            for document in documents
            if document["kind"] not in {"Namespace", "CustomResourceDefinition"}
        )
    )
    return file


def has_policies(plane: ControlPlane) -> bool:
    return plane.has("/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies")


def run_all(plane: ControlPlane, *named: str) -> None:
    """Run the commands, except those about objects that this server does not know."""
    for command in named:
        if "mutatingadmissionpolicy" not in command or has_policies(plane):
            run(plane, command)


def test_running_jobs_go_on(plane: ControlPlane) -> None:
    objects = yaml.safe_load_all(ORIGINAL.read_text())
    plane.apply(*(manifest for manifest in objects if manifest["kind"] == "CustomResourceDefinition"))
    jobs = Jobs(plane, "default")
    run_a_job_as_the_original(plane, jobs)
    before = {pod: jobs.uid(pod) for pod in jobs.pods("old")}
    run(plane, INSTALL_THE_ORIGINAL)  # only now, as its webhook has no server

    for command in commands("Upgrade all kinds at once"):
        run(plane, command)
    with in_cluster_service(plane, overlay=KUBEFLOW):
        jobs.create("new", job(workers=1))
        jobs.wait_for("new", "Running")
        assert {pod: jobs.uid(pod) for pod in jobs.pods("old")} == before
        jobs.end_pod("old-master-0", "Succeeded", 0)
        jobs.wait_for("old", "Succeeded")

    assert jobs.conditions("old") == [("Created", "True"), ("Running", "False"), ("Succeeded", "True")]
    deployment = plane.request("GET", "/apis/apps/v1/namespaces/kubeflow/deployments/training-operator")
    pod = deployment["spec"]["template"]["spec"]
    assert [volume["name"] for volume in pod["volumes"]] == ["tmp"]
    assert pod["containers"][0]["command"] == ["python", "-m", "controller"]


def test_and_back(plane: ControlPlane, tmp_path: Path) -> None:
    """What the original does not have is gone, and its manifests make of the rest what it was."""
    file = install_everything(plane, tmp_path, KUBEFLOW)

    run_all(plane, *commands("Go back"))
    left = set(run(plane, f"kubectl get --ignore-not-found -o name -f {file}").split())
    run(plane, INSTALL_THE_ORIGINAL)

    assert left == {
        "clusterrole.rbac.authorization.k8s.io/training-operator",
        "clusterrolebinding.rbac.authorization.k8s.io/training-operator",
        "service/training-operator",
        "serviceaccount/training-operator",
        *(
            f"clusterrole.rbac.authorization.k8s.io/kubeflow-training-{role}"
            for role in ("admin", "edit", "view")
        ),
    }, "the original has objects of these names"

    deployment = plane.request("GET", "/apis/apps/v1/namespaces/kubeflow/deployments/training-operator")
    assert "args" not in deployment["spec"]["template"]["spec"]["containers"][0]
    role = plane.request("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles/training-operator")
    assert [rule["resources"] for rule in role["rules"]] == [["pytorchjobs", "tfjobs"], ["secrets"]]


def test_back_to_mpi_operator(plane: ControlPlane, tmp_path: Path) -> None:
    file = install_everything(plane, tmp_path)

    run_all(plane, *commands("Go back", MPI_GUIDE))

    left = set(run(plane, f"kubectl get --ignore-not-found -o name -f {file}").split())
    harmless = ("monitoring", "dashboard")
    assert not [
        name for name in left if "training-operator" in name and not any(word in name for word in harmless)
    ]


def test_uninstalling_leaves_only_the_namespace_and_the_jobs(plane: ControlPlane, tmp_path: Path) -> None:
    file, jobs = install_everything(plane, tmp_path), Jobs(plane, "default")
    jobs.create("old", job(workers=1))
    of_components = section("Stop the operator", UNINSTALL).partition("\nWhat stays:\n")[0]

    run_all(
        plane,
        *commands("Stop the operator", UNINSTALL),
        *re.findall(r"`(kubectl delete [^`]+|kubectl -n [^`]+)`", of_components),
    )

    assert run(plane, f"kubectl get --ignore-not-found -o name -f {file}") == ""
    assert plane.has("/api/v1/namespaces/rallypoint-system")
    assert plane.has(jobs.path("old"))

    run_all(plane, *commands("Delete the jobs and their CRDs", UNINSTALL))

    left = run(plane, "kubectl get crd -o name").split()
    assert [name for name in left if name.endswith(".kubeflow.org")] == [
        "customresourcedefinition.apiextensions.k8s.io/mxjobs.kubeflow.org"
    ]


def test_server_side_apply_follows_client_side_apply(plane: ControlPlane, tmp_path: Path) -> None:
    """Whoever forgot ``--server-side`` once can use it for the next version: it changes and removes fields without a conflict."""
    run(plane, "kubectl apply -f deploy/standalone.yaml")
    newer = (ROOT / "deploy" / "standalone.yaml").read_text()
    newer = re.sub("image: rallypoint:.*", "image: rallypoint:newer", newer).replace(
        "enableServiceLinks: false\n", "\n"
    )
    (tmp_path / "newer.yaml").write_text(newer)

    run(plane, f"kubectl apply --server-side -f {tmp_path / 'newer.yaml'}")

    path = "/apis/apps/v1/namespaces/rallypoint-system/deployments/training-operator"
    deployment = plane.request("GET", path)
    pod = deployment["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == "rallypoint:newer"
    assert pod.get("enableServiceLinks", True) is True
    managers = {entry["manager"] for entry in deployment["metadata"]["managedFields"]}
    assert "kubectl-client-side-apply" not in managers


def run_a_job_as_the_original(plane: ControlPlane, jobs: Jobs) -> None:
    """A job of the Go operator, half way: its pods and Services run, and its status says so."""
    jobs.create("old", job(workers=1))
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "old", "controller": True}
    owner |= {"uid": plane.request("GET", jobs.path("old"))["metadata"]["uid"], "blockOwnerDeletion": True}
    for role in ("master", "worker"):
        labels = {
            "training.kubeflow.org/job-name": "old",
            "training.kubeflow.org/operator-name": "pytorchjob-controller",
            "training.kubeflow.org/replica-index": "0",
            "training.kubeflow.org/replica-type": role,
        }
        metadata = {"name": f"old-{role}-0", "labels": labels, "ownerReferences": [owner]}
        containers = [{"name": "pytorch", "image": "x", "ports": [{"containerPort": 23456}]}]
        pod = {"nodeName": "node-0", "restartPolicy": "OnFailure", "containers": containers}
        service = {"clusterIP": "None", "selector": labels, "ports": [{"port": 23456}]}
        for plural, kind, spec in (("pods", "Pod", pod), ("services", "Service", service)):
            body = {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec}
            plane.request("POST", f"/api/v1/namespaces/default/{plural}", body)
    plane.request("PATCH", f"{jobs.path('old')}/status", {"status": running_status()})


def running_status() -> dict[str, Any]:
    then = "2026-01-01T12:00:00Z"
    reached = [("Created", "is created."), ("Running", "is running.")]
    return {
        "startTime": then,
        "replicaStatuses": {"Master": {"active": 1}, "Worker": {"active": 1}},
        "conditions": [
            {
                "type": type_,
                "status": "True",
                "reason": f"PyTorchJob{type_}",
                "message": f"PyTorchJob old {text}",
                "lastUpdateTime": then,
                "lastTransitionTime": then,
            }
            for type_, text in reached
        ],
    }
