"""Rows of jobs with a queue label and of their Workloads, for tests of our own integration with Kueue."""

from collections.abc import Mapping
from typing import Any

import msgspec

from api.workloads import QUEUE_NAME, RESOURCE_IN_USE, Workload, workload_from_json
from controller.kinds.pytorch import PYTORCH
from controller.kueue.pod_sets import QueuedJob, workload_body
from controller.reconcile.jobs import job_from_json
from tests.support.builders import UID, template

Object = dict[str, Any]
AT = "2026-01-01T11:00:00Z"
WORKLOAD_UID = "workload-uid"


def queued_job(
    *,
    queue: str = "main",
    suspend: bool | None = True,
    roles: Mapping[str, Any] | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    conditions: tuple[str, ...] = (),
    replica_statuses: Mapping[str, Any] | None = None,
    **run_policy: Any,
) -> QueuedJob:
    """Return a PyTorchJob with a master and two workers. ``roles`` overrides fields of replica specs, ``conditions`` are True."""
    specs: Object = {
        role: {"replicas": count, "template": template(), **((roles or {}).get(role) or {})}
        for role, count in (("Master", 1), ("Worker", 2))
    }
    own = {QUEUE_NAME: queue} if queue else {}
    policy = {"suspend": suspend, **run_policy} if suspend is not None else dict(run_policy)
    status = {
        "conditions": [{"type": type_, "status": "True", "message": f"{type_}!"} for type_ in conditions],
        "replicaStatuses": replica_statuses or {},
    }
    body = {
        "metadata": {
            "name": "train",
            "namespace": "ml",
            "uid": UID,
            "resourceVersion": "7",
            "labels": {**own, **(labels or {})},
            "annotations": dict(annotations or {}),
        },
        "spec": {"pytorchReplicaSpecs": specs, "runPolicy": policy},
        "status": status,
    }
    return QueuedJob(PYTORCH, job_from_json(msgspec.json.encode(body)))


def workload_of(
    job: QueuedJob,
    *conditions: str | Mapping[str, Any],
    priority: Mapping[str, Any] | None = None,
    fingerprint: str | None = None,
    finalizers: tuple[str, ...] = (RESOURCE_IN_USE,),
    deleting: bool = False,
    owner_uid: str = UID,
    spec: Mapping[str, Any] | None = None,
    **status: Any,
) -> Workload:
    """Return the Workload of a job. ``conditions`` are True, or whole conditions; ``status`` are further fields of its status."""
    body = workload_body(job, priority or {"priority": 0})
    metadata = body["metadata"] | {
        "uid": WORKLOAD_UID,
        "resourceVersion": "8",
        "finalizers": list(finalizers),
    }
    metadata["ownerReferences"][0]["uid"] = owner_uid
    if deleting:
        metadata["deletionTimestamp"] = AT
    if fingerprint is not None:
        metadata["annotations"] = {"training.kubeflow.org/pod-sets": fingerprint}
    full = [
        {"type": own, "status": "True", "reason": own, "message": f"{own}!", "lastTransitionTime": AT}
        if isinstance(own, str)
        else own
        for own in conditions
    ]
    names = [pod_set["name"] for pod_set in body["spec"]["podSets"]]
    if "QuotaReserved" in conditions:
        assignments = [{"name": name, "flavors": {"cpu": "spot"}} for name in names]
        status.setdefault("admission", {"clusterQueue": "cluster", "podSetAssignments": assignments})
    body |= {
        "metadata": metadata,
        "spec": body["spec"] | dict(spec or {}),
        "status": {"conditions": full, **status},
    }
    return workload_from_json({"PyTorchJob"}, msgspec.json.encode(body))
