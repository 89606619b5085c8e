"""Nodes that are lost, on a real API server with its scheduler: a node that no kubelet serves, beside simulated ones."""

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.service import Service, in_cluster_service, install
from tests.support.builders import pod_status
from tests.support.jobs import Jobs, MPIJobs, job

LABEL, NAMESPACE = "machine", "default"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
HEARTBEAT_SECONDS = 3.0
PREFERRED = {
    "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": 100,
                "preference": {"matchExpressions": [{"key": "who", "operator": "In", "values": [LABEL]}]},
            }
        ]
    }
}
OUT_OF_SERVICE = {"key": "node.kubernetes.io/out-of-service", "value": "shutdown", "effect": "NoExecute"}


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    # Nodes keep the taint of new ones otherwise: the controller that removes it does not run.
    admission = ["--disable-admission-plugins=TaintNodesByCondition"]
    with ControlPlane(nodes=2, scheduler=True, api_server_flags=admission) as plane:
        install(plane)
        with heartbeats(plane, "node-0"):
            yield plane


@contextmanager
def heartbeats(plane: ControlPlane, node: str) -> Iterator[None]:
    """Renew the Lease of a node, as its kubelet does."""
    stopped = threading.Event()

    def renew() -> None:
        while not stopped.wait(HEARTBEAT_SECONDS):
            plane.request("PATCH", f"{LEASES}/{node}", {"spec": {"renewTime": now()}})

    plane.request("POST", LEASES, lease(node))
    thread = threading.Thread(target=renew)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def lease(node: str) -> dict[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": node},
        "spec": {"holderIdentity": node, "renewTime": now()},
    }


def now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"


@pytest.fixture(scope="module")
def operator(plane: ControlPlane) -> Iterator[Service]:
    with in_cluster_service(plane) as running:
        yield running
    refused = [line for line in running.log() if " cannot " in str(line.get("error"))]
    assert not refused, "a permission is missing in the shipped ClusterRole"


@pytest.fixture
def machine(plane: ControlPlane) -> Iterator["Machine"]:
    machine = Machine(plane)
    machine.start()
    try:
        yield machine
    finally:
        machine.remove()


class Machine:
    """A node whose kubelet is the test."""

    numbers = itertools.count()

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        # A name of its own: new pods avoid a name that has been lost until the next read.
        self.name = f"machine-{next(self.numbers)}"
        self.path = f"/api/v1/nodes/{self.name}"
        self.lease = f"{LEASES}/{self.name}"

    def start(self) -> None:
        room = {"cpu": "8", "memory": "8Gi", "pods": "20"}
        node: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": {"who": LABEL}},
            "status": {"capacity": room, "allocatable": room, "conditions": [_ready("True")]},
        }
        self._plane.request("POST", "/api/v1/nodes", node)
        self._plane.request("PATCH", f"{self.path}/status", {"status": node["status"]})
        self._plane.request("POST", LEASES, lease(self.name))
        self._plane.wait("a node that takes pods", self._is_untainted, seconds=60)

    def _is_untainted(self) -> bool:
        return not self._plane.request("GET", self.path)["spec"].get("taints")

    def set(self, ready: str, *taints: dict[str, str]) -> None:
        self._plane.request("PATCH", f"{self.path}/status", {"status": {"conditions": [_ready(ready)]}})
        self._plane.request("PATCH", self.path, {"spec": {"taints": list(taints)}})

    def remove(self) -> None:
        for path in (self.path, self.lease):
            if self._plane.has(path):
                self._plane.request("DELETE", path)


def _ready(status: str) -> dict[str, str]:
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    return {
        "type": "Ready",
        "status": status,
        "reason": "Test",
        "message": "",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }


def start(plane: ControlPlane, machine: Machine, jobs: Jobs, name: str, **run_policy: Any) -> str:
    """Run a job with a worker on the machine, and return the worker's UID."""
    pod = {"affinity": PREFERRED, "containers": [{"name": "pytorch", "image": "x"}]}
    anywhere = {"containers": [{"name": "pytorch", "image": "x"}]}
    roles = {
        "Master": {"restartPolicy": "OnFailure", "template": {"spec": anywhere}},
        "Worker": {"restartPolicy": "OnFailure", "template": {"spec": pod}},
    }
    jobs.create(name, job(workers=1, roles=roles, runPolicy=run_policy))
    plane.wait(
        "a worker on the machine", lambda: node_of(jobs, f"{name}-worker-0") == machine.name, seconds=30
    )
    jobs.patch_pod_status(f"{name}-worker-0", pod_status("Running", "pytorch"))
    jobs.wait_for(name, "Running")
    return jobs.uid(f"{name}-worker-0")


