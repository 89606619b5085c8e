"""MPIJobs with two workers under a scheduler of gangs, and what becomes of them on simulated nodes."""

from collections.abc import Callable
from typing import Any

from rallypoint.testing.controlplane import ControlPlane

NAMESPACE = "default"
SECONDS = 90.0


def open_nodes(plane: ControlPlane) -> None:
    """Let schedulers use the simulated nodes: admission taints a new node, and no controller here removes the taint."""
    for node in plane.request("GET", "/api/v1/nodes")["items"]:
        plane.request("PATCH", f"/api/v1/nodes/{node['metadata']['name']}", {"spec": {"taints": None}})


class GangJobs:
    """``pod_groups`` is the API version of the scheduler's PodGroups."""

    def __init__(self, plane: ControlPlane, scheduler: str, pod_groups: str) -> None:
        self._plane = plane
        self._scheduler = scheduler
        self._pod_groups = pod_groups

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

    def run_to_the_end(self, name: str) -> None:
        """All pods run, the launcher ends with them, and the job succeeds."""
        self.wait("all pods running", lambda: len(self.pods(name, "Running")) == 3)
        self.wait("the launcher a member", lambda: self.members(name) == 3)
        assert {pod["spec"]["schedulerName"] for pod in self.pods(name)} == {self._scheduler}
        self.wait("the job Running", lambda: "Running" in self.conditions(name))
        self.end_launcher(name)
        self.wait("the job Succeeded", lambda: "Succeeded" in self.conditions(name))

    def conditions(self, name: str) -> set[str]:
        job = self._get("kubeflow.org/v1", "mpijobs", name)
        conditions = job.get("status", {}).get("conditions", ())
        return {condition["type"] for condition in conditions if condition["status"] == "True"}

    def members(self, name: str) -> int:
        return int(self._get(self._pod_groups, "podgroups", name)["spec"]["minMember"])

    def pods(self, name: str, phase: str = "") -> list[Any]:
        items = self._plane.request("GET", f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
        own = [pod for pod in items if pod["metadata"]["name"].startswith(f"{name}-")]
        return [pod for pod in own if not phase or pod["status"]["phase"] == phase]

    def end_launcher(self, name: str) -> None:
        (launcher,) = (pod for pod in self.pods(name) if "-launcher" in pod["metadata"]["name"])
        mark = {"metadata": {"annotations": {"rallypoint.testing/exit-code": "0"}}}
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{launcher['metadata']['name']}"
        self._plane.request("PATCH", path, mark)

    def wait(self, what: str, holds: Callable[[], bool]) -> None:
        self._plane.wait(what, holds, seconds=SECONDS)

    def _get(self, version: str, plural: str, name: str) -> Any:
        return self._plane.request("GET", f"/apis/{version}/namespaces/{NAMESPACE}/{plural}/{name}")
