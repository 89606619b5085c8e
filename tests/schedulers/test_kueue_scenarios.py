"""Jobs of six kinds under the real Kueue, whether Kueue or the operator keeps their Workloads.

With the operator as integrator, Kueue keeps those of MPIJobs, as in its default configuration.
"""

from collections.abc import Generator
from functools import partial
from itertools import count
from typing import Any

import pytest

from tests.support.invariants import has
from tests.support.schedulers.integrators import INTEGRATORS, RACKS, Environment, Integrator, environment
from tests.support.schedulers.operator import Operator
from tests.support.schedulers.queues import (
    GRACE,
    MPIJOB,
    V1_KINDS,
    Object,
    Queue,
    QueuedKind,
    create_priority_class,
    create_topology,
    job_body,
    templates,
    toleration,
)
from tests.support.schedulers.quota import role_of

HOSTNAME = "kubernetes.io/hostname"
INDEX = "training.kubeflow.org/replica-index"
_NUMBERS = count()
of_each_kind = pytest.mark.parametrize("kind", [*V1_KINDS, MPIJOB], ids=str)


@pytest.fixture(scope="module", params=INTEGRATORS, ids=str)
def kueue(
    request: pytest.FixtureRequest, operator: Operator, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Environment]:
    integrator: Integrator = request.param
    with environment(integrator, operator, tmp_path_factory.mktemp("kueue")) as running:
        yield running


def new_queue(kueue: Environment, **settings: Any) -> Queue:
    return Queue(kueue.plane, f"team-{next(_NUMBERS)}", **settings)


def wait_until_running(queue: Queue, kind: QueuedKind, *jobs: str) -> None:
    for job in jobs:
        queue.wait_for(kind, job, "Running")
        queue.wait(f"all pods of {job}", partial(has_all_pods, queue, job))


def has_all_pods(queue: Queue, job: str) -> bool:
    return len(queue.pods(job, "Running")) == 4


def finish(queue: Queue, kind: QueuedKind, *jobs: str) -> None:
    for job in jobs:
        queue.end_pods(job)
        queue.wait_for(kind, job, "Succeeded")


def flavor_of(queue: Queue, job: str) -> str:
    """Return the flavor whose labels and tolerations all pods of a job have, and on whose nodes they are."""
    pods = queue.pods(job)
    (flavor,) = {pod["spec"]["nodeSelector"]["instance"] for pod in pods}
    assert all(toleration(flavor) in pod["spec"]["tolerations"] for pod in pods)
    node = {"spot": "node-1", "reserved": "node-2"}[flavor]
    assert {pod["spec"]["nodeName"] for pod in pods} == {node}
    return str(flavor)


@of_each_kind
def test_a_job_waits_for_quota_runs_where_it_is_admitted_and_returns_its_quota(
    kueue: Environment, kind: QueuedKind
) -> None:
    queue = new_queue(kueue, cpus=8, flavors=("spot", "reserved"))
    with kueue.within_quota(queue, kind, cpus=8):
        for name in ("first", "second", "third"):
            queue.submit(kind, name)
            queue.wait(f"the Workload of {name}", partial(queue.workloads_of, name))
        wait_until_running(queue, kind, "first", "second")
        freed = flavor_of(queue, "first")
        assert {freed, flavor_of(queue, "second")} == {"spot", "reserved"}
        queue.wait_for(kind, "third", "Suspended")
        assert queue.pods("third") == []
        queue.wait("the quota of eight pods in use", lambda: queue.used() == 8)

        finish(queue, kind, "first")

        wait_until_running(queue, kind, "third")
        assert flavor_of(queue, "third") == freed
        finish(queue, kind, "second", "third")
        queue.wait("its quota returned", lambda: queue.used() == 0)
        assert len(queue.workloads()) == 3
        assert all(has(own, "Finished") and has(own, "PodsReady") for own in queue.workloads())
        queue.wait(
            "no finalizer of a Workload",
            lambda: not any("finalizers" in own["metadata"] for own in queue.workloads()),
        )


@of_each_kind
def test_a_preempted_job_stays_within_its_quota_and_continues_with_another_flavor(
    kueue: Environment, kind: QueuedKind
) -> None:
    """Workers take longer to end than the other pods."""
    queue = new_queue(kueue, cpus=8, flavors=("spot", "reserved"))
    create_priority_class(kueue.plane, "urgent", 1000)
    with kueue.within_quota(queue, kind, cpus=8):
        for name in ("first", "second"):
            job = job_body(kind, name, "main")
            templates(kind, job)[-1]["metadata"]["annotations"] = {GRACE: "1s"}
            kueue.plane.request("POST", queue.path(kind), job)
        wait_until_running(queue, kind, "first", "second")
        flavors = {job: flavor_of(queue, job) for job in ("first", "second")}

        queue.submit(kind, "urgent", priority_class="urgent")

        wait_until_running(queue, kind, "urgent")
        (victim,) = (job for job in flavors if queue.has(kind, job, "Suspended"))
        (other,) = flavors.keys() - {victim}
        assert flavor_of(queue, "urgent") == flavors[victim]
        assert queue.pods(victim) == []
        for template in templates(kind, queue.job(kind, victim)):
            assert template["metadata"]["labels"] == {"team": "vision"}
            assert not template["spec"].get("nodeSelector")
        assert queue.events(victim, "Stopped")
        finish(queue, kind, other)
        wait_until_running(queue, kind, victim)
        assert flavor_of(queue, victim) == flavors[other]
        finish(queue, kind, "urgent", victim)
        queue.wait("its quota returned", lambda: queue.used() == 0)


