"""The controller as a process with a real kube-apiserver: over TLS, as the shipped ServiceAccount, under its RBAC.

Lives of whole jobs, and what must not disturb them. What exactly is sent is for the recordings to check (tests/parity).
"""

from collections.abc import Iterator
from typing import Any

import pytest

from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.controlplane.requests import Refused
from rallypoint.testing.service import Service, in_cluster_service, install
from tests.support.jobs import Jobs, job


@pytest.fixture(scope="module")
def operator(control_plane: ControlPlane) -> Iterator[Service]:
    install(control_plane)
    with in_cluster_service(control_plane) as running:
        yield running
    refused = [line for line in running.log() if " cannot " in str(line.get("error"))]  # RBAC's words
    assert not refused, "a permission is missing in the shipped ClusterRole"


def test_a_job_runs_from_created_to_succeeded(
    control_plane: ControlPlane, operator: Service, namespace: str
) -> None:
    jobs = Jobs(control_plane, namespace)
    jobs.create("life", job(workers=2))
    jobs.wait_for("life", "Running")

    assert jobs.pods("life") == ["life-master-0", "life-worker-0", "life-worker-1"]
    assert jobs.names("services") == jobs.pods("life")

    jobs.end_pod("life-master-0", "Succeeded", 0)
    jobs.wait_for("life", "Succeeded")

    assert jobs.conditions("life") == [("Created", "True"), ("Running", "False"), ("Succeeded", "True")]
    succeeded = f'training_operator_jobs_successful_total{{framework="pytorch",job_namespace="{namespace}"}}'
    assert operator.metric(succeeded) == 1


def test_a_failed_worker_is_replaced_and_the_job_continues(
    control_plane: ControlPlane, operator: Service, namespace: str
) -> None:
    jobs = Jobs(control_plane, namespace)
    jobs.create("again", job(workers=1))
    jobs.wait_for("again", "Running")
    first = jobs.uid("again-worker-0")

    jobs.end_pod("again-worker-0", "Failed", 137)

    control_plane.wait("a new pod", lambda: jobs.uid("again-worker-0") not in {"", first}, seconds=30)
    jobs.wait_for("again", "Running")


def test_a_deadline_ends_an_idle_job(control_plane: ControlPlane, operator: Service, namespace: str) -> None:
    jobs = Jobs(control_plane, namespace)
    jobs.create("late", job(workers=1, runPolicy={"activeDeadlineSeconds": 3}))
    jobs.wait_for("late", "Failed")

    assert "longer than specified deadline" in jobs.condition("late", "Failed")["message"]
    control_plane.wait("the pods to go", lambda: jobs.pods("late") == [], seconds=60)


def test_an_expired_job_is_deleted_with_its_children(
    control_plane: ControlPlane, operator: Service, namespace: str
) -> None:
    jobs = Jobs(control_plane, namespace)
    jobs.create("brief", job(workers=0, runPolicy={"ttlSecondsAfterFinished": 1}))
    jobs.wait_for("brief", "Running")
    jobs.end_pod("brief-master-0", "Succeeded", 0)

    control_plane.wait("the job to go", lambda: not control_plane.has(jobs.path("brief")), seconds=60)
    control_plane.wait("its children to go", lambda: jobs.names("services") == [], seconds=60)


def test_a_suspended_job_has_no_pods_until_it_is_resumed(
    control_plane: ControlPlane, operator: Service, namespace: str
) -> None:
    jobs = Jobs(control_plane, namespace)
    jobs.create("paused", job(workers=1, runPolicy={"suspend": True}))
    jobs.wait_for("paused", "Suspended")
    assert jobs.pods("paused") == []

    jobs.patch("paused", {"spec": {"runPolicy": {"suspend": False}}})

    jobs.wait_for("paused", "Running")
    assert jobs.condition("paused", "Suspended")["reason"] == "PyTorchJobResumed"


