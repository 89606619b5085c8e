"""Jobs on a real control plane, as a user with kubectl manages them, and pods as a kubelet ends them."""

from typing import Any

from rallypoint.testing.controlplane import ControlPlane
from tests.support.builders import pod_status

TIMEOUT_SECONDS = 90
"""The timeout of each wait."""


class Jobs:
    """Jobs of one kind in one namespace of a control plane, with the user's and the kubelet's actions."""

    kind = "PyTorchJob"
    container = "pytorch"
    version = "v1"
    """The version in which jobs are read and changed."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self._plane = plane
        self._namespace = namespace

    def path(self, name: str = "", version: str = "") -> str:
        prefix = f"/apis/kubeflow.org/{version or self.version}/namespaces/{self._namespace}"
        base = f"{prefix}/{self.kind.lower()}s"
        return f"{base}/{name}" if name else base

    def create(self, name: str, body: dict[str, Any], version: str = "") -> None:
        """Create a job, in a version of its own if one is given."""
        version = version or self.version
        whole = {"apiVersion": f"kubeflow.org/{version}", "kind": self.kind, **body}
        whole["metadata"] = {**body.get("metadata", {}), "name": name}
        self._plane.request("POST", self.path(version=version), whole)

    def patch(self, name: str, change: dict[str, Any]) -> None:
        self._plane.request("PATCH", self.path(name), change)

    def conditions(self, name: str) -> list[tuple[str, str]]:
        status = self._plane.request("GET", self.path(name)).get("status", {})
        return [(condition["type"], condition["status"]) for condition in status.get("conditions", [])]

    def condition(self, name: str, type_: str) -> dict[str, Any]:
        conditions = self._plane.request("GET", self.path(name))["status"]["conditions"]
        return next(condition for condition in conditions if condition["type"] == type_)

    def wait_for(self, name: str, type_: str) -> None:
        self._plane.wait(
            f"{name} to be {type_}",
            lambda: (type_, "True") in self.conditions(name),
            seconds=TIMEOUT_SECONDS,
        )

    def items(self, plural: str) -> list[Any]:
        found: list[Any] = self._plane.request("GET", f"/api/v1/namespaces/{self._namespace}/{plural}")[
            "items"
        ]
        return found

    def names(self, plural: str) -> list[str]:
        return sorted(item["metadata"]["name"] for item in self.items(plural))

    def pods(self, job: str) -> list[str]:
        return [name for name in self.names("pods") if name.startswith(f"{job}-")]

    def pod_objects(self, job: str, phase: str = "") -> list[Any]:
        """Return the pods of a job, of one phase if given."""
        pods = [pod for pod in self.items("pods") if pod["metadata"]["name"].startswith(f"{job}-")]
        return [pod for pod in pods if phase in {"", pod["status"]["phase"]}]

    def uid(self, pod: str) -> str:
        """Return the pod's UID, or an empty string if there is no such pod."""
        return next(
            (str(item["metadata"]["uid"]) for item in self.items("pods") if item["metadata"]["name"] == pod),
            "",
        )

    def owner(self, path: str) -> str:
        if not self._plane.has(path):
            return ""
        owners = self._plane.request("GET", path)["metadata"].get("ownerReferences", [])
        return str(owners[0]["name"]) if owners else ""

    def event_reasons(self, job: str) -> set[str]:
        return {item["reason"] for item in self.items("events") if item["involvedObject"]["name"] == job}

    def end_pod(self, name: str, phase: str, code: int) -> None:
        """End a pod's container, as a kubelet reports it."""
        self.patch_pod_status(
            name, pod_status(phase, self.container, code, reason="Error" if code else "Completed")
        )

    def patch_pod_status(self, name: str, status: dict[str, Any]) -> None:
        """Report a pod's status, as a kubelet does."""
        path = f"/api/v1/namespaces/{self._namespace}/pods/{name}/status"
        self._plane.request("PATCH", path, {"status": status})


class MPIJobs(Jobs):
    """MPIJobs in one namespace of a control plane."""

    kind = "MPIJob"
    container = "mpi"

    def end_launcher(self, name: str, code: int = 0) -> None:
        (pod,) = (pod for pod in self.pods(name) if pod.startswith(f"{name}-launcher"))
        self.end_pod(pod, "Failed" if code else "Succeeded", code)


def job(*, workers: int, roles: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """Return a job with a master and workers on a simulated node; ``roles`` overrides them, None removes one."""
    template = {"spec": {"nodeName": "node-0", "containers": [{"name": "pytorch", "image": "x"}]}}
    specs: dict[str, Any] = {
        "Master": {"replicas": 1, "template": template},
        "Worker": {"replicas": workers, "template": template},
    }
    for name, change in (roles or {}).items():
        specs[name] = None if change is None else {**(specs.get(name) or {}), **change}
    return {"spec": {"pytorchReplicaSpecs": {k: v for k, v in specs.items() if v is not None}, **spec}}
