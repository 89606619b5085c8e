"""The validation rules in a real kube-apiserver: what it refuses at apply, and which updates of a stored job it accepts."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from api.meta import Resource
from controller.crds.definition import crd
from controller.crds.kubernetes import shipped
from controller.kind import ValidationRule
from controller.kinds import ALL
from controller.kinds.pytorch import PYTORCH
from rallypoint.testing.controlplane import ControlPlane, Refused
from rallypoint.testing.service import in_cluster_service, install
from tests.support.invalid_jobs import PYTORCH_ROLES, WEBHOOK_CASES, Object, job, mpi_job, role, roles
from tests.support.jobs import Jobs

GROUP = "stored-jobs.example.org"
STATUS = {"conditions": [{"type": "Created", "status": "True"}]}
STORED: list[tuple[str, Object]] = [
    (case.id, case.values[0])
    for case in WEBHOOK_CASES
    if case.values[0]["kind"] == "PyTorchJob" and "runPolicy" not in case.values[0]["spec"]
]
"""Not the one with an unknown ``managedBy``: that is an enumeration, not a rule."""


def create(
    plane: ControlPlane, namespace: str, manifest: Object, resource: Resource, query: str = ""
) -> Object:
    created: Object = plane.request("POST", f"{resource.path(namespace)}{query}", manifest)
    return created


def resource_of(manifest: Object) -> Resource:
    version = manifest["apiVersion"].rpartition("/")[2]
    return next(
        replace(kind.resource, version=version) for kind in ALL if kind.resource.kind == manifest["kind"]
    )


@pytest.mark.parametrize(("manifest", "expected"), WEBHOOK_CASES)
def test_what_the_webhooks_refuse_is_refused_at_apply(
    control_plane: ControlPlane, crds: list[Path], namespace: str, manifest: Object, expected: str
) -> None:
    """Older servers print the type of the value between the two parts of the error."""
    with pytest.raises(Refused) as refused:
        create(control_plane, namespace, manifest, resource_of(manifest), "?dryRun=All")

    assert refused.value.code == 422
    assert all(part in str(refused.value) for part in expected.split(": "))


@pytest.mark.parametrize("version", ["v1", "v1alpha2", "v2beta1"])
def test_mpijobs_are_refused_in_every_version(
    control_plane: ControlPlane, crds: list[Path], namespace: str, version: str
) -> None:
    valid, invalid = mpi_job(version), mpi_job(version, launcher={"replicas": 2})

    create(control_plane, namespace, valid, resource_of(valid), "?dryRun=All")
    with pytest.raises(Refused, match="replicas of Launcher must be 1 or omitted"):
        create(control_plane, namespace, invalid, resource_of(invalid), "?dryRun=All")


@pytest.fixture(scope="module")
def stored(control_plane: ControlPlane) -> Iterator[Resource]:
    """Yield a group of its own, in which the invalid jobs were stored before its definition had rules."""
    resource = replace(PYTORCH.resource, group=GROUP)
    try:
        _define(control_plane, resource, rules=())
        for index, (_, manifest) in enumerate(STORED):
            create(control_plane, "default", _stored_manifest(manifest, index), resource)
        _define(control_plane, resource, rules=PYTORCH.validation_rules)
        yield resource
    finally:  # without rules, every finalizer can be removed
        _define(control_plane, resource, rules=())
        for left in control_plane.request("GET", resource.path("default"))["items"]:
            path = f"{resource.path('default')}/{left['metadata']['name']}"
            control_plane.request("PATCH", path, {"metadata": {"finalizers": None}})
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        control_plane.request("DELETE", f"{path}/{resource.plural}.{GROUP}")


def _define(plane: ControlPlane, resource: Resource, rules: Sequence[ValidationRule]) -> None:
    """Apply the definition of PyTorchJobs, and wait until the API server uses its rules."""
    plane.apply(crd(resource, PYTORCH.model, shipped(), scalable=True, rules=rules))
    probe = {**job(PYTORCH, {}), "apiVersion": resource.api_version}
    plane.wait("the definition", lambda: _is_refused(plane, probe, resource) == bool(rules), seconds=60)


def _stored_manifest(manifest: Object, index: int) -> Object:
    """Return an invalid job under a name of its own; an invalid name stays invalid."""
    name = f"{manifest['metadata']['name']}-{index}"
    metadata = {"name": name, "finalizers": ["example.org/hold"]}
    return {**manifest, "apiVersion": f"{GROUP}/v1", "metadata": metadata}


def _is_refused(plane: ControlPlane, manifest: Object, resource: Resource) -> bool:
    try:
        create(plane, "default", manifest, resource, "?dryRun=All")
    except Refused as error:
        return error.code == 422
    return False


@pytest.mark.parametrize(
    ("index", "manifest"),
    [pytest.param(index, manifest, id=case) for index, (case, manifest) in enumerate(STORED)],
)
def test_a_stored_job_needs_a_status_before_other_updates(
    control_plane: ControlPlane, stored: Resource, index: int, manifest: Object
) -> None:
    """The operator writes one after its upgrade; an empty one is enough."""
    name = _stored_manifest(manifest, index)["metadata"]["name"]
    path = f"{stored.path('default')}/{name}"

    def patch(change: Any, subresource: str = "") -> Object:
        answer: Object = control_plane.request("PATCH", f"{path}{subresource}", change)
        return answer

    with pytest.raises(Refused) as refused:
        patch({"metadata": {"labels": {"a": "b"}}})
    assert refused.value.code == 422
    assert patch({"status": {}}, "/status")["status"] == {}
    assert patch({"metadata": {"labels": {"c": "d"}}})["metadata"]["labels"] == {"c": "d"}
    assert patch({"status": STATUS}, "/status")["status"] == STATUS
    assert patch({"spec": {"runPolicy": {"suspend": True}}})["spec"]["runPolicy"]["suspend"] is True
    assert patch({"metadata": {"labels": {"a": "b"}}})["metadata"]["labels"] == {"a": "b", "c": "d"}
    control_plane.request("DELETE", path)
    assert patch({"metadata": {"finalizers": None}})["metadata"]["deletionTimestamp"]
    control_plane.wait(f"{name} deleted", lambda: not control_plane.has(path))


def test_the_operator_fails_a_job_that_was_stored_before_the_rules(
    control_plane: ControlPlane, crds: list[Path], namespace: str
) -> None:
    install(control_plane)
    jobs = Jobs(control_plane, namespace)
    _define(control_plane, PYTORCH.resource, rules=())
    try:
        create(control_plane, namespace, job(PYTORCH, {"Chief": role(name="pytorch")}), PYTORCH.resource)
    finally:
        _define(control_plane, PYTORCH.resource, rules=PYTORCH.validation_rules)
    with in_cluster_service(control_plane):
        jobs.wait_for("test", "Failed")

    assert jobs.condition("test", "Failed")["reason"] == "PyTorchJobFailedValidation"
    assert (
        f'{PYTORCH_ROLES}[Chief]: Unsupported value: "Chief"' in jobs.condition("test", "Failed")["message"]
    )
    assert jobs.pods("test") == []


@pytest.mark.parametrize("status", [{}, {"status": {"conditions": []}}], ids=["", "and of the status"])
def test_an_update_must_not_make_a_valid_job_invalid(
    control_plane: ControlPlane, crds: list[Path], namespace: str, status: Object
) -> None:
    """The rules pass over writes of the status, and an update of the spec cannot be one."""
    path = f"{PYTORCH.resource.path(namespace)}/train"
    create(control_plane, namespace, job(PYTORCH, roles(PYTORCH), name="train"), PYTORCH.resource)
    control_plane.request("PATCH", f"{path}/status", {"status": STATUS})

    wrong = {"spec": {"pytorchReplicaSpecs": {"Worker": {"restartPolicy": "Sometimes"}}}}
    with pytest.raises(Refused, match="restartPolicy must be Always, OnFailure, Never or ExitCode"):
        control_plane.request("PATCH", path, wrong | status)
    control_plane.request("PATCH", path, {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 0}}}})


def test_the_error_names_the_field(control_plane: ControlPlane, crds: list[Path], namespace: str) -> None:
    manifest = copy.deepcopy(job(PYTORCH, roles(PYTORCH, Chief=role(name="pytorch"))))

    with pytest.raises(Refused, match="the names of roles must be Master or Worker") as refused:
        create(control_plane, namespace, manifest, PYTORCH.resource)

    assert f'PyTorchJob.kubeflow.org "test" is invalid: {PYTORCH_ROLES}: ' in str(refused.value)


def test_two_mistakes_are_refused_with_one_error_that_names_both(
    control_plane: ControlPlane, crds: list[Path], namespace: str
) -> None:
    """More than one error would be in brackets. Older servers print the type of the value before the message."""
    wrong = {"Chief": role(name="pytorch", replicas=-1), "Worker": role(name="pytorch")}
    both = "the names of roles must be Master or Worker; replicas must not be negative"
    expected = rf"is invalid: {PYTORCH_ROLES}: Invalid value: (\S+: )?{both}$"
    path = f"{PYTORCH.resource.path(namespace)}/train"

    with pytest.raises(Refused, match=expected):
        create(control_plane, namespace, job(PYTORCH, wrong), PYTORCH.resource, "?dryRun=All")
    create(control_plane, namespace, job(PYTORCH, roles(PYTORCH), name="train"), PYTORCH.resource)
    control_plane.request("PATCH", f"{path}/status", {"status": STATUS})
    with pytest.raises(Refused, match=expected):
        control_plane.request("PATCH", path, {"spec": {"pytorchReplicaSpecs": wrong}})
