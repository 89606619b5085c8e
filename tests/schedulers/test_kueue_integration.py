"""Our own integration (``--kueue``) under the real Kueue, whose own integrations of these kinds are off."""

from collections.abc import Generator
from functools import partial
from itertools import count
from typing import Any

import pytest

from controller.kind import ReplicaKind
from controller.kinds.pytorch import PYTORCH
from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.service import install
from tests.support.schedulers.gangs import open_nodes
from tests.support.schedulers.kueue import kueue
from tests.support.schedulers.operator import Operator
from tests.support.schedulers.queues import (
    EXTERNAL,
    KINDS,
    QUEUES,
    Queue,
    create_priority_class,
    graceful_stages,
    job_body,
    overlay,
)

Kind = ReplicaKind[Any]
IDS = [kind.resource.kind for kind in KINDS]
FLAGS = ("--pytorch-init-container=off", "--log-level=debug")
_NUMBERS = count()


@pytest.fixture(scope="module")
def plane(operator: Operator, tmp_path_factory: pytest.TempPathFactory) -> Generator[ControlPlane]:
    folder = tmp_path_factory.mktemp("kueue")
    with ControlPlane(nodes=2, scheduler=True, stages=graceful_stages(folder)) as plane:
        open_nodes(plane)
        for number, node in enumerate(plane.request("GET", "/api/v1/nodes")["items"]):
            labels = {"instance": ("spot", "reserved")[number], "rack": f"rack-{number}", "racked": "yes"}
            path = f"/api/v1/nodes/{node['metadata']['name']}"
            plane.request("PATCH", path, {"metadata": {"labels": labels}})
        install(plane, overlay(folder))
        with (
            kueue(plane, frameworks=("batch/job", "pod"), external=EXTERNAL),
            operator.running(plane, FLAGS, overlay=folder / "overlay"),
        ):
            yield plane


def new_queue(plane: ControlPlane, **settings: Any) -> Queue:
    return Queue(plane, f"team-{next(_NUMBERS)}", **settings)


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
def test_a_job_waits_for_quota_runs_where_it_is_admitted_and_returns_its_quota(
    plane: ControlPlane, kind: Kind
) -> None:
    queue = new_queue(plane, cpus=8, flavors=("spot", "reserved"))
    for name in ("first", "second", "third"):
        queue.submit(kind, name)
        queue.wait(f"the Workload of {name}", partial(queue.workloads_of, name))

    queue.wait_for(kind, "first", "Running")
    queue.wait_for(kind, "second", "Running")
    places = {pod["spec"]["nodeSelector"]["instance"] for pod in queue.pods("first")}
    places |= {pod["spec"]["nodeSelector"]["instance"] for pod in queue.pods("second")}
    assert places == {"spot", "reserved"}
    assert queue.has(kind, "third", "Suspended")
    assert queue.pods("third") == []
    queue.wait("the quota of eight pods in use", lambda: queue.used() == 8)

    queue.end_pods("first")
    queue.wait_for(kind, "first", "Succeeded")
    queue.wait_for(kind, "third", "Running")
    for name in ("second", "third"):
        queue.end_pods(name)
    queue.wait("its quota returned", lambda: queue.used() == 0)
    for workload in queue.workloads():
        conditions = {own["type"]: own["status"] for own in workload["status"]["conditions"]}
        assert conditions["Finished"] == conditions["PodsReady"] == "True"
        assert "finalizers" not in workload["metadata"]


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
def test_a_preempted_job_returns_its_quota_after_its_pods_and_continues_later(
    plane: ControlPlane, kind: Kind
) -> None:
    queue = new_queue(plane, cpus=4)
    create_priority_class(plane, "urgent", 1000)
    queue.submit(kind, "low")
    queue.wait_for(kind, "low", "Running")

    queue.submit(kind, "high", priority_class="urgent")

    queue.wait_for(kind, "high", "Running")
    assert queue.has(kind, "low", "Suspended")
    assert queue.pods("low") == []
    (template, *_) = templates(kind, queue.job(kind, "low"))
    assert template["metadata"]["labels"] == {"team": "vision"}
    assert queue.events("low", "Stopped")
    queue.end_pods("high")
    queue.wait_for(kind, "low", "Running")
    queue.end_pods("low")
    queue.wait_for(kind, "low", "Succeeded")
    queue.wait("its quota returned", lambda: queue.used() == 0)


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
def test_the_quota_of_a_deleted_job_is_returned_after_its_pods(plane: ControlPlane, kind: Kind) -> None:
    queue = new_queue(plane, cpus=4)
    queue.submit(kind, "gone")
    queue.wait_for(kind, "gone", "Running")

    plane.request("DELETE", queue.path(kind, "gone"))

    queue.wait("no Workload", lambda: not queue.workloads())
    assert not [pod for pod in queue.pods() if pod["status"]["phase"] == "Running"]
    queue.wait("its quota returned", lambda: queue.used() == 0)


