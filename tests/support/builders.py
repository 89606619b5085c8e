"""Builders of small and valid jobs, pods and Services. A test names only the fields that it is about."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from api.children import Exit, Pod, PodGroup, Service
from api.job import Job
from api.names import child_name
from api.v1.pytorchjob import PyTorchJob
from controller.domain import Snapshot
from controller.kind import ReplicaKind
from controller.runtime.recorder import Subject

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
UID = "5f1d0f7e-job"

J = TypeVar("J", bound=Job)


def subject(name: str = "train", *, uid: str = "uid-1", namespace: str = "default") -> Subject:
    """Return the subject of a PyTorchJob's events."""
    return Subject("kubeflow.org/v1", "PyTorchJob", namespace, name, uid, "pytorchjob-controller")


def template(container: str = "pytorch", **container_fields: Any) -> dict[str, Any]:
    """Return a pod template with one container."""
    return {"spec": {"containers": [{"name": container, "image": "img", **container_fields}]}}


def pytorch_job(
    name: str = "train",
    *,
    masters: int | None = 1,
    workers: int | None = 2,
    master: Mapping[str, Any] | None = None,
    worker: Mapping[str, Any] | None = None,
    run_policy: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    **spec: Any,
) -> PyTorchJob:
    """Return a PyTorchJob in the namespace ``ml``.

    None omits a role. ``master`` and ``worker`` override fields of that role's replica spec, ``spec`` fields of the job's spec, all in
    JSON names.
    """
    roles = {
        role: {"replicas": replicas, "template": template(), **(fields or {})}
        for role, replicas, fields in (("Master", masters, master), ("Worker", workers, worker))
        if replicas is not None
    }
    return PyTorchJob.model_validate(
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": {"name": name, "namespace": "ml", "uid": UID, "resourceVersion": "1"},
            "spec": {"pytorchReplicaSpecs": roles, "runPolicy": dict(run_policy or {}), **spec},
            "status": status,
        }
    )


def job_of(kind: ReplicaKind[J], name: str = "train", **fields: Any) -> J:
    """Return a job of any kind in the namespace ``ml``. A capitalized argument is a role, any other a field of the spec.

    By default a role has one pod with one container.
    """
    roles = {
        key: {"template": template(kind.container), **value}
        for key, value in fields.items()
        if key[0].isupper()
    }
    spec = {key: value for key, value in fields.items() if key not in roles}
    return kind.model.model_validate(
        {
            "apiVersion": kind.resource.api_version,
            "kind": kind.resource.kind,
            "metadata": {"name": name, "namespace": "ml", "uid": UID, "resourceVersion": "1"},
            "spec": {kind.replicas_field: roles, **spec},
        }
    )


def pod(
    role: str = "worker",
    index: int = 0,
    phase: str = "Running",
    *,
    job: str = "train",
    code: int | None = None,
    container: str = "pytorch",
    **fields: Any,
) -> Pod:
    """Return a pod of that job; ``code`` is its container's exit code."""
    name = child_name(job, role, index)
    row: dict[str, Any] = {
        "namespace": "ml",
        "name": name,
        "uid": f"{name}-uid",
        "resource_version": 1,
        "owner_kind": "PyTorchJob",
        "owner_name": job,
        "owner_uid": UID,
        "role": role,
        "index": index,
        "phase": phase,
        "exits": () if code is None else (Exit(container, code),),
    }
    return Pod(**{**row, **fields})


def pod_status(phase: str, container: str, code: int | None = None, **terminated: Any) -> dict[str, Any]:
    """Return the status that a kubelet reports of a pod with one container, which has ended with ``code`` if there is one."""
    ended = {"terminated": {"exitCode": code, **terminated}}
    status = {"name": container, "image": "img", "imageID": "", "ready": False, "restartCount": 0}
    state: dict[str, Any] = {"running": {}} if code is None else ended
    return {"phase": phase, "containerStatuses": [{**status, "state": state}]}


def service(role: str = "worker", index: int = 0, *, job: str = "train", **fields: Any) -> Service:
    """Return a Service of that job."""
    name = child_name(job, role, index)
    row: dict[str, Any] = {
        "namespace": "ml",
        "name": name,
        "uid": f"{name}-service-uid",
        "resource_version": 1,
        "owner_kind": "PyTorchJob",
        "owner_name": job,
        "owner_uid": UID,
        "role": role,
        "index": index,
    }
    return Service(**{**row, **fields})


def pod_group(*, job: str = "train", **fields: Any) -> PodGroup:
    """Return the PodGroup of that job."""
    row: dict[str, Any] = {
        "namespace": "ml",
        "name": job,
        "uid": f"{job}-group-uid",
        "resource_version": 1,
        "owner_kind": "PyTorchJob",
        "owner_name": job,
        "owner_uid": UID,
    }
    return PodGroup(**{**row, **fields})


def snapshot(*children: Pod | Service) -> Snapshot:
    """Return the snapshot of a job with these children."""
    return Snapshot(
        pods=tuple(child for child in children if isinstance(child, Pod)),
        services=tuple(child for child in children if isinstance(child, Service)),
    )
