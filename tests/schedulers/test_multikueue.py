"""Jobs that MultiKueue runs on another cluster, under two real Kueues, with the operator in both clusters."""

import urllib.request
from collections.abc import Generator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from urllib.parse import urlsplit

import pytest

from api.labels import MANAGED_BY_MULTIKUEUE
from rallypoint.testing.service import Service
from tests.support.schedulers.integrators import KUEUE, Environment, kueue_alone
from tests.support.schedulers.link import Link, link_to
from tests.support.schedulers.multikueue import CHECK, connect, wait_until_lost
from tests.support.schedulers.operator import Operator
from tests.support.schedulers.queues import MPIJOB, V1_KINDS, Queue, QueuedKind, job_body

COPIED = [kind for kind in (*V1_KINDS, MPIJOB) if kind.resource.kind != "JAXJob"]
"""Kueue refuses the copy of a JAXJob: its list of kinds with prebuilt Workloads lacks it.

Source: kueue 0.19.2, pkg/controller/jobframework/validation.go, supportedPrebuiltWlJobGVKs.
"""
_NUMBERS = count()


@dataclass(frozen=True, slots=True)
class Clusters:
    manager: Environment
    worker: Environment
    operator: Service
    """That of the manager."""
    link: Link
    """Over which the manager reaches the worker."""

    def queues(self) -> tuple[Queue, Queue]:
        """Return a queue of the manager, and the one of that name to which it dispatches."""
        name = f"team-{next(_NUMBERS)}"
        worker = Queue(self.worker.plane, name, cpus=4)
        return Queue(self.manager.plane, name, cpus=4, admission_checks=(CHECK,)), worker


@pytest.fixture(scope="module")
def clusters(operator: Operator, tmp_path_factory: pytest.TempPathFactory) -> Generator[Clusters]:
    with ExitStack() as stack:
        manager, worker = (
            stack.enter_context(kueue_alone(KUEUE, tmp_path_factory.mktemp(name)))
            for name in ("manager", "worker")
        )
        address = urlsplit(worker.plane.server)
        assert address.hostname is not None
        assert address.port is not None
        link = stack.enter_context(link_to(address.hostname, address.port))
        connect(manager.plane, worker.plane, link)
        service, _ = (stack.enter_context(running.operator(operator)) for running in (manager, worker))
        yield Clusters(manager, worker, service, link)


@pytest.mark.parametrize("kind", COPIED, ids=str)
def test_a_job_of_the_manager_runs_on_the_worker_and_its_status_comes_back(
    clusters: Clusters, kind: QueuedKind
) -> None:
    manager, worker = clusters.queues()
    manager.submit(kind, "job")

    worker.wait("all pods on the worker", lambda: len(worker.pods("job", "Running")) == 4)
    manager.wait_for(kind, "job", "Running")
    job = manager.job(kind, "job")
    assert job["spec"]["runPolicy"]["managedBy"] == MANAGED_BY_MULTIKUEUE
    assert job["status"]["replicaStatuses"] == worker.job(kind, "job")["status"]["replicaStatuses"]
    assert manager.pods() == []

    worker.end_pods("job")

    manager.wait_for(kind, "job", "Succeeded")
    manager.wait("the copy deleted", lambda: not worker.plane.has(worker.path(kind, "job")))
    manager.wait("its quota returned", lambda: manager.used() == worker.used() == 0)
    assert manager.pods() == []


def test_a_job_that_ends_while_its_worker_is_lost_ends_on_the_manager_when_the_worker_is_back(
    clusters: Clusters,
) -> None:
    """The operator of the manager starts no pods of its own meanwhile."""
    kind = COPIED[0]
    manager, worker = clusters.queues()
    manager.submit(kind, "job")
    worker.wait("all pods on the worker", lambda: len(worker.pods("job", "Running")) == 4)
    manager.wait_for(kind, "job", "Running")
    before = manager.job(kind, "job")["status"]

    clusters.link.cut()
    try:
        worker.end_pods("job")
        worker.wait_for(kind, "job", "Succeeded")
        wait_until_lost(manager.plane)
        assert manager.job(kind, "job")["status"] == before
        assert manager.pods() == []
    finally:
        clusters.link.restore()

    manager.wait_for(kind, "job", "Succeeded")
    manager.wait("its quota returned", lambda: manager.used() == worker.used() == 0)
    assert manager.pods() == []


@pytest.mark.parametrize("kind", [*V1_KINDS, MPIJOB], ids=str)
def test_the_operator_leaves_a_job_of_multikueue_alone(clusters: Clusters, kind: QueuedKind) -> None:
    """It has no queue, so that Kueue leaves it alone, too; another job shows that the operator has had the time."""
    queue, _ = clusters.queues()
    bodies = {name: job_body(kind, name, "main") for name in ("left", "taken")}
    for body in bodies.values():
        del body["metadata"]["labels"]
    bodies["left"]["spec"]["runPolicy"]["managedBy"] = MANAGED_BY_MULTIKUEUE
    created = queue.plane.request("POST", queue.path(kind), bodies["left"])

    queue.plane.request("POST", queue.path(kind), bodies["taken"])

    queue.wait_for(kind, "taken", "Running")
    assert queue.job(kind, "left") == created
    assert {pod["metadata"]["labels"]["training.kubeflow.org/job-name"] for pod in queue.pods()} == {"taken"}
    for plural in ("events", "services", "configmaps", "secrets"):
        path = f"/api/v1/namespaces/{queue.name}/{plural}"
        names = [item["metadata"]["name"] for item in queue.plane.request("GET", path)["items"]]
        assert not [name for name in names if name.startswith("left")]
    jobs = [line for line in metrics(clusters, queue) if line.startswith("rallypoint_jobs{")]
    assert sum(float(line.rpartition(" ")[2]) for line in jobs) == 1


def metrics(clusters: Clusters, queue: Queue) -> list[str]:
    """Return the series of the manager's operator about the namespace, as it exposes them."""
    with urllib.request.urlopen(f"http://{clusters.operator.address}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    return [line for line in lines if f'job_namespace="{queue.name}"' in line]
