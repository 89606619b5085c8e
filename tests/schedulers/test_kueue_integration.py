"""What the operator does for queued jobs with ``--kueue``, beyond the scenarios that Kueue's own integration has, too."""

from collections.abc import Generator
from functools import partial
from itertools import count
from typing import Any

import pytest

from rallypoint.testing.controlplane import ControlPlane
from tests.support.schedulers.integrators import OPERATOR, environment
from tests.support.schedulers.operator import Operator
from tests.support.schedulers.queues import (
    PYTORCHJOB,
    QUEUES,
    V1_KINDS,
    Queue,
    QueuedKind,
    create_priority_class,
    job_body,
)

_NUMBERS = count()


@pytest.fixture(scope="module")
def plane(operator: Operator, tmp_path_factory: pytest.TempPathFactory) -> Generator[ControlPlane]:
    with environment(OPERATOR, operator, tmp_path_factory.mktemp("kueue")) as running:
        yield running.plane


def new_queue(plane: ControlPlane, **settings: Any) -> Queue:
    return Queue(plane, f"team-{next(_NUMBERS)}", **settings)


@pytest.mark.parametrize("kind", V1_KINDS, ids=str)
def test_the_quota_of_a_deleted_job_is_returned_after_its_pods(plane: ControlPlane, kind: QueuedKind) -> None:
    queue = new_queue(plane, cpus=4)
    queue.submit(kind, "gone")
    queue.wait_for(kind, "gone", "Running")

    plane.request("DELETE", queue.path(kind, "gone"))

    queue.wait("no Workload", lambda: not queue.workloads())
    assert not [pod for pod in queue.pods() if pod["status"]["phase"] == "Running"]
    queue.wait("its quota returned", lambda: queue.used() == 0)


def test_a_deactivated_job_stops_and_continues_when_it_is_activated(plane: ControlPlane) -> None:
    queue = new_queue(plane, cpus=4)
    queue.submit(PYTORCHJOB, "job")
    queue.wait_for(PYTORCHJOB, "job", "Running")

    queue.change_workload("job", {"spec": {"active": False}})

    queue.wait_for(PYTORCHJOB, "job", "Suspended")
    queue.wait("its quota returned", lambda: queue.used() == 0)
    queue.change_workload("job", {"spec": {"active": True}})
    queue.wait_for(PYTORCHJOB, "job", "Running")


def test_a_job_that_grows_is_queued_again_with_all_its_pods(plane: ControlPlane) -> None:
    queue = new_queue(plane, cpus=6)
    queue.submit(PYTORCHJOB, "job")
    queue.wait_for(PYTORCHJOB, "job", "Running")

    queue.change(PYTORCHJOB, "job", {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 5}}}})

    queue.wait("all pods", lambda: len(queue.pods("job", "Running")) == 6 and queue.used() == 6)
    queue.change(PYTORCHJOB, "job", {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 6}}}})
    queue.wait_for(PYTORCHJOB, "job", "Suspended")
    queue.wait("no pods", lambda: queue.pods("job") == [] and queue.used() == 0)


def test_a_job_whose_workload_is_deleted_is_queued_again(plane: ControlPlane) -> None:
    queue = new_queue(plane, cpus=4)
    queue.submit(PYTORCHJOB, "job")
    queue.wait_for(PYTORCHJOB, "job", "Running")
    before = queue.workload("job")["metadata"]

    plane.request("DELETE", f"{QUEUES}/namespaces/{queue.name}/workloads/{before['name']}")

    queue.wait(
        "another Workload",
        lambda: [own["metadata"]["uid"] for own in queue.workloads_of("job")] not in ([], [before["uid"]]),
    )
    queue.wait_for(PYTORCHJOB, "job", "Running")


def test_a_pending_job_that_changes_changes_its_workload(plane: ControlPlane) -> None:
    queue = new_queue(plane, cpus=4)
    create_priority_class(plane, "important", 500)
    queue.submit(PYTORCHJOB, "first")
    queue.wait_for(PYTORCHJOB, "first", "Running")
    queue.submit(PYTORCHJOB, "second")
    queue.wait("its Workload", partial(queue.workloads_of, "second"))
    labels = {"kueue.x-k8s.io/priority-class": "important", "kueue.x-k8s.io/queue-name": "other"}
    change = {"metadata": {"labels": labels}, "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1}}}}

    queue.change(PYTORCHJOB, "second", change)

    def is_changed() -> bool:
        spec = queue.workload("second")["spec"]
        sizes = {pod_set["name"]: pod_set["count"] for pod_set in spec["podSets"]}
        return (spec["priority"], spec["queueName"], sizes) == (500, "other", {"master": 1, "worker": 1})

    queue.wait("its change", is_changed)


def test_a_job_that_contradicts_its_flavor_finishes_its_workload_and_says_why(plane: ControlPlane) -> None:
    queue = new_queue(plane, cpus=8, flavors=("spot", "reserved"))
    job = job_body(PYTORCHJOB, "job", "main")
    template = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    template["metadata"]["annotations"] = {"kueue.x-k8s.io/podset-unconstrained-topology": "maybe"}

    plane.request("POST", queue.path(PYTORCHJOB), job)

    queue.wait("the event", lambda: queue.events("job", "WorkloadBlocked"))
    (message, *_) = queue.events("job", "WorkloadBlocked")
    assert "podset-unconstrained-topology must be true or false" in message
    assert queue.pods("job") == []


def test_a_job_without_a_queue_runs_at_once(plane: ControlPlane) -> None:
    queue = new_queue(plane, cpus=4)
    job = job_body(PYTORCHJOB, "job", "main")
    del job["metadata"]["labels"]

    plane.request("POST", queue.path(PYTORCHJOB), job)

    queue.wait_for(PYTORCHJOB, "job", "Running")
    assert queue.workloads() == []


def test_a_job_of_multikueue_is_left_alone(plane: ControlPlane) -> None:
    queue = new_queue(plane, cpus=8)
    job = job_body(PYTORCHJOB, "left", "main")
    job["spec"]["runPolicy"]["managedBy"] = "kueue.x-k8s.io/multikueue"
    created = plane.request("POST", queue.path(PYTORCHJOB), job)

    queue.submit(PYTORCHJOB, "taken")

    queue.wait_for(PYTORCHJOB, "taken", "Running")
    assert queue.job(PYTORCHJOB, "left") == created
    assert queue.workloads_of("left") == []
    assert {pod["metadata"]["labels"]["training.kubeflow.org/job-name"] for pod in queue.pods()} == {"taken"}
