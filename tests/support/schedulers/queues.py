"""Queues of Kueue with a quota of CPUs, and jobs of each kind in them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typing_extensions import override

from api.meta import Resource
from api.mpijob import Flavor
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


@dataclass(frozen=True, slots=True)
class QueuedKind:
    """A kind whose jobs Kueue knows, in the version in which it knows them."""

    resource: Resource
    replicas_field: str
    container: str
    sizes: Mapping[str, int]
    """The pods of a job by role: four in total. A job is over when those of the first role are."""

    @override
    def __str__(self) -> str:
        return self.resource.kind

    @property
    def framework(self) -> str:
        """Its name in Kueue's setting ``frameworks``."""
        return f"{self.resource.group}/{self.resource.singular}"

    @property
    def external_framework(self) -> str:
        """Its name in Kueue's setting ``externalFrameworks``."""
        return f"{self.resource.kind}.{self.resource.version}.{self.resource.group}"


_SIZES: Mapping[str, Mapping[str, int]] = {
    "TFJob": {"Chief": 1, "PS": 1, "Worker": 2},
    "JAXJob": {"Worker": 4},
}
V1_KINDS = tuple(
    QueuedKind(
        kind.resource,
        kind.replicas_field,
        kind.container,
        _SIZES.get(kind.resource.kind, {"Master": 1, "Worker": 3}),
    )
    for kind in DEFAULT
    if isinstance(kind, ReplicaKind)
)
PYTORCHJOB = V1_KINDS[0]
MPIJOB = QueuedKind(Flavor.V2BETA1.resource, "mpiReplicaSpecs", "mpi", {"Launcher": 1, "Worker": 3})
GRACE_MILLISECONDS = 300
GRACE = "rallypoint.testing/grace"
"""Annotation of a simulated pod: how long it runs on."""


def graceful_stages(folder: Path) -> Path:
    """Write and return what simulated pods go through, if deleted ones run on for a moment, or for as long as an annotation says."""
    text = (Path(controlplane.__file__).parent / "stages.yaml").read_text()
    own = f"durationFrom: {{jq: {{expression: '.metadata.annotations[\"{GRACE}\"]'}}}}"
    delay = f"spec:\n  delay: {{durationMilliseconds: {GRACE_MILLISECONDS}, {own}}}"
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


def job_body(kind: QueuedKind, name: str, queue: str, **labels: str) -> Object:
    """Return a job of four pods with one CPU each, which fails with its first failed pod."""
    container = {"name": kind.container, "image": "x", "resources": {"requests": {"cpu": "1"}}}
    roles = {
        role: {
            "replicas": count,
            "restartPolicy": "Never",
            "template": {"metadata": {"labels": {"team": "vision"}}, "spec": {"containers": [container]}},
        }
        for role, count in kind.sizes.items()
    }
    policy: Object = {"cleanPodPolicy": "Running", **({"backoffLimit": 0} if kind == MPIJOB else {})}
    keys = {f"kueue.x-k8s.io/{key.replace('_', '-')}": value for key, value in labels.items()}
    return {
        "apiVersion": kind.resource.api_version,
        "kind": kind.resource.kind,
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": queue, **keys}},
        "spec": {kind.replicas_field: roles, "runPolicy": policy},
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


def create_topology(plane: ControlPlane, name: str, *levels: str) -> None:
    """Create a Topology of these node labels, the widest first."""
    plane.apply(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Topology",
            "metadata": {"name": name},
            "spec": {"levels": [{"nodeLabel": level} for level in levels]},
        }
    )


def templates(kind: QueuedKind, job: Object) -> list[Object]:
    return [role["template"] for role in job["spec"][kind.replicas_field].values()]


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
        admission_checks: tuple[str, ...] = (),
    ) -> None:
        """The quota is divided among the flavors, which are tried in their order."""
        self.plane, self.name = plane, name
        kind = {"apiVersion": "kueue.x-k8s.io/v1beta2"}
        quotas = [
            {"name": flavor, "resources": [{"name": "cpu", "nominalQuota": cpus // len(flavors)}]}
            for flavor in flavors
        ]
        checks = [{"name": check} for check in admission_checks]
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
                    **({"admissionChecksStrategy": {"admissionChecks": checks}} if checks else {}),
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

    def path(self, kind: QueuedKind, job: str = "") -> str:
        return kind.resource.path(self.name, job)

    def submit(self, kind: QueuedKind, job: str, **labels: str) -> None:
        self.plane.request("POST", self.path(kind), job_body(kind, job, "main", **labels))

    def job(self, kind: QueuedKind, job: str) -> Object:
        found: Object = self.plane.request("GET", self.path(kind, job))
        return found

    def has(self, kind: QueuedKind, job: str, condition: str) -> bool:
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

    def change(self, kind: QueuedKind, job: str, change: Object) -> None:
        self.plane.request("PATCH", self.path(kind, job), change)

    def events(self, job: str, reason: str) -> list[str]:
        """Return the messages of a job's events."""
        found = self.plane.request("GET", f"/api/v1/namespaces/{self.name}/events")["items"]
        return [
            event["message"]
            for event in found
            if event["involvedObject"]["name"] == job and event["reason"] == reason
        ]

    def wait_for(self, kind: QueuedKind, job: str, condition: str) -> None:
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


def taint(flavor: str) -> Object:
    """Return the taint of the flavor's nodes."""
    return {"key": "dedicated", "value": flavor, "effect": "NoSchedule"}


def toleration(flavor: str) -> Object:
    """Return what a pod needs for them."""
    return {**taint(flavor), "operator": "Equal"}


def _flavor(name: str, topology: str) -> Object:
    if name == "any":
        return {}
    spec: Object = {"nodeLabels": {"instance": name}, "tolerations": [toleration(name)]}
    return {**spec, "topologyName": topology} if topology else spec
