"""Gangs of every kind under a real scheduler: a job of this module has four pods with the same number of GPUs each."""

import contextlib
import io
import json
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from api.meta import COSCHEDULING_POD_GROUPS, VOLCANO_POD_GROUPS, Resource
from api.restart_report import EXIT_CODE, RestartReport
from rallypoint.cli import main
from rallypoint.testing import audit
from rallypoint.testing.controlplane import ControlPlane, Refused
from rallypoint.testing.service import ACCOUNT, WITH_MPI_V1, install
from tests.support import workloads
from tests.support.jobs import TIMEOUT_SECONDS
from tests.support.schedulers import coscheduling, volcano
from tests.support.schedulers.gangs import NAMESPACE, open_nodes
from tests.support.schedulers.operator import Operator
from tests.support.workloads import Workload

GPU = "nvidia.com/gpu"
NODES = 2
PODS = 4
HALF_NODE = 32
"""GPUs of a pod, so that one gang needs all of both nodes."""
PRIORITIES = {"low": 1, "high": 1000}
"""The value of each PriorityClass."""
_EXIT_CODE = "rallypoint.testing/exit-code"
Object = dict[str, Any]
RESTARTS: Object = {"failurePolicy": {"maxRestarts": 3, "rules": [{"action": "RestartJob"}]}}
"""The run policy of a job that restarts as a whole when a pod fails or is gone."""


@dataclass(frozen=True, slots=True)
class GangScheduler:
    """A scheduler of gangs, and how it is run beside a control plane."""

    name: str
    groups: Resource
    running: Callable[[ControlPlane], AbstractContextManager[None]]


VOLCANO = GangScheduler(volcano.SCHEDULER, VOLCANO_POD_GROUPS, volcano.volcano)
COSCHEDULING = GangScheduler(coscheduling.SCHEDULER, COSCHEDULING_POD_GROUPS, coscheduling.coscheduling)


def limits(gpus: int) -> Object:
    """Return the part of a container that asks for this many GPUs."""
    return {"resources": {"limits": {GPU: str(gpus)}}}


def gang_body(
    name: str,
    workload: Workload,
    *,
    gpus: int,
    pods: int,
    restart_policy: str = "Never",
    pod: Mapping[str, Any] | None = None,
    **run_policy: Any,
) -> Object:
    """Return a job of these pods with that many GPUs each; ``pod`` overrides fields of every pod spec.

    Pods that still run are deleted when the job has ended: workers of an MPIJob would keep their GPUs.
    """
    run_policy = {"cleanPodPolicy": "Running", **run_policy}
    container = {"name": workload.container, "image": "x", **limits(gpus)}
    fields = {"containers": [container], **(pod or {})}
    counts = {workload.head: 1, "Worker": pods - 1} if workload.head else {"Worker": pods}
    return {
        "apiVersion": workload.resource.api_version,
        "kind": workload.resource.kind,
        "metadata": {"name": name},
        "spec": workload.spec(counts, restart_policy, run_policy, **fields),
    }


