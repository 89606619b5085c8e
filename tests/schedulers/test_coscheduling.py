"""Gangs whose launcher waits for its workers under the real coscheduling scheduler, to their end."""

from collections.abc import Callable, Generator
from typing import Any

import pytest

from controller.testing.controlplane import ControlPlane
from controller.testing.schedulers.coscheduling import SCHEDULER, coscheduling
from controller.testing.schedulers.running import open_nodes
from controller.testing.service import WITH_MPI_V1, in_cluster_service, install

NAMESPACE = "default"
SECONDS = 90.0
WAITS = {"kubeflow.org/mpi-wait-for-workers": "true"}
FLAGS = (f"--gang-scheduler-name={SCHEDULER}", "--mpi-ssh-check=false")
"""No process answers in simulated pods."""


class Jobs:
    """MPIJobs with two workers, and what becomes of them."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane

    def create(self, version: str, name: str, annotations: dict[str, str], **spec: Any) -> None:
        template = {"spec": {"containers": [{"name": "mpi", "image": "x"}]}}
        roles = {"Launcher": {"template": template}, "Worker": {"replicas": 2, "template": template}}
        body = {
            "apiVersion": f"kubeflow.org/{version}",
            "kind": "MPIJob",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"mpiReplicaSpecs": roles, **spec},
        }
        self._plane.request("POST", f"/apis/kubeflow.org/{version}/namespaces/{NAMESPACE}/mpijobs", body)

    def conditions(self, name: str) -> set[str]:
        job = self._get("kubeflow.org/v1", "mpijobs", name)
        conditions = job.get("status", {}).get("conditions", ())
        return {one["type"] for one in conditions if one["status"] == "True"}

    def members(self, name: str) -> int:
        return int(self._get("scheduling.x-k8s.io/v1alpha1", "podgroups", name)["spec"]["minMember"])

    def pods(self, name: str, phase: str = "") -> list[Any]:
        items = self._plane.request("GET", f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
        own = [one for one in items if one["metadata"]["name"].startswith(f"{name}-")]
        return [one for one in own if not phase or one["status"]["phase"] == phase]

    def end_launcher(self, name: str) -> None:
        (launcher,) = (one for one in self.pods(name) if "-launcher" in one["metadata"]["name"])
        mark = {"metadata": {"annotations": {"rallypoint.testing/exit-code": "0"}}}
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{launcher['metadata']['name']}"
        self._plane.request("PATCH", path, mark)

    def wait(self, what: str, holds: Callable[[], bool]) -> None:
        self._plane.wait(what, holds, seconds=SECONDS)

    def _get(self, version: str, plural: str, name: str) -> Any:
        return self._plane.request("GET", f"/apis/{version}/namespaces/{NAMESPACE}/{plural}/{name}")


@pytest.fixture(scope="module")
def plane() -> Generator[ControlPlane]:
    with ControlPlane(nodes=2) as plane, coscheduling(plane):
        open_nodes(plane)
        install(plane, WITH_MPI_V1)
        yield plane


def run_to_the_end(jobs: Jobs, name: str) -> None:
    jobs.wait("all pods running", lambda: len(jobs.pods(name, "Running")) == 3)
    jobs.wait("the launcher a member", lambda: jobs.members(name) == 3)
    assert {one["spec"]["schedulerName"] for one in jobs.pods(name)} == {SCHEDULER}
    jobs.wait("the job Running", lambda: "Running" in jobs.conditions(name))
    jobs.end_launcher(name)
    jobs.wait("the job Succeeded", lambda: "Succeeded" in jobs.conditions(name))


def test_a_launcher_that_waits_for_the_workers_of_its_gang_starts(plane: ControlPlane) -> None:
    """By the policy, and by the annotation in each version."""
    jobs = Jobs(plane)
    with in_cluster_service(plane, FLAGS):
        jobs.create("v2beta1", "policy", {}, launcherCreationPolicy="WaitForWorkersReady")
        for version in ("v1", "v2beta1", "v1alpha2"):
            jobs.create(version, f"annotated-{version}", WAITS)
        for name in ("policy", "annotated-v1", "annotated-v2beta1", "annotated-v1alpha2"):
            run_to_the_end(jobs, name)


def test_by_the_flag_the_launchers_of_all_gangs_wait_and_start(plane: ControlPlane) -> None:
    jobs = Jobs(plane)
    with in_cluster_service(plane, (*FLAGS, "--mpi-wait-for-workers")):
        for version in ("v1", "v2beta1"):
            jobs.create(version, f"flag-{version}", {})
        for version in ("v1", "v2beta1"):
            run_to_the_end(jobs, f"flag-{version}")
