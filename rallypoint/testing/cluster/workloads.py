"""Jobs on a real cluster, as a user with kubectl creates, watches and reads them."""

import itertools
import json
import subprocess
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

import yaml

from controller.kind import ReplicaKind
from controller.kinds import DEFAULT
from rallypoint.testing.cluster import images, roots
from rallypoint.testing.cluster.cluster import Cluster
from rallypoint.testing.up import RALLYPOINT

_NAMES = itertools.count(1)
_TIMEOUT_SECONDS = 120.0
_KINDS = {kind.resource.kind: kind for kind in DEFAULT if isinstance(kind, ReplicaKind)}
_SPECS = {name: kind.replicas_field for name, kind in _KINDS.items()} | {"MPIJob": "mpiReplicaSpecs"}


LEAVES_SOON = {
    "key": "node.kubernetes.io/unreachable",
    "operator": "Exists",
    "effect": "NoExecute",
    "tolerationSeconds": 5,
}
"""A toleration that limits the time of a pod on an unreachable node; the default is 300 s."""


class Workloads:
    """Jobs in a namespace that exists during the block."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.namespace = f"work-{next(_NAMES)}"

    def __enter__(self) -> Self:
        self.kubectl("create", "namespace", self.namespace)
        accounts = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/default"
        self.cluster.plane.wait("a ServiceAccount", lambda: self.cluster.plane.has(accounts))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kubectl("delete", "namespace", self.namespace, "--wait=false")

    def kubectl(self, *arguments: str, document: str | None = None) -> str:
        return self.cluster.kubectl("-n", self.namespace, *arguments, document=document)

    def apply(self, document: Mapping[str, Any]) -> None:
        self.kubectl("apply", "-f", "-", document=json.dumps(document))

    def get(self, kind: str, name: str) -> Any:
        return json.loads(self.kubectl("get", kind, name, "-o", "json"))

    def pods(self, job: str) -> dict[str, Any]:
        """Return the pods of the job by name."""
        selector = f"training.kubeflow.org/job-name={job}"
        return {
            pod["metadata"]["name"]: pod
            for pod in json.loads(self.kubectl("get", "pods", "-l", selector, "-o", "json"))["items"]
        }

    def logs(self, pod: str) -> str:
        return self.kubectl("logs", pod)

    def logs_of(self, label: str) -> str:
        """Return the output of pods with that label; empty while one of them has not started."""
        try:
            return self.kubectl("logs", "-l", label, "--tail=-1")
        except subprocess.CalledProcessError:
            return ""

    def nodes(self, part: str) -> set[str]:
        """Return the nodes of all pods, past and present, whose name contains that part."""
        output = self.kubectl("get", "events", "--field-selector=reason=Scheduled", "-o", "json")
        events = json.loads(output)["items"]
        return {event["message"].split()[-1] for event in events if part in event["involvedObject"]["name"]}

    def why(self, kind: str, name: str) -> Any:
        """Return the output of ``rallypoint why`` for a job."""
        flags = ("--kubeconfig", str(self.cluster.kubeconfig), "-n", self.namespace, "-o", "json")
        command = [*RALLYPOINT, "why", kind, name, *flags]
        (diagnosis,) = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        return diagnosis

    def condition(self, kind: str, name: str, type_: str) -> dict[str, Any]:
        """Return the job's condition of that type if it is true, else an empty object."""
        conditions = self.get(kind, name).get("status", {}).get("conditions", [])
        return next(
            (
                condition
                for condition in conditions
                if condition["type"] == type_ and condition["status"] == "True"
            ),
            {},
        )

    def wait_for(self, kind: str, name: str, type_: str, *, seconds: float = _TIMEOUT_SECONDS) -> None:
        self.wait(f"{kind} {name} {type_}", lambda: bool(self.condition(kind, name, type_)), seconds=seconds)

    def wait(self, what: str, holds: Callable[[], bool], *, seconds: float = _TIMEOUT_SECONDS) -> None:
        """Raise ``ProcessFailed`` if it does not hold in time; the message shows the pods."""
        try:
            self.cluster.plane.wait(what, holds, seconds=seconds)
        except RuntimeError as error:
            kinds = ",".join(["pods", "events", *_SPECS])
            error.add_note(self.kubectl("get", kinds, "-o", "yaml"))
            raise


def job(kind: str, name: str, roles: Mapping[str, Mapping[str, Any]], **spec: Any) -> dict[str, Any]:
    """Return a job of any kind but MPIJob. A role has ``replicas``, fields of its container and, in ``pod``, of its pod."""
    replicas = {}
    for role, wanted in roles.items():
        container = {
            key: value for key, value in wanted.items() if key not in {"replicas", "pod", "restartPolicy"}
        }
        pod = {"containers": [{"name": _KINDS[kind].container, **container}], **wanted.get("pod", {})}
        replicas[role] = {
            "replicas": wanted.get("replicas", 1),
            "restartPolicy": wanted.get("restartPolicy", "Never"),
            "template": {"spec": pod},
        }
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {_SPECS[kind]: replicas, **spec},
    }


def example(manifest: str) -> list[dict[str, Any]]:
    """The documents of a file in ``examples``.

    Pods of one role are spread over the nodes, and have the environment of their framework, if their image lacks it.
    """
    text = (roots.REPOSITORY / "examples" / manifest).read_text()
    shared = list(yaml.safe_load_all(text))
    documents: list[dict[str, Any]] = json.loads(json.dumps(shared))  # roles are changed one by one
    for document in documents:
        for role, template in templates(document).items():
            _spread(template, role)
            framework = template["spec"]["containers"][0]["image"].partition(":")[2]
            if framework in images.FRAMEWORKS:
                _mount(template["spec"], str(images.environment(framework)))
    return documents


def templates(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the pod templates of a job by role; empty for any other object."""
    roles = document["spec"].get(_SPECS.get(document["kind"], ""), {})
    return {name: role["template"] for name, role in roles.items()}


def _spread(template: dict[str, Any], role: str) -> None:
    template.setdefault("metadata", {}).setdefault("labels", {})["role"] = role
    template["spec"]["topologySpreadConstraints"] = [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"role": role}},
        }
    ]


def _mount(pod: dict[str, Any], folder: str) -> None:
    """Mount a folder of the machine read-only at the same path."""
    pod.setdefault("volumes", []).append({"name": "environment", "hostPath": {"path": folder}})
    mount = {"name": "environment", "mountPath": folder, "readOnly": True}
    for container in pod["containers"]:
        container.setdefault("volumeMounts", []).append(mount)
