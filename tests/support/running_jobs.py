"""Running jobs of every kind on a control plane, and what happens to their pods while one operator follows another."""

import json
import ssl
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.controlplane.requests import Refused

SETTLED_SECONDS = 120.0
PODS_OF_A_JOB = 3
NOT_FOUND = 404
Object = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """A kind of job in one of its versions, and the roles of a job of three pods."""

    kind: str
    replicas: str
    container: str
    roles: Mapping[str, int]
    version: str = "v1"

    @property
    def collection(self) -> str:
        return f"/apis/kubeflow.org/{self.version}/namespaces/default/{self.kind.lower()}s"

    def path(self, name: str) -> str:
        return f"{self.collection}/{name}"

    def job(self, name: str, **spec: Any) -> Object:
        container = {"name": self.container, "image": "trainer:1", "command": ["train"]}
        template = {"spec": {"nodeName": "node-0", "containers": [container]}}
        roles = {role: {"replicas": count, "template": template} for role, count in self.roles.items()}
        return {
            "apiVersion": f"kubeflow.org/{self.version}",
            "kind": self.kind,
            "metadata": {"name": name},
            "spec": {self.replicas: roles, **spec},
        }


MPI_V1 = Kind("MPIJob", "mpiReplicaSpecs", "mpi", {"Launcher": 1, "Worker": 2})
MPI_V2BETA1 = Kind("MPIJob", "mpiReplicaSpecs", "mpi", {"Launcher": 1, "Worker": 2}, "v2beta1")
JAX = Kind("JAXJob", "jaxReplicaSpecs", "jax", {"Worker": 3})
OTHERS = (
    Kind("PyTorchJob", "pytorchReplicaSpecs", "pytorch", {"Master": 1, "Worker": 2}),
    Kind("TFJob", "tfReplicaSpecs", "tensorflow", {"PS": 1, "Worker": 2}),
    Kind("XGBoostJob", "xgbReplicaSpecs", "xgboost", {"Master": 1, "Worker": 2}),
    Kind("PaddleJob", "paddleReplicaSpecs", "paddle", {"Worker": 3}),
    JAX,
)


class Jobs:
    """Jobs of many kinds, and what happens to their children."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._since = ""

    def start(self, kinds: Iterable[Kind], suffix: str, **spec: Any) -> None:
        """One job of each kind, with that in its spec; return when all of its pods and its status say that it runs."""
        made = [(kind, f"{kind.kind.lower()}-{kind.version}-{suffix}") for kind in kinds]
        for kind, name in made:
            self._plane.request("POST", kind.collection, kind.job(name, **spec))
        for kind, name in made:
            self._plane.wait(f"{name} to run", partial(self._runs, kind, name), seconds=SETTLED_SECONDS)

    def finish(self, kind: Kind, suffix: str) -> None:
        """Let every pod of a job end well; return when the job says so."""
        name = f"{kind.kind.lower()}-{kind.version}-{suffix}"
        for pod in self._pods(name):
            self._end(pod["metadata"]["name"], 0)
        self._plane.wait(
            f"{name} to succeed", lambda: "Succeeded" in self._state(kind, name), seconds=SETTLED_SECONDS
        )

    def end(self, kind: Kind, suffix: str, replica: str, code: int) -> None:
        """Let one pod of a job end with this exit code; return when it has ended or is gone."""
        name = f"{kind.kind.lower()}-{kind.version}-{suffix}-{replica}"
        (before,) = (
            pod for pod in self._pods(name.removesuffix(f"-{replica}")) if pod["metadata"]["name"] == name
        )
        self._end(name, code)

        def has_ended() -> bool:
            now = [
                pod for pod in self._pods(name.removesuffix(f"-{replica}")) if pod["metadata"]["name"] == name
            ]
            is_same = bool(now) and now[0]["metadata"]["uid"] == before["metadata"]["uid"]
            return not is_same or now[0]["status"]["phase"] in {"Succeeded", "Failed"}

        self._plane.wait(f"{name} to end", has_ended, seconds=SETTLED_SECONDS)

    def _end(self, pod: str, code: int) -> None:
        """A pod that its operator deletes meanwhile has ended, too."""
        body = {"metadata": {"annotations": {"rallypoint.testing/exit-code": str(code)}}}
        try:
            self._plane.request("PATCH", f"/api/v1/namespaces/default/pods/{pod}", body)
        except Refused as refused:
            if refused.code != NOT_FOUND:
                raise

    def pods(self) -> dict[str, tuple[str, int]]:
        """UID and restarts of each pod, by its name."""
        return {
            pod["metadata"]["name"]: (
                pod["metadata"]["uid"],
                sum(status["restartCount"] for status in pod.get("status", {}).get("containerStatuses", ())),
            )
            for pod in self._plane.request("GET", "/api/v1/namespaces/default/pods")["items"]
        }

    def remember_now(self) -> None:
        """Start the period that ``changes`` covers."""
        self._since = self._plane.request("GET", "/api/v1/namespaces/default/pods")["metadata"][
            "resourceVersion"
        ]

    def changes(self, but: str = "-") -> list[str]:
        """Every pod and batch Job that came or went since ``remember_now``, but those with that text in their names."""
        paths = ("/api/v1/namespaces/default/pods", "/apis/batch/v1/namespaces/default/jobs")
        events = [event for path in paths for event in watched(self._plane, path, self._since)]
        changes = (
            f"{event['type']} {event['object']['kind']} {event['object']['metadata']['name']}"
            for event in events
        )
        return [
            line
            for line in changes
            if line.split()[0] in {"ADDED", "DELETED"} and (not but or but not in line)
        ]

    def _runs(self, kind: Kind, name: str) -> bool:
        pods = self._pods(name)
        return len(pods) == PODS_OF_A_JOB and "Running" in self._state(kind, name)

    def _pods(self, name: str) -> list[Object]:
        items = self._plane.request("GET", "/api/v1/namespaces/default/pods")["items"]
        return [item for item in items if item["metadata"]["name"].startswith(f"{name}-")]

    def _state(self, kind: Kind, name: str) -> set[str]:
        status = self._plane.request("GET", kind.path(name)).get("status", {})
        return {
            condition["type"] for condition in status.get("conditions", ()) if condition["status"] == "True"
        }


def watched(plane: ControlPlane, path: str, since: str) -> Iterator[Object]:
    """Return the events since that resourceVersion."""
    query = f"{path}?watch=1&resourceVersion={since}&timeoutSeconds=2"
    request = urllib.request.Request(plane.server + query)
    request.add_header("Authorization", f"Bearer {plane.users['admin'].token}")
    context = ssl.create_default_context(cafile=str(plane.authority.path))
    with urllib.request.urlopen(request, timeout=30, context=context) as answer:
        yield from map(json.loads, answer)