def test_a_deactivated_job_stops_and_continues_when_it_is_activated(plane: ControlPlane) -> None:
    queue = new_queue(plane, cpus=4)
    queue.submit(PYTORCH, "job")
    queue.wait_for(PYTORCH, "job", "Running")

    queue.change_workload("job", {"spec": {"active": False}})

    queue.wait_for(PYTORCH, "job", "Suspended")
    queue.wait("its quota returned", lambda: queue.used() == 0)
    queue.change_workload("job", {"spec": {"active": True}})
    queue.wait_for(PYTORCH, "job", "Running")


def test_a_job_that_grows_is_queued_again_with_all_its_pods(plane: ControlPlane) -> None:
    queue = new_queue(plane, cpus=6)
    queue.submit(PYTORCH, "job")
    queue.wait_for(PYTORCH, "job", "Running")

    queue.change(PYTORCH, "job", {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 5}}}})

    queue.wait("all pods", lambda: len(queue.pods("job", "Running")) == 6 and queue.used() == 6)
    queue.change(PYTORCH, "job", {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 6}}}})
    queue.wait_for(PYTORCH, "job", "Suspended")
    queue.wait("no pods", lambda: queue.pods("job") == [] and queue.used() == 0)


def test_a_job_whose_workload_is_deleted_is_queued_again(plane: ControlPlane) -> None:
    queue = new_queue(plane, cpus=4)
    queue.submit(PYTORCH, "job")
    queue.wait_for(PYTORCH, "job", "Running")
    before = queue.workload("job")["metadata"]

    plane.request("DELETE", f"{QUEUES}/namespaces/{queue.name}/workloads/{before['name']}")

    queue.wait(
        "another Workload",
        lambda: [own["metadata"]["uid"] for own in queue.workloads_of("job")] not in ([], [before["uid"]]),
    )
    queue.wait_for(PYTORCH, "job", "Running")


def test_a_pending_job_that_changes_changes_its_workload(plane: ControlPlane) -> None:
    queue = new_queue(plane, cpus=4)
    create_priority_class(plane, "important", 500)
    queue.submit(PYTORCH, "first")
    queue.wait_for(PYTORCH, "first", "Running")
    queue.submit(PYTORCH, "second")
    queue.wait("its Workload", partial(queue.workloads_of, "second"))
    labels = {"kueue.x-k8s.io/priority-class": "important", "kueue.x-k8s.io/queue-name": "other"}
    change = {"metadata": {"labels": labels}, "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1}}}}

    queue.change(PYTORCH, "second", change)

    def is_changed() -> bool:
        spec = queue.workload("second")["spec"]
        sizes = {pod_set["name"]: pod_set["count"] for pod_set in spec["podSets"]}
        return (spec["priority"], spec["queueName"], sizes) == (500, "other", {"master": 1, "worker": 1})

    queue.wait("its change", is_changed)


def test_a_job_that_contradicts_its_flavor_finishes_its_workload_and_says_why(plane: ControlPlane) -> None:
    queue = new_queue(plane, cpus=8, flavors=("spot", "reserved"))
    job = job_body(PYTORCH, "job", "main")
    template = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    template["metadata"]["annotations"] = {"kueue.x-k8s.io/podset-unconstrained-topology": "maybe"}

    plane.request("POST", queue.path(PYTORCH), job)

    queue.wait("the event", lambda: queue.events("job", "WorkloadBlocked"))
    (message, *_) = queue.events("job", "WorkloadBlocked")
    assert "podset-unconstrained-topology must be true or false" in message
    assert queue.pods("job") == []


def test_a_job_without_a_queue_runs_at_once(plane: ControlPlane) -> None:
    queue = new_queue(plane, cpus=4)
    job = job_body(PYTORCH, "job", "main")
    del job["metadata"]["labels"]

    plane.request("POST", queue.path(PYTORCH), job)

    queue.wait_for(PYTORCH, "job", "Running")
    assert queue.workloads() == []


def test_pods_run_in_the_topology_that_kueue_assigns(plane: ControlPlane) -> None:
    topology(plane, "racks", "rack")
    queue = new_queue(plane, cpus=4, flavors=("racked",), topology="racks")
    job = job_body(PYTORCH, "job", "main")
    for role in job["spec"]["pytorchReplicaSpecs"].values():
        role["template"]["metadata"]["annotations"] = {"kueue.x-k8s.io/podset-required-topology": "rack"}

    plane.request("POST", queue.path(PYTORCH), job)

    queue.wait_for(PYTORCH, "job", "Running")
    queue.wait("all pods", lambda: len(queue.pods("job", "Running")) == 4)
    workers = [pod for pod in queue.pods("job") if "-worker-" in pod["metadata"]["name"]]
    assert len({pod["spec"]["nodeSelector"]["rack"] for pod in workers}) == 1
    assert not [pod for pod in queue.pods("job") if pod["spec"].get("schedulingGates")]


def topology(plane: ControlPlane, name: str, level: str) -> None:
    plane.apply(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Topology",
            "metadata": {"name": name},
            "spec": {"levels": [{"nodeLabel": level}]},
        }
    )


def templates(kind: Kind, job: dict[str, Any]) -> list[dict[str, Any]]:
    return [role["template"] for role in job["spec"][kind.replicas_field].values()]
