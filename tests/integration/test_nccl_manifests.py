"""The benchmark's manifests in a real kube-apiserver: every field is accepted, in the file and in the submitted job."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.nccl import manifest, run_config, worker_files
from bench.nccl.manifest import MANIFESTS, JobOptions
from bench.nccl.schema import RunConfig
from rallypoint.testing.controlplane import ControlPlane

FAMILIES = sorted(MANIFESTS.glob("*-*.yaml"))
PLURALS = {"PyTorchJob": "pytorchjobs", "MPIJob": "mpijobs"}
STRICT = "dryRun=All&fieldValidation=Strict"
GATE = MANIFESTS / "gate.yaml"
PATHS = {
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
}
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


def of(path: Path) -> Iterator[dict[str, Any]]:
    yield from yaml.safe_load_all(path.read_text())


def accepted(plane: ControlPlane, namespace: str, job: dict[str, Any]) -> dict[str, Any]:
    path = f"/apis/{job['apiVersion']}/namespaces/{namespace}/{PLURALS[job['kind']]}?{STRICT}"
    record: dict[str, Any] = plane.request("POST", path, job)
    return record


@pytest.mark.parametrize("path", FAMILIES, ids=lambda path: path.stem)
def test_manifests_in_the_files(
    path: Path, control_plane: ControlPlane, namespace: str, crds: list[Path]
) -> None:
    for job in of(path):
        assert accepted(control_plane, namespace, job)["metadata"]["uid"]


@pytest.mark.parametrize("path", FAMILIES, ids=lambda path: path.stem)
@pytest.mark.parametrize("via", ["pytorchjob", "mpijob"])
def test_manifests_as_jobs_of_a_run(
    path: Path, via: Any, control_plane: ControlPlane, namespace: str, crds: list[Path]
) -> None:
    config = RunConfig(
        via=via,
        backend="nccl",
        nodes=2,
        gpus=4,
        collectives=["all_reduce"],
        dtypes=["float32"],
        in_place=[True],
        sizes=[8],
        warmup=1,
        iterations=1,
        rounds=1,
    )
    job = manifest.job(config, JobOptions("run"), run_config.worker_task(config), manifest.read(path, via))

    record = accepted(control_plane, namespace, job)

    assert record["spec"]["runPolicy"]["ttlSecondsAfterFinished"] == 3600


def test_the_api_server_accepts_the_worker_as_a_config_map(
    control_plane: ControlPlane, namespace: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps?{STRICT}"

    record = control_plane.request("POST", path, worker_files.config_map("run", {}))

    assert len(record["data"]) == len(worker_files.files({}))


def test_the_gate_has_the_permissions_that_the_bench_needs(
    control_plane: ControlPlane, namespace: str, crds: list[Path]
) -> None:
    """The Role grants no other permission."""
    for document in of(GATE):
        if document["kind"] == "RoleBinding":
            document["subjects"][0]["namespace"] = namespace
        dry = f"?{STRICT}" if document["kind"] == "Job" else "?fieldValidation=Strict"
        assert control_plane.request("POST", PATHS[document["kind"]].format(namespace) + dry, document)[
            "metadata"
        ]

    needed = [
        *(("kubeflow.org", kind, verb) for kind in PLURALS.values() for verb in ("create", "get", "delete")),
        *(("", "configmaps", verb) for verb in ("create", "patch", "delete")),
        ("", "pods", "list"),
        ("", "pods/log", "get"),
    ]
    control_plane.wait("the binding", lambda: can(control_plane, namespace, *needed[0]), seconds=10)
    assert [permission for permission in needed if not can(control_plane, namespace, *permission)] == []
    refused = [("", "secrets", "get"), ("", "pods", "create"), ("kubeflow.org", "pytorchjobs", "list")]
    assert [permission for permission in refused if can(control_plane, namespace, *permission)] == []


def can(plane: ControlPlane, namespace: str, group: str, resource: str, verb: str) -> bool:
    name, _, subresource = resource.partition("/")
    attributes = {
        "verb": verb, "group": group, "resource": name, "subresource": subresource, "namespace": namespace,
    }  # fmt: skip
    account = f"system:serviceaccount:{namespace}:nccl-gate"
    spec = {"user": account, "groups": ["system:authenticated"], "resourceAttributes": attributes}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    return bool(plane.request("POST", REVIEWS, review)["status"]["allowed"])