CONTAINERS = "spec.pytorchReplicaSpecs[Worker].template.spec.containers"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        pytest.param(
            {"Worker": {"replicas": "two"}},
            "spec.pytorchReplicaSpecs.Worker.replicas",
            id="text where a number belongs",
        ),
        pytest.param(
            {"Worker": {"template": {"spec": {"containers": "pytorch"}}}},
            "spec.pytorchReplicaSpecs.Worker.template.spec.containers",
            id="text where a list belongs",
        ),
        pytest.param(
            {"Worker": {"replicas": 2**40}}, "spec.pytorchReplicaSpecs.Worker.replicas", id="2⁴⁰ workers"
        ),
    ],
)
def test_wrong_types_are_rejected_with_their_field(
    control_plane: ControlPlane, operator: Service, namespace: str, change: dict[str, Any], field: str
) -> None:
    with pytest.raises(Refused) as caught:
        Jobs(control_plane, namespace).create("wrong", job(workers=1, roles=change))

    assert caught.value.code == 422
    assert field in str(caught.value)


@pytest.mark.parametrize(
    ("roles", "said"),
    [
        pytest.param(
            {"Worker": {"replicas": 2_000_000_000}},
            "spec.pytorchReplicaSpecs: Invalid value: 2000000001 replicas: must be at most 10000",
            id="two billion workers",
        ),
        pytest.param(
            {"Worker": {"template": {"spec": {"containers": [{"name": "main", "image": "x"}]}}}},
            f"{CONTAINERS}: Required value: must have at least one container with name pytorch",
            id="no container of the kind's name",
        ),
    ],
)
def test_an_invalid_job_fails_and_names_the_field(
    control_plane: ControlPlane, operator: Service, namespace: str, roles: dict[str, Any], said: str
) -> None:
    jobs = Jobs(control_plane, namespace)
    jobs.create("wrong", job(workers=1, roles=roles))
    jobs.wait_for("wrong", "Failed")

    assert jobs.condition("wrong", "Failed")["reason"] == "PyTorchJobFailedValidation"
    assert said in jobs.condition("wrong", "Failed")["message"]
    assert jobs.pods("wrong") == []


def test_a_rejected_template_fails_the_job_and_leaves_no_children(
    control_plane: ControlPlane, operator: Service, namespace: str
) -> None:
    jobs = Jobs(control_plane, namespace)
    mounts = [{"name": "pytorch", "image": "x", "volumeMounts": [{"name": "nowhere", "mountPath": "/data"}]}]
    jobs.create("mounts", job(workers=1, roles={"Worker": {"template": {"spec": {"containers": mounts}}}}))
    jobs.wait_for("mounts", "Failed")

    assert 'volumeMounts[0].name: Not found: "nowhere"' in jobs.condition("mounts", "Failed")["message"]
    control_plane.wait(
        "everything to go", lambda: jobs.pods("mounts") + jobs.names("services") == [], seconds=60
    )


def test_a_mebibyte_of_annotations_is_rejected_and_other_jobs_continue(
    control_plane: ControlPlane, operator: Service, namespace: str
) -> None:
    jobs = Jobs(control_plane, namespace)
    heavy = job(workers=1)
    heavy["metadata"] = {"annotations": {"note": "x" * 2**20}}
    with pytest.raises(Refused) as caught:
        jobs.create("heavy", heavy)
    assert "metadata.annotations" in str(caught.value)

    jobs.create("light", job(workers=1))

    jobs.wait_for("light", "Running")
    assert (
        operator.metric('controller_runtime_reconcile_panics_total{controller="pytorchjob-controller"}') == 0
    )


def test_a_name_conflict_is_reported_and_the_object_is_left_alone(
    control_plane: ControlPlane, operator: Service, namespace: str
) -> None:
    foreign = {"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 80}]}}
    foreign["metadata"] = {"name": "taken-worker-0"}
    path = f"/api/v1/namespaces/{namespace}/services"
    control_plane.request("POST", path, foreign)
    jobs = Jobs(control_plane, namespace)
    jobs.create("taken", job(workers=1))

    control_plane.wait("an event", lambda: "FailedCreateService" in jobs.event_reasons("taken"), seconds=30)
    assert "ownerReferences" not in control_plane.request("GET", f"{path}/taken-worker-0")["metadata"]

    control_plane.request("DELETE", f"{path}/taken-worker-0")
    control_plane.wait(
        "the job's own Service", lambda: jobs.owner(f"{path}/taken-worker-0") == "taken", seconds=60
    )
