"""Jobs of our own integration with Kueue: queues with a quota of CPUs, and jobs of each kind in them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from api.workloads import WORKLOAD_PRIORITY_CLASSES
from controller.kind import ReplicaKind
from controller.kinds import DEFAULT
from rallypoint.testing import controlplane
from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.controlplane.requests import Refused
from rallypoint.testing.service import MANIFESTS
from tests.support.invariants import has
from tests.support.jobs import TIMEOUT_SECONDS

Object = dict[str, Any]
QUEUES = "/apis/kueue.x-k8s.io/v1beta2"
KINDS: tuple[ReplicaKind[Any], ...] = tuple(kind for kind in DEFAULT if isinstance(kind, ReplicaKind))
EXTERNAL = tuple(f"{kind.resource.kind}.{kind.resource.version}.{kind.resource.group}" for kind in KINDS)
"""The kinds as Kueue's setting ``externalFrameworks`` names them."""
SIZES: Mapping[str, Mapping[str, int]] = {
    "TFJob": {"Chief": 1, "PS": 1, "Worker": 2},
    "JAXJob": {"Worker": 4},
}
"""The pods of jobs of a kind: four in each."""
GRACE_MILLISECONDS = 300


def graceful_stages(folder: Path) -> Path:
    """Write and return what simulated pods go through, if deleted ones run on for a moment."""
    text = (Path(controlplane.__file__).parent / "stages.yaml").read_text()
    delay = f"spec:\n  delay: {{durationMilliseconds: {GRACE_MILLISECONDS}}}"
    head, name, rest = text.partition("name: pod-gone")
    path = folder / "stages.yaml"
    path.write_text(head + name + rest.replace("spec:", delay, 1))
    return path


def overlay(folder: Path) -> Path:
    """Write and return an overlay: ``standalone`` with the component ``kueue``."""
    path = folder / "overlay"
    path.mkdir()
    standalone, component = MANIFESTS / "overlays" / "standalone", MANIFESTS / "components" / "kueue"
    text = f"resources: [{standalone}]\ncomponents: [{component}]\nnamespace: rallypoint-system\n"
    (path / "kustomization.yaml").write_text(text)
    return path


def sizes_of(kind: ReplicaKind[Any]) -> Mapping[str, int]:
    return SIZES.get(kind.resource.kind, {"Master": 1, "Worker": 3})


def job_body(kind: ReplicaKind[Any], name: str, queue: str, **labels: str) -> Object:
    """Return a job of four pods with one CPU each."""
    container = {"name": kind.container, "image": "x", "resources": {"requests": {"cpu": "1"}}}
    template = {"metadata": {"labels": {"team": "vision"}}, "spec": {"containers": [container]}}
    roles = {
        role: {"replicas": count, "restartPolicy": "Never", "template": template}
        for role, count in sizes_of(kind).items()
    }
    keys = {f"kueue.x-k8s.io/{key.replace('_', '-')}": value for key, value in labels.items()}
    return {
        "apiVersion": kind.resource.api_version,
        "kind": kind.resource.kind,
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": queue, **keys}},
        "spec": {kind.replicas_field: roles, "runPolicy": {"cleanPodPolicy": "Running"}},
    }


def create_priority_class(plane: ControlPlane, name: str, value: int) -> None:
    """Create a WorkloadPriorityClass."""
    resource = WORKLOAD_PRIORITY_CLASSES
    plane.apply(
        {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name},
            "value": value,
        }
    )


