"""Jobs of all kinds that succeed, fail, restart, wait, are suspended, or hold GPUs after their end."""

import copy
import itertools
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from rallypoint.testing.controlplane import ControlPlane
from tests.support.running_jobs import MPI_V1, MPI_V2BETA1, OTHERS, Kind, Object

GPU = "nvidia.com/gpu"
RDMA = "rdma/hca"
MXJOB = Kind("MXJob", "mxReplicaSpecs", "mxnet", {"Scheduler": 1, "Server": 1, "Worker": 1})
KINDS = (*OTHERS, MPI_V2BETA1, MPI_V1, MXJOB)
PYTORCH = OTHERS[0]
NAMESPACES = ("team-speech", "team-vision")
TRAIN = "train"
"""The job of the dashboard of one job, in the first namespace, and a TFJob of the same name."""
EVICTED = "evicted"
"""A failed job in the first namespace: its first pod was evicted."""
_TRAIN = replace(PYTORCH, roles={"Master": 1, "Worker": 3})
_OTHER_TRAIN = replace(OTHERS[1], roles={"Chief": 1})
_EXIT_CODE = "rallypoint.testing/exit-code"
_MANUAL = "rallypoint.testing/manual-status"
_OUTCOMES = ("succeed", "fail", "restart", "succeed")
_EVERY_SECONDS = 2.5
_RUN_SECONDS = 12.0