def node_of(jobs: Jobs, pod: str) -> str:
    found = [
        item["spec"].get("nodeName", "") for item in jobs.items("pods") if item["metadata"]["name"] == pod
    ]
    return str(found[0]) if found else ""


def test_a_silent_node_is_lost_after_the_time_that_the_job_gives_it(
    plane: ControlPlane, operator: Service, machine: Machine
) -> None:
    """The scheduler still takes the node for healthy, and the worker prefers it."""
    jobs = Jobs(plane, NAMESPACE)
    first = start(plane, machine, jobs, "silent", nodeLostSeconds=30)

    plane.wait("a new worker", lambda: jobs.uid("silent-worker-0") not in {"", first}, seconds=90)
    plane.wait("a node for it", lambda: node_of(jobs, "silent-worker-0") != "", seconds=30)

    assert node_of(jobs, "silent-worker-0").startswith("node-")
    jobs.wait_for("silent", "Running")
    assert "NodeLost" in jobs.event_reasons("silent")


def test_a_pod_on_a_node_out_of_service_restarts_the_job_and_avoids_the_node(
    plane: ControlPlane, operator: Service, machine: Machine
) -> None:
    jobs = Jobs(plane, NAMESPACE)
    rules = [{"action": "RestartJob", "onReasons": ["NodeLost"]}]
    policy = {"maxRestarts": 3, "avoidFailedNodes": True, "rules": rules}
    first = start(plane, machine, jobs, "out", nodeLostSeconds=3600, failurePolicy=policy)

    machine.set("False", OUT_OF_SERVICE)
    plane.wait("a new worker", lambda: jobs.uid("out-worker-0") not in {"", first}, seconds=90)
    machine.set("True")
    plane.wait("a node for it", lambda: node_of(jobs, "out-worker-0") != "", seconds=30)

    assert node_of(jobs, "out-worker-0").startswith("node-")
    jobs.wait_for("out", "Running")
    status = plane.request("GET", jobs.path("out"))["status"]
    (attempt,) = status["attempts"]
    assert (attempt["pod"], attempt["node"], attempt["reason"]) == ("out-worker-0", machine.name, "NodeLost")
    assert status["restarts"] == status["restartsCountTowardsMax"] == 1


def test_without_the_field_a_terminating_pod_waits_for_its_node(
    plane: ControlPlane, operator: Service, machine: Machine
) -> None:
    jobs = Jobs(plane, NAMESPACE)
    first = start(plane, machine, jobs, "waits")
    machine.set("Unknown")
    plane.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/waits-worker-0")
    jobs.wait_for("waits", "Restarting")

    assert jobs.uid("waits-worker-0") == first


@pytest.mark.full
def test_a_lost_launcher_of_an_mpijob_runs_elsewhere(
    plane: ControlPlane, operator: Service, machine: Machine
) -> None:
    """The Job controller releases no pod whose end it does not know, and starts none beside it."""
    jobs = MPIJobs(plane, NAMESPACE)
    container = {"name": "mpi", "image": "x"}
    roles = {
        "Launcher": {"template": {"spec": {"affinity": PREFERRED, "containers": [container]}}},
        "Worker": {"replicas": 1, "template": {"spec": {"nodeName": "node-0", "containers": [container]}}},
    }
    spec = {"flavor": "v2beta1", "mpiReplicaSpecs": roles, "runPolicy": {"nodeLostSeconds": 30}}
    jobs.create("mpi", {"spec": spec}, version="v2beta1")
    plane.wait("a launcher on the machine", lambda: launcher_node(jobs) == machine.name, seconds=30)
    (first,) = launchers(jobs)
    jobs.patch_pod_status(first, pod_status("Running", "mpi"))
    jobs.wait_for("mpi", "Running")

    plane.wait("a new launcher", lambda: launcher_node(jobs).startswith("node-"), seconds=90)

    assert launchers(jobs) != [first]
    jobs.end_launcher("mpi")
    jobs.wait_for("mpi", "Succeeded")


def launchers(jobs: MPIJobs) -> list[str]:
    return [name for name in jobs.pods("mpi") if name.startswith("mpi-launcher")]


def launcher_node(jobs: MPIJobs) -> str:
    found = launchers(jobs)
    return node_of(jobs, found[0]) if len(found) == 1 else ""