class Queue:
    """A namespace with a LocalQueue ``main`` and a ClusterQueue of its own."""

    def __init__(
        self,
        plane: ControlPlane,
        name: str,
        *,
        cpus: int,
        flavors: tuple[str, ...] = ("any",),
        topology: str = "",
    ) -> None:
        """The quota is divided among the flavors, which are tried in their order."""
        self.plane, self.name = plane, name
        kind = {"apiVersion": "kueue.x-k8s.io/v1beta2"}
        quotas = [
            {"name": flavor, "resources": [{"name": "cpu", "nominalQuota": cpus // len(flavors)}]}
            for flavor in flavors
        ]
        plane.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
            *(
                {
                    **kind,
                    "kind": "ResourceFlavor",
                    "metadata": {"name": flavor},
                    "spec": _flavor(flavor, topology),
                }
                for flavor in flavors
            ),
            {
                **kind,
                "kind": "ClusterQueue",
                "metadata": {"name": name},
                "spec": {
                    "namespaceSelector": {},
                    "preemption": {"withinClusterQueue": "LowerPriority"},
                    "resourceGroups": [{"coveredResources": ["cpu"], "flavors": quotas}],
                },
            },
            {
                **kind,
                "kind": "LocalQueue",
                "metadata": {"name": "main", "namespace": name},
                "spec": {"clusterQueue": name},
            },
        )
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        plane.wait("its ServiceAccount", lambda: plane.has(account))

    def path(self, kind: ReplicaKind[Any], job: str = "") -> str:
        resource = kind.resource
        path = f"/apis/{resource.api_version}/namespaces/{self.name}/{resource.plural}"
        return f"{path}/{job}" if job else path

    def submit(self, kind: ReplicaKind[Any], job: str, **labels: str) -> None:
        self.plane.request("POST", self.path(kind), job_body(kind, job, "main", **labels))

    def job(self, kind: ReplicaKind[Any], job: str) -> Object:
        found: Object = self.plane.request("GET", self.path(kind, job))
        return found

    def has(self, kind: ReplicaKind[Any], job: str, condition: str) -> bool:
        """Return whether a condition of the job is True."""
        return has(self.job(kind, job), condition)

    def pods(self, job: str = "", phase: str = "") -> list[Object]:
        found = self.plane.request("GET", f"/api/v1/namespaces/{self.name}/pods")["items"]
        return [
            pod
            for pod in found
            if pod["metadata"]["labels"]["training.kubeflow.org/job-name"].startswith(job)
            and phase in {"", pod["status"]["phase"]}
        ]

    def workloads(self) -> list[Object]:
        found: list[Object] = self.plane.request("GET", f"{QUEUES}/namespaces/{self.name}/workloads")["items"]
        return found

    def workloads_of(self, job: str) -> list[Object]:
        return [own for own in self.workloads() if own["metadata"]["ownerReferences"][0]["name"] == job]

    def workload(self, job: str) -> Object:
        """Return the Workload of the job; there must be exactly one."""
        (found,) = self.workloads_of(job)
        return found

    def change_workload(self, job: str, change: Object) -> None:
        name = self.workload(job)["metadata"]["name"]
        self.plane.request("PATCH", f"{QUEUES}/namespaces/{self.name}/workloads/{name}", change)

    def change(self, kind: ReplicaKind[Any], job: str, change: Object) -> None:
        self.plane.request("PATCH", self.path(kind, job), change)

    def events(self, job: str, reason: str) -> list[str]:
        """Return the messages of a job's events."""
        found = self.plane.request("GET", f"/api/v1/namespaces/{self.name}/events")["items"]
        return [
            event["message"]
            for event in found
            if event["involvedObject"]["name"] == job and event["reason"] == reason
        ]

    def wait_for(self, kind: ReplicaKind[Any], job: str, condition: str) -> None:
        self.wait(f"{job} to be {condition}", lambda: self.has(kind, job, condition))

    def used(self) -> int:
        """Return the CPUs of the quota that are taken."""
        queue = self.plane.request("GET", f"{QUEUES}/clusterqueues/{self.name}")
        flavors = queue.get("status", {}).get("flavorsUsage") or []
        return sum(int(resource["total"]) for flavor in flavors for resource in flavor["resources"])

    def end_pods(self, job: str, code: int = 0) -> None:
        """End the pods of a job with this exit code."""
        change = {"metadata": {"annotations": {"rallypoint.testing/exit-code": str(code)}}}
        for pod in self.pods(job):
            path = f"/api/v1/namespaces/{self.name}/pods/{pod['metadata']['name']}"
            try:
                self.plane.request("PATCH", path, change)
            except Refused as error:
                if error.code != 404:  # the job has ended with the pods before it, and has deleted it
                    raise

    def wait(self, what: str, holds: Callable[[], object], seconds: float = TIMEOUT_SECONDS) -> None:
        self.plane.wait(what, lambda: bool(holds()), seconds=seconds)


def _flavor(name: str, topology: str) -> Object:
    if topology:
        return {"nodeLabels": {"racked": "yes"}, "topologyName": topology}
    return {} if name == "any" else {"nodeLabels": {"instance": name}}
