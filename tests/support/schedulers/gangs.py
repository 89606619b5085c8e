"""MPIJobs with two workers under a scheduler of gangs, and what becomes of them on simulated nodes."""

from collections.abc import Callable
from typing import Any

from rallypoint.testing.controlplane import ControlPlane
from tests.support.jobs import TIMEOUT_SECONDS, MPIJobs

NAMESPACE = "default"


def open_nodes(plane: ControlPlane) -> None:
    """Let schedulers use the simulated nodes: admission taints a new node, and no controller here removes the taint."""
    for node in plane.request("GET", "/api/v1/nodes")["items"]:
        plane.request("PATCH", f"/api/v1/nodes/{node['metadata']['name']}", {"spec": {"taints": None}})


class GangJobs(MPIJobs):
    """``pod_groups`` is the API version of the scheduler's PodGroups."""

    def __init__(self, plane: ControlPlane, scheduler: str, pod_groups: str) -> None:
        super().__init__(plane, NAMESPACE)
        self._scheduler = scheduler
        self._pod_groups = f"/apis/{pod_groups}/namespaces/{NAMESPACE}/podgroups"

    def submit(
        self, version: str, name: str, annotations: dict[str, str], worker_cpus: str = "0", **spec: Any
    ) -> None:
        container = {"name": "mpi", "image": "x"}
        worker = {**container, "resources": {"requests": {"cpu": worker_cpus}}}
        roles = {
            "Launcher": {"template": {"spec": {"containers": [container]}}},
            "Worker": {"replicas": 2, "template": {"spec": {"containers": [worker]}}},
        }
        body = {"metadata": {"annotations": annotations}, "spec": {"mpiReplicaSpecs": roles, **spec}}
        self.create(name, body, version)

    def wait_for_report(self, name: str) -> str:
        """Wait until the job's status says what its gang waits for, and return the message."""

        def is_reported() -> bool:
            return ("Running", "False") in self.conditions(name)

        self._wait("the report", is_reported)
        running = self.condition(name, "Running")
        assert running["reason"] == "MPIJobWaitingForGang", running
        return str(running["message"])

    def run_to_the_end(self, name: str) -> None:
        """All pods run, the launcher ends with them, and the job succeeds."""
        self._wait("all pods running", lambda: len(self.pod_objects(name, "Running")) == 3)
        self._wait("the launcher a member", lambda: self._members(name) == 3)
        assert {pod["spec"]["schedulerName"] for pod in self.pod_objects(name)} == {self._scheduler}
        self.wait_for(name, "Running")
        self.end_launcher(name)
        self.wait_for(name, "Succeeded")

    def _members(self, name: str) -> int:
        return int(self._plane.request("GET", f"{self._pod_groups}/{name}")["spec"]["minMember"])

    def _wait(self, what: str, holds: Callable[[], bool]) -> None:
        self._plane.wait(what, holds, seconds=TIMEOUT_SECONDS)
