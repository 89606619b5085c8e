"""Jobs as users write them: the common part of every kind, and the owner reference of their children."""

from typing import Any

import pytest
from pydantic import Field

from api.job import Job, JobSpec, JobStatus, ReplicaSpec, ReplicaStatus, owner_reference, replica_field
from api.v1.pytorchjob import RESOURCE, PyTorchJob
from tests.support.builders import UID, pytorch_job

WRITTEN: dict[str, Any] = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": {
        "name": "train",
        "namespace": "ml",
        "uid": "u",
        "labels": {"a": "b"},
        "annotations": {"c": "d"},
        "ownerReferences": [{"kind": "Other"}],
    },
    "spec": {
        "nprocPerNode": "auto",
        "runPolicy": {
            "cleanPodPolicy": "None",
            "ttlSecondsAfterFinished": 1,
            "activeDeadlineSeconds": 2,
            "backoffLimit": 3,
            "suspend": False,
            "managedBy": "kubeflow.org/training-operator",
            "schedulingPolicy": {
                "minAvailable": 1,
                "queue": "q",
                "minResources": {"cpu": 1, "memory": "1Gi"},
                "priorityClass": "high",
                "scheduleTimeoutSeconds": 5,
            },
        },
        "elasticPolicy": {
            "minReplicas": 1,
            "maxReplicas": 3,
            "rdzvBackend": "c10d",
            "rdzvPort": 29400,
            "rdzvHost": "host",
            "rdzvId": "id",
            "rdzvConf": [{"key": "timeout", "value": "900"}],
            "standalone": False,
            "nProcPerNode": 4,
            "maxRestarts": 5,
            "metrics": [{"type": "Resource"}],
        },
        "pytorchReplicaSpecs": {
            "Worker": {"replicas": 2, "restartPolicy": "Never", "template": {"spec": {"new": {"x": None}}}}
        },
        "fromTheFuture": [1],
    },
    "status": {
        "conditions": [
            {
                "type": "Created",
                "status": "True",
                "reason": "PyTorchJobCreated",
                "message": "m",
                "lastUpdateTime": "2026-01-01T12:00:00Z",
                "lastTransitionTime": "2026-01-01T12:00:00Z",
                "odd": 1,
            }
        ],
        "replicaStatuses": {"Worker": {"active": 1, "selector": "s", "labelSelector": {}}},
        "startTime": "2026-01-01T12:00:00Z",
        "completionTime": "2026-01-01T12:00:00Z",
        "lastReconcileTime": "2026-01-01T12:00:00Z",
        "byAnother": True,
    },
}


def test_every_field_survives_reading_and_writing() -> None:
    assert PyTorchJob.model_validate(WRITTEN).to_wire() == WRITTEN


def test_every_field_of_the_contract_is_parsed() -> None:
    job = PyTorchJob.model_validate(WRITTEN)
    elastic, policy = job.spec.elastic_policy, job.spec.policy

    assert elastic is not None
    assert not elastic.model_extra
    assert not policy.model_extra
    assert policy.scheduling_policy is not None
    assert not policy.scheduling_policy.model_extra
    assert set(job.spec.model_extra or ()) == {"fromTheFuture"}


@pytest.mark.parametrize(
    ("status", "serialized"),
    [
        pytest.param(ReplicaStatus(active=0), {"active": 0}, id="an explicit zero is written"),
        pytest.param(ReplicaStatus(active=None, failed=1), {"failed": 1}, id="null is left out"),
    ],
)
def test_replica_status_is_serialized(status: ReplicaStatus, serialized: dict[str, object]) -> None:
    assert status.to_wire() == serialized


def test_the_run_policy_is_empty_by_default() -> None:
    job = PyTorchJob.model_validate({"spec": {}})

    assert job.spec.policy.to_wire() == {}


def test_an_empty_status_is_an_empty_object() -> None:
    assert JobStatus().to_wire() == {}


def test_the_owner_reference_names_the_job_as_the_controller() -> None:
    assert owner_reference(RESOURCE, pytorch_job("bert")) == {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "name": "bert",
        "uid": UID,
        "controller": True,
        "blockOwnerDeletion": True,
    }


class TwoMapsSpec(JobSpec):
    leader_specs: dict[str, ReplicaSpec] | None = None
    worker_specs: dict[str, ReplicaSpec] | None = None


class TwoMapsJob(Job):
    spec: TwoMapsSpec = Field(default_factory=TwoMapsSpec)


def test_two_maps_of_replica_specs_are_an_error() -> None:
    with pytest.raises(TypeError, match="more than one map of replica specs: leader_specs and worker_specs"):
        replica_field(TwoMapsJob)