@of_each_kind
def test_a_job_that_is_evicted_while_its_pods_start_loses_them_and_runs_later(
    kueue: Environment, kind: QueuedKind
) -> None:
    """Two of its pods exist and wait for a node; the API server refuses the others."""
    queue = new_queue(kueue, cpus=4)
    create_priority_class(kueue.plane, "urgent", 1000)
    limit = limit_pods(queue, 2)
    job = job_body(kind, "slow", "main")
    for template in templates(kind, job):
        template["spec"]["nodeSelector"] = {"ready-for": queue.name}
    with kueue.within_quota(queue, kind, cpus=4):
        kueue.plane.request("POST", queue.path(kind), job)
        queue.wait("two pods without a node", lambda: len(queue.pods("slow", "Pending")) == 2)
        queue.wait("a refused pod", lambda: has_refused_pod(queue))
        assert not queue.has(kind, "slow", "Running")

        queue.submit(kind, "urgent", priority_class="urgent")

        queue.wait_for(kind, "slow", "Suspended")
        kueue.plane.request("DELETE", limit)
        wait_until_running(queue, kind, "urgent")
        assert queue.pods("slow") == []
        queue.wait("the quota of four pods in use", lambda: queue.used() == 4)
        labels = {"metadata": {"labels": {"ready-for": queue.name}}}
        kueue.plane.request("PATCH", "/api/v1/nodes/node-0", labels)
        finish(queue, kind, "urgent")
        wait_until_running(queue, kind, "slow")
        finish(queue, kind, "slow")
        queue.wait("its quota returned", lambda: queue.used() == 0)


def limit_pods(queue: Queue, pods: int) -> str:
    """Let the namespace have no more pods, and return the path of the limit. Nothing counts pods that are deleted."""
    path = f"/api/v1/namespaces/{queue.name}/resourcequotas"
    hard = {"pods": str(pods)}
    queue.plane.request("POST", path, {"metadata": {"name": "pods"}, "spec": {"hard": hard}})
    status = {"hard": hard, "used": {"pods": "0"}}
    queue.plane.request("PATCH", f"{path}/pods/status", {"status": status})
    return f"{path}/pods"


def has_refused_pod(queue: Queue) -> bool:
    events = queue.plane.request("GET", f"/api/v1/namespaces/{queue.name}/events")["items"]
    return any("exceeded quota: pods" in event["message"] for event in events)


@of_each_kind
def test_pods_run_in_the_topology_that_kueue_assigns_in_the_order_of_their_ranks(
    kueue: Environment, kind: QueuedKind
) -> None:
    """Each node of a rack has room for two pods."""
    queue = rack_queue(kueue)
    job = job_body(kind, "job", "main")
    for template in templates(kind, job):
        template["metadata"]["annotations"] = {"kueue.x-k8s.io/podset-required-topology": "rack"}
    with kueue.within_quota(queue, kind, cpus=4):
        kueue.plane.request("POST", queue.path(kind), job)

        wait_until_running(queue, kind, "job")
        for role in kind.sizes:
            pods = pods_of_role(queue, role)
            assert not any(pod["spec"].get("schedulingGates") for pod in pods)
            assert racks_of(pods) <= {"rack-a"} or racks_of(pods) <= {"rack-b"}
            hosts = [pod["spec"]["nodeSelector"][HOSTNAME] for pod in pods]
            assert hosts == [pod["spec"]["nodeName"] for pod in pods]
            assert hosts == sorted(hosts)
        for pod_set in queue.workload("job")["spec"]["podSets"]:
            assert pod_set["topologyRequest"]["podIndexLabel"] == INDEX
        finish(queue, kind, "job")
        queue.wait("its quota returned", lambda: queue.used() == 0)


def test_a_launcher_that_is_a_worker_has_the_first_rank(kueue: Environment) -> None:
    """Kueue counts the indexes of the workers from 1 then."""
    queue = rack_queue(kueue)
    job = job_body(MPIJOB, "job", "main")
    job["spec"]["runLauncherAsWorker"] = True
    for template in templates(MPIJOB, job):
        template["metadata"]["annotations"] = {
            "kueue.x-k8s.io/podset-required-topology": "rack",
            "kueue.x-k8s.io/podset-group-name": "all",
        }
    kueue.plane.request("POST", queue.path(MPIJOB), job)

    wait_until_running(queue, MPIJOB, "job")
    pods = [*pods_of_role(queue, "Launcher"), *pods_of_role(queue, "Worker")]
    assert [pod["metadata"]["labels"].get(INDEX) for pod in pods] == ["0", "1", "2", "3"]
    hosts = [pod["spec"]["nodeName"] for pod in pods]
    assert (hosts, len(racks_of(pods))) == (sorted(hosts), 1)
    finish(queue, MPIJOB, "job")


def rack_queue(kueue: Environment) -> Queue:
    create_topology(kueue.plane, "racks", "rack", HOSTNAME)
    return new_queue(kueue, cpus=4, flavors=("racked",), topology="racks")


def pods_of_role(queue: Queue, role: str) -> list[Object]:
    """Return the pods of a role by their index."""
    pods = [pod for pod in queue.pods() if role_of(pod) == role.lower()]
    return sorted(pods, key=lambda pod: int(labels_of(pod).get(INDEX, "0")))


def labels_of(pod: Object) -> dict[str, str]:
    labels: dict[str, str] = pod["metadata"]["labels"]
    return labels


def racks_of(pods: list[Object]) -> set[str]:
    racks = {f"node-{number}": rack for rack, numbers in RACKS.items() for number in numbers}
    return {racks[pod["spec"]["nodeName"]] for pod in pods}