class Load:
    """Creates jobs and acts as the kubelet of their pods."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane

    def start(self) -> None:
        """Create the namespaces and the jobs that stay."""
        for namespace in NAMESPACES:
            self._plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
            account = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
            self._plane.wait("the service account", partial(self._plane.has, account))
        speech, vision = NAMESPACES
        self.create(_TRAIN, speech, TRAIN, {GPU: 4}, annotations={_MANUAL: "yes"})
        self.create(PYTORCH, speech, EVICTED, annotations={_MANUAL: "yes"})
        self.create(PYTORCH, vision, "waits", {GPU: 100, RDMA: 1})
        self.create(PYTORCH, vision, "suspended", {GPU: 8, RDMA: 1}, runPolicy={"suspend": True})
        self.create(PYTORCH, vision, "holds", {GPU: 2})
        self.create(PYTORCH, vision, "too-slow", runPolicy={"activeDeadlineSeconds": 15})
        self._await_pods(speech, TRAIN, 4)
        self._report(TRAIN, _train_statuses())
        self.create(_OTHER_TRAIN, speech, TRAIN)
        self._await_pods(speech, EVICTED, 3)
        self._report(EVICTED, [_evicted_status()])
        self._await_pods(vision, "holds", 3, "Running")
        self.end(vision, "holds", "succeed", pods="holds-master-0")

    def run(self, seconds: float) -> None:
        """Create a job every few seconds, and end it some seconds later."""
        deadline = time.monotonic() + seconds
        running: list[tuple[float, str, str, str]] = []
        for at in itertools.count():
            kind, outcome = KINDS[at % len(KINDS)], _OUTCOMES[(at + at // len(KINDS)) % len(_OUTCOMES)]
            if kind not in OTHERS and outcome == "restart":
                outcome = "fail"
            namespace, name = NAMESPACES[at % 2], f"{kind.kind.lower()}-{at}"
            policy = "ExitCode" if kind in OTHERS else "Never"
            limit = {"backoffLimit": 0} if kind is MPI_V2BETA1 else {}
            self.create(kind, namespace, name, {GPU: 1 + at % 3}, restart=policy, runPolicy=limit)
            running.append((time.monotonic() + _RUN_SECONDS, namespace, name, outcome))
            while running and running[0][0] < time.monotonic():
                _, *ended = running.pop(0)
                self.end(*ended)
            if time.monotonic() > deadline:
                return
            time.sleep(_EVERY_SECONDS)

    def create(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        resources: dict[str, int] | None = None,
        *,
        restart: str = "Never",
        annotations: dict[str, str] | None = None,
        **spec: Any,
    ) -> None:
        job = kind.job(name, **spec)
        for role in job["spec"][kind.replicas].values():
            role["restartPolicy"] = restart
            role["template"] = template = copy.deepcopy(role["template"])
            template["metadata"] = {"annotations": annotations or {}}
            del template["spec"]["nodeName"]
            if resources:
                limits = {resource: str(amount) for resource, amount in resources.items()}
                template["spec"]["containers"][0]["resources"] = {"limits": limits}
        self._plane.request("POST", kind.collection.replace("/default/", f"/{namespace}/"), job)

    def end(self, namespace: str, name: str, outcome: str, pods: str = "") -> None:
        """End the pods of a job. ``restart`` kills one, which is replaced; ``fail`` lets one fail for good."""
        code = {"succeed": "0", "fail": "1", "restart": "137"}[outcome]
        found = [pod["metadata"]["name"] for pod in self.pods(namespace, name)]
        if outcome != "succeed":
            found = [pod for pod in found if "launcher" in pod] or found[:1]
        for pod in found:
            if pods in pod:
                body = {"metadata": {"annotations": {_EXIT_CODE: code}}}
                self._plane.request("PATCH", f"/api/v1/namespaces/{namespace}/pods/{pod}", body)

    def pods(self, namespace: str, name: str) -> list[Object]:
        return [pod for pod in self.all_pods(namespace) if pod["metadata"]["name"].startswith(f"{name}-")]

    def all_pods(self, namespace: str = "") -> list[Object]:
        path = f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods"
        items: list[Object] = self._plane.request("GET", path)["items"]
        return items

    def _await_pods(self, namespace: str, name: str, count: int, phase: str = "") -> None:
        def are_there() -> bool:
            pods = self.pods(namespace, name)
            placed = [pod for pod in pods if pod["spec"].get("nodeName")]
            return len([pod for pod in placed if phase in {"", pod["status"].get("phase")}]) == count

        self._plane.wait(f"pods of {name}", are_there)

    def _report(self, job: str, statuses: Iterable[Object]) -> None:
        """Report statuses of the first pods of a job in the first namespace."""
        for pod, status in zip(self.pods(NAMESPACES[0], job), statuses, strict=False):
            path = f"/api/v1/namespaces/{NAMESPACES[0]}/pods/{pod['metadata']['name']}/status"
            self._plane.request("PATCH", path, {"status": status})


_CONTAINER: Object = {"name": "pytorch", "image": "trainer:1", "imageID": "", "restartCount": 0}


def _train_statuses() -> Iterator[Object]:
    """Yield the status of a running pod, of one that was restarted after it ran out of memory, of one that pulls its image in vain, and of
    one that fits no node.
    """
    now = _now()
    running = {**_CONTAINER, "ready": True, "started": True, "state": {"running": {"startedAt": now}}}
    pulling = {**_CONTAINER, "ready": False, "state": {"waiting": {"reason": "ImagePullBackOff"}}}
    for phase, status in (
        ("Running", running),
        ("Running", {**running, "restartCount": 2, "lastState": _terminated("OOMKilled")}),
        ("Pending", pulling),
    ):
        types = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
        is_true = {"PodScheduled"} if phase == "Pending" else set(types)
        yield {
            "phase": phase,
            "startTime": now,
            "conditions": [
                {"type": type_, "status": str(type_ in is_true), "lastTransitionTime": now} for type_ in types
            ],
            "containerStatuses": [status],
        }
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    yield {"phase": "Pending", "conditions": [{**unschedulable, "lastTransitionTime": now}]}


def _evicted_status() -> Object:
    ended = {**_CONTAINER, "ready": False, "state": _terminated("Error")}
    return {"phase": "Failed", "reason": "Evicted", "startTime": _now(), "containerStatuses": [ended]}


def _terminated(reason: str) -> Object:
    return {"terminated": {"exitCode": 137, "reason": reason, "startedAt": _now(), "finishedAt": _now()}}


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