@dataclass(frozen=True, slots=True)
class Gang:
    """One job and its pods. Its name is no prefix of another's."""

    cluster: "GangCluster"
    workload: Workload
    name: str
    audit_offset: int
    """The length of the audit log before the job was created, in bytes."""

    @property
    def path(self) -> str:
        return self.workload.resource.path(NAMESPACE, self.name)

    @property
    def group_path(self) -> str:
        return self.cluster.scheduler.groups.path(NAMESPACE, self.name)

    def job(self) -> Object:
        found: Object = self.cluster.request("GET", self.path)
        return found

    def group(self) -> Object:
        found: Object = self.cluster.request("GET", self.group_path)
        return found

    def has_group(self) -> bool:
        return self.cluster.plane.has(self.group_path)

    def phase(self) -> str:
        return str(self.group().get("status", {}).get("phase", "")) if self.has_group() else ""

    def pods(self, phase: str = "") -> list[Object]:
        """Return the job's pods, of one phase if given."""
        pods = [pod for pod in self.cluster.pods() if pod["metadata"]["name"].startswith(f"{self.name}-")]
        return [pod for pod in pods if phase in {"", pod["status"]["phase"]}]

    def pod(self, part: str) -> Object:
        """Return the pod with this text, such as ``worker-1``, in its name."""
        (found,) = (pod for pod in self.pods() if part in pod["metadata"]["name"])
        return found

    def uids(self) -> set[str]:
        return {pod["metadata"]["uid"] for pod in self.pods()}

    def bound(self) -> list[str]:
        """Return the names of the pods that hold something: they have a node and have not ended."""
        pods = self.pods("Running") + self.pods("Pending")
        return sorted(pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName"))

    def conditions(self) -> dict[str, Object]:
        found = self.job().get("status", {}).get("conditions") or []
        return {condition["type"]: condition for condition in found}

    def has_condition(self, condition: str) -> bool:
        return bool(self.conditions().get(condition, {}).get("status") == "True")

    def wait_for(self, condition: str) -> None:
        self.wait(f"{self.name} to be {condition}", lambda: self.has_condition(condition))

    def wait_until_running(self, pods: int = PODS) -> None:
        self.wait(f"{pods} pods of {self.name} running", lambda: len(self.pods("Running")) == pods)
        self.wait_for("Running")

    def wait_until_waiting(self) -> None:
        """Wait until the scheduler has considered the gang and has not started it."""
        self.wait(f"{self.name} waiting", lambda: self.is_considered() and not self.bound())

    def is_considered(self) -> bool:
        """Return whether the scheduler has said that it does not start the gang: by an event of the group, or of a pod."""
        known = self.uids() | ({self.group()["metadata"]["uid"]} if self.has_group() else set())
        return any(
            event["involvedObject"].get("uid") in known
            and event["reason"] in {"Unschedulable", "FailedScheduling"}
            for event in self.cluster.events()
        )

    def wait_for_report(self) -> str:
        """Wait until the job's status says what its gang waits for, and return the message."""
        self.wait(f"the report of {self.name}", lambda: self.report() != "")
        return self.report()

    def report(self) -> str:
        """Return what the job's status says that its gang waits for; empty if it says nothing."""
        kind = self.workload.resource.kind
        reasons = {f"{kind}WaitingForGang", f"{kind}WaitingForGangAfterResume"}
        return next(
            (
                str(condition["message"])
                for condition in self.conditions().values()
                if condition["reason"] in reasons
            ),
            "",
        )

    def why(self) -> str:
        """Return the causes of ``rallypoint why``."""
        return self.cluster.why(self)

    def wait_until_gone(self, uids: Collection[str]) -> None:
        """Wait until none of these pods exists."""
        self.wait(f"pods of {self.name} gone", lambda: not self.uids() & set(uids))

    def wait_until_without_group(self) -> None:
        self.wait(f"the PodGroup of {self.name} gone", lambda: not self.has_group())

    def end(self) -> None:
        """End the job: its launcher or, without one, its pods succeed."""
        launcher = [pod for pod in self.pods() if self.workload.is_launcher(pod)]
        self.cluster.end_pods(launcher or self.pods())
        self.wait_for("Succeeded")

    def change(self, change: Object) -> None:
        self.cluster.request("PATCH", self.path, change)

    def suspend(self, *, is_suspended: bool = True) -> None:
        self.change({"spec": {"runPolicy": {"suspend": is_suspended}}})

    def resize(self, role: str, replicas: int) -> None:
        self.cluster.resizes[self.name] += 1
        self.change({"spec": {self.workload.replicas_field: {role: {"replicas": replicas}}}})

    def wait_until_removed(self) -> None:
        self.wait(
            f"{self.name} gone",
            lambda: not self.cluster.plane.has(self.path) and not self.pods() and not self.has_group(),
        )

    def group_writes(self) -> list[list[str]]:
        """Return the verbs of the operator's successful writes to the job's PodGroups: a list for each group, without its deletion."""
        periods: list[list[str]] = [[]]
        for call in audit.read(self.cluster.audit_log, self.audit_offset)[0]:
            if (
                call.resource != "podgroups"
                or call.name != self.name
                or not call.is_write
                or not call.succeeded
            ):
                continue
            if call.verb == "delete":
                periods.append([])
            else:
                periods[-1].append(call.verb)
        return [verbs for verbs in periods if verbs]

    def wait(self, what: str, holds: Callable[[], bool]) -> None:
        self.cluster.plane.wait(what, holds, seconds=TIMEOUT_SECONDS)


class GangCluster:
    """A control plane with a scheduler of gangs and the operator."""

    def __init__(self, plane: ControlPlane, scheduler: GangScheduler) -> None:
        self.plane = plane
        self.scheduler = scheduler
        self.gangs: list[Gang] = []
        self.resizes: Counter[str] = Counter()
        """How often the size of a job was changed."""

    @property
    def audit_log(self) -> Any:
        assert self.plane.audit_log is not None
        return self.plane.audit_log

    def request(self, method: str, path: str, body: Any = None) -> Any:
        return self.plane.request(method, path, body)

    def submit(
        self,
        name: str,
        workload: Workload = workloads.PYTORCH,
        *,
        gpus: int = HALF_NODE,
        pods: int = PODS,
        restart_policy: str = "Never",
        scheduling: Mapping[str, Any] | None = None,
        annotations: Mapping[str, str] | None = None,
        pod: Mapping[str, Any] | None = None,
        **run_policy: Any,
    ) -> Gang:
        """Create a job of these pods with that many GPUs each; ``pod`` overrides fields of every pod spec."""
        if scheduling:
            run_policy["schedulingPolicy"] = dict(scheduling)
        body = gang_body(
            name, workload, gpus=gpus, pods=pods, restart_policy=restart_policy, pod=pod or {}, **run_policy
        )
        body["metadata"]["annotations"] = dict(annotations or {})
        offset = audit.read(self.audit_log)[1]
        self.request("POST", workload.resource.path(NAMESPACE), body)
        gang = Gang(self, workload, name, offset)
        self.gangs.append(gang)
        return gang

    def clear(self) -> None:
        """Remove all jobs, and require that no PodGroup of them was written more than twice, and once more for each new size of its job."""
        for gang in self.gangs:
            with contextlib.suppress(Refused):
                self.request("DELETE", gang.path)
        while self.gangs:
            gang = self.gangs.pop()
            gang.wait_until_removed()
            allowed = 2 + self.resizes.pop(gang.name, 0)
            assert all(len(verbs) <= allowed for verbs in gang.group_writes()), gang.group_writes()

    def pods(self) -> list[Object]:
        found: list[Object] = self.request("GET", f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
        return found

    def events(self) -> list[Object]:
        found: list[Object] = self.request("GET", f"/api/v1/namespaces/{NAMESPACE}/events")["items"]
        return found

    def end_pods(self, pods: Sequence[Object], code: int = 0) -> None:
        """End these pods with an exit code. Those that are gone meanwhile have ended, too."""
        for pod in pods:
            path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}"
            with contextlib.suppress(Refused):
                self.request("PATCH", path, {"metadata": {"annotations": {_EXIT_CODE: str(code)}}})

    def restart_container(self, pod: Object, report: RestartReport) -> None:
        """Let the main container of a pod have ended with this report and run again, as its kubelet does."""
        message = msgspec.json.encode({"rallypoint": report}).decode()
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        (container,) = pod["status"]["containerStatuses"]
        ended = {"exitCode": EXIT_CODE, "reason": "Error", "message": message, "finishedAt": now}
        container = {
            **container,
            "restartCount": 1,
            "lastState": {"terminated": ended},
            "state": {"running": {"startedAt": now}},
        }
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}/status"
        self.request("PATCH", path, {"status": {"containerStatuses": [container]}})

    def why(self, gang: Gang) -> str:
        written = io.StringIO()
        job = f"{gang.workload.resource.kind.lower()}/{gang.name}"
        arguments = ["-n", NAMESPACE, "--kubeconfig", str(self.plane.kubeconfig()), "-o", "json"]
        with contextlib.redirect_stdout(written):
            assert main(["why", job, *arguments]) == 0
        (found,) = json.loads(written.getvalue())
        return "\n".join(f"{', '.join(cause['about'])}: {cause['text']}" for cause in found["causes"])


@contextmanager
def gang_cluster(
    scheduler: GangScheduler,
    operator: Operator,
    flags: Sequence[str] = (),
    prepare: Callable[[ControlPlane], None] = lambda plane: None,
) -> Generator[GangCluster]:
    """Run the scheduler and the operator beside a control plane with two nodes; ``prepare`` creates queues."""
    policy = audit.policy([ACCOUNT], leases=False)
    with ControlPlane(nodes=NODES, audit_policy=policy) as plane, scheduler.running(plane):
        open_nodes(plane)
        kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
        plane.apply(
            *({**kind, "metadata": {"name": name}, "value": value} for name, value in PRIORITIES.items())
        )
        prepare(plane)
        install(plane, WITH_MPI_V1)
        flags = (f"--gang-scheduler-name={scheduler.name}", "--mpi-ssh-check=false", *flags)
        with operator.running(plane, flags):
            yield GangCluster(plane, scheduler)


def cleared(cluster: GangCluster) -> Iterator[GangCluster]:
    """Yield the cluster for one test, and remove its jobs at the end."""
    yield cluster
    cluster.clear()
