"""Our own definitions on both servers: both accept every recorded job and reject the same invalid jobs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest
import yaml

from api.job import replica_field
from api.mpijob import MPIJob
from controller.crds import all_crds
from controller.kind import JobKind
from controller.kinds import ALL
from rallypoint.local.apiserver import ApiServer
from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.http_trace import MERGE, Step

GOLDEN = Path(__file__).parents[1] / "parity" / "golden" / "pytorchjob"
CASES = sorted(GOLDEN.glob("*/case.yaml"))
JOBS = "/apis/kubeflow.org/v1/namespaces/{ns}/pytorchjobs"
J = f"{JOBS}/j"


class Both(Protocol):
    async def agree(self, steps: Sequence[Step]) -> None: ...


@pytest.fixture(scope="module")
def defined_in_the_real_server(control_plane: ControlPlane) -> None:
    """Our definitions. To apply them again would make the server publish all its schemas again, which takes seconds."""
    control_plane.apply(*all_crds())


@pytest.fixture(autouse=True)
def defined(defined_in_the_real_server: None, embedded_server: ApiServer) -> None:
    """Our definitions, in both servers."""
    for definition in all_crds():
        embedded_server.define(definition)


def recorded(path: Path) -> dict[str, Any]:
    manifests = yaml.safe_load(path.read_text())["job"]
    listed = manifests if isinstance(manifests, list) else [manifests]
    job: dict[str, Any] = next(manifest for manifest in listed if manifest["kind"] == "PyTorchJob")
    job["metadata"].pop("namespace", None)
    return job


@pytest.mark.parametrize("path", CASES, ids=[path.parent.name for path in CASES])
async def test_recorded_jobs_are_stored_alike(both: Both, path: Path) -> None:
    job = recorded(path)
    name = job["metadata"]["name"]

    counted = "replicas" in job["spec"].get("pytorchReplicaSpecs", {}).get("Worker", {})
    scale = Step("GET", f"{JOBS}/{name}/scale", code=200 if counted else 500)
    await both.agree([Step("POST", JOBS, job, 201), Step("GET", f"{JOBS}/{name}"), scale])


CONTAINER = {"name": "pytorch", "image": "train:1"}
ROLES = ("spec", "pytorchReplicaSpecs")
WORKER = (*ROLES, "Worker")
SPEC = (*WORKER, "template", "spec")


def job(changes: Mapping[tuple[Any, ...], Any]) -> dict[str, Any]:
    """A small valid job, with the values at these paths changed."""
    template = {"spec": {"containers": [dict(CONTAINER)]}}
    made: dict[str, Any] = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "j"},
        "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": template}}},
    }
    for path, value in changes.items():
        target: Any = made
        for step in path[:-1]:
            target = target[step] if isinstance(target, list) else target.setdefault(step, {})
        target[path[-1]] = value
    return made


UNUSUAL: dict[str, tuple[int, dict[tuple[Any, ...], Any]]] = {
    "nothing but the least": (201, {}),
    "no replicas": (422, {(*WORKER, "replicas"): 0}),
    "very many replicas": (201, {(*WORKER, "replicas"): 2**31 - 1}),
    "too many replicas for a number": (422, {(*WORKER, "replicas"): 2**31}),
    "negative replicas": (422, {(*WORKER, "replicas"): -1}),
    "replicas in words": (422, {(*WORKER, "replicas"): "two"}),
    "an unknown role": (422, {(*ROLES, "Chief"): {"replicas": 1, "template": {"spec": {"containers": [CONTAINER]}}}}),
    "no roles": (422, {ROLES: {}}),
    "roles as a list": (422, {ROLES: []}),
    "no containers": (422, {(*SPEC, "containers"): []}),
    "another container": (201, {(*SPEC, "containers"): [{"name": "main", "image": "train:1"}]}),
    "no image": (422, {(*SPEC, "containers"): [{"name": "pytorch"}]}),
    "two masters": (422, {(*ROLES, "Master"): {"replicas": 2, "template": {"spec": {"containers": [CONTAINER]}}}}),
    "a role in lower case": (201, {ROLES: {"worker": {"template": {"spec": {"containers": [CONTAINER]}}}}}),
    "an unknown manager": (422, {("spec", "runPolicy"): {"managedBy": "somebody"}}),
    "elastic with two numbers of processes": (
        422, {("spec", "nprocPerNode"): "2", ("spec", "elasticPolicy"): {"nProcPerNode": 2}},
    ),
    "a name that fits, with pods that do not": (422, {("metadata", "name"): "j" * 60}),
    "a misspelt field": (201, {(*SPEC, "restartPolcy"): "Never"}),
    "a number for a command": (422, {(*SPEC, "containers", 0, "command"): [1]}),
    "an unknown restart policy": (422, {(*WORKER, "restartPolicy"): "Sometimes"}),
    "an unknown clean-up": (201, {("spec", "runPolicy"): {"cleanPodPolicy": "Some"}}),
    "a deadline in words": (422, {("spec", "runPolicy"): {"activeDeadlineSeconds": "soon"}}),
    "a limit as a number": (201, {(*SPEC, "containers", 0, "resources"): {"limits": {"nvidia.com/gpu": 1, "cpu": "2"}}}),
    "a port by a word": (422, {(*SPEC, "containers", 0, "ports"): [{"containerPort": "http"}]}),
    "the number of processes": (201, {("spec", "nprocPerNode"): "auto"}),
    "the number of processes as a number": (422, {("spec", "nprocPerNode"): 2}),
    "elastic": (201, {("spec", "elasticPolicy"): {"minReplicas": 1, "maxReplicas": 3}}),
    "elastic in words": (422, {("spec", "elasticPolicy"): {"minReplicas": "one"}}),
    "annotations of 1 MiB": (422, {("metadata", "annotations"): {"a": "x" * 2**20}}),
    "a name that is too long for its pods": (422, {("metadata", "name"): "j" * 200}),
    "a name with capitals": (422, {("metadata", "name"): "Job"}),
    "a spec as text": (422, {("spec",): "x"}),
}  # fmt: skip


@pytest.mark.parametrize(("code", "changes"), UNUSUAL.values(), ids=UNUSUAL.keys())
async def test_unusual_jobs_get_the_same_response(
    both: Both, code: int, changes: Mapping[tuple[Any, ...], Any]
) -> None:
    await both.agree([Step("POST", JOBS, job(changes), code)])


async def test_immutable_fields(both: Both) -> None:
    await both.agree(
        [
            Step(
                "POST",
                JOBS,
                job({("spec", "runPolicy"): {"managedBy": "kubeflow.org/training-operator"}}),
                201,
            ),
            Step("PATCH", J, {"spec": {"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}}}, 422, MERGE),
            Step("PATCH", J, {"spec": {"runPolicy": {"suspend": True}}}, 200, MERGE),
        ]
    )


VERSIONS = [
    pytest.param(kind, version, id=f"{kind.resource.kind}-{version}")
    for kind in ALL
    for version in (kind.resource.version, *kind.model.other_versions)
]


@pytest.mark.parametrize(("kind", "version"), VERSIONS)
async def test_the_scale_subresource(both: Both, kind: JobKind[Any], version: str) -> None:
    """Kinds whose groups have a fixed size have none."""
    resource = replace(kind.resource, version=version)
    jobs = f"/apis/{resource.api_version}/namespaces/{{ns}}/{resource.plural}"
    replicas, found = replica_field(kind.model).wire_name, 200 if kind.scalable else 404
    name = "mpi" if kind.model is MPIJob else kind.framework
    roles = {
        role: {"replicas": 1, "template": {"spec": {"containers": [{"name": name, "image": "train:1"}]}}}
        for role in ("Worker", *getattr(kind, "required_roles", ("Launcher",)))
    }
    body = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": "j"},
        "spec": {replicas: roles},
    }
    status = {"replicaStatuses": {"Worker": {"active": 1, "selector": "a=b,c=d"}}}
    scale = f"{jobs}/j/scale"
    whole = {"metadata": {"name": "j"}, "spec": {"replicas": 2}}
    await both.agree(
        [
            Step("POST", jobs, body, 201),
            Step("GET", scale, code=found),
            Step("PATCH", f"{jobs}/j/status", {"status": status}, 200, MERGE),
            Step("GET", scale, code=found),
            Step("PATCH", scale, {"spec": {"replicas": 3}}, found, MERGE),
            Step("PUT", scale, whole, found),
            Step("PATCH", scale, {"spec": {"replicas": 0}}, found, MERGE),
            Step("PATCH", scale, {"spec": {"replicas": -1}}, 422 if kind.scalable else 404, MERGE),
            Step("GET", f"{jobs}/j"),
        ]
    )


async def test_updates_of_a_job_with_a_status(both: Both) -> None:
    status = {"conditions": [{"type": "Created", "status": "True"}]}
    await both.agree(
        [
            Step("POST", JOBS, job({}), 201),
            Step("PATCH", f"{J}/status", {"status": status}, 200, MERGE),
            Step(
                "PATCH",
                J,
                {"spec": {"pytorchReplicaSpecs": {"Worker": {"restartPolicy": "Sometimes"}}}},
                422,
                MERGE,
            ),
            Step("PATCH", J, {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 0}}}}, 200, MERGE),
            Step("PATCH", J, {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": -1}}}}, 422, MERGE),
        ]
    )
