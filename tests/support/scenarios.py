"""Scenarios of jobs, as scripts for the user and the kubelet, with the outcome of each.

A script waits for changes, never for a time, so it continues whatever happens to the controller.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from api.labels import JOB_NAME
from api.labels import SERVICES as SERVICES_ANNOTATION
from api.meta import EVENTS, HORIZONTAL_POD_AUTOSCALERS, PODS, SERVICES, Resource
from api.nodes import OUT_OF_SERVICE
from api.restart_report import EXIT_CODE
from api.v1.pytorchjob import RESOURCE
from controller.kube.errors import NotFound
from controller.runtime import clock
from tests.support.actors import Actors, conditions
from tests.support.builders import template
from tests.support.history import CHILDREN, History


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a job. Names of children omit the job's name."""

    conditions: str
    restarts: Mapping[str, int]
    """Restarts that the status has counted, by role with replaced pods."""
    created: Mapping[str, int]
    """How often each child was created."""
    left: frozenset[str]
    """The children that exist at the end."""
    attempts: tuple[str, ...] = ()
    """The attempts in the status, each with the pod that ended it and the action."""

    @classmethod
    def of(cls, name: str, history: History) -> "Outcome":
        job = history.latest[RESOURCE.kind, name]
        kinds = {resource.kind for resource in CHILDREN}
        created = {
            key: times for key, times in history.created.items() if key[0] in kinds and _is_of(name, key[1])
        }
        return cls(
            conditions=conditions(job),
            restarts={
                role: status["restarts"]
                for role, status in (job.get("status", {}).get("replicaStatuses") or {}).items()
                if "restarts" in status
            },
            created={_child_name(name, key): times for key, times in created.items()},
            left=frozenset(_child_name(name, key) for key in created if key in history.now),
            attempts=tuple(
                f"{attempt['number']} {attempt['pod'].removeprefix(f'{name}-')} {attempt['action']}"
                for attempt in job.get("status", {}).get("attempts") or ()
            ),
        )


Script = Callable[["ScenarioRunner", str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario: the spec of a job, what happens to it, and its outcome."""

    script: Script
    spec: Mapping[str, Any]
    outcome: Outcome
    event_reasons: frozenset[str]
    """Reasons of the events that its conditions must have."""
    annotations: Mapping[str, str] = field(default_factory=dict[str, str])
    """Those of the job."""


class ScenarioRunner:
    """Runs scenarios: acts as user and kubelet, and waits for changes in the namespace's history."""

    def __init__(self, actors: Actors, history: History) -> None:
        self.actors = actors
        self._history = history

    async def run_scenario(self, scenario: Scenario, name: str) -> None:
        metadata = {"name": name, "annotations": scenario.annotations}
        body = {"apiVersion": RESOURCE.api_version, "kind": RESOURCE.kind, "metadata": metadata}
        await self.actors.create(RESOURCE, {**body, "spec": scenario.spec})
        await scenario.script(self, name)

    async def unrecorded_reasons(self, job: str) -> set[str]:
        """Return the reasons of conditions that have no event."""
        recorded = {event["reason"] for event in await self.actors.items(EVENTS)}
        try:
            status = (await self.actors.job(job)).get("status") or {}
        except NotFound:
            return set()
        return {condition["reason"] for condition in status.get("conditions") or ()} - recorded

    async def run(self, job: str, *names: str) -> None:
        """Set pods running once they and their Services, or that of the job, exist, and wait until the job runs."""

        def are_there() -> bool:
            pods = self._children(PODS, job)
            there = {name for name, pod in pods.items() if not _is_going(pod)}
            services = self._children(SERVICES, job).keys()
            return set(names) <= there and (job in services or set(names) <= services)

        await self._history.until(f"{job}: {names}", are_there)
        await self.actors.set_phase("Running", *(f"{job}-{name}" for name in names))
        await self.wait_for_condition(job, "Running T")

    async def wait_for_condition(self, job: str, condition: str) -> None:
        def is_true() -> bool:
            return condition in conditions(self._history.now.get((RESOURCE.kind, job), {}))

        await self._history.until(f"{job}: {condition}", is_true)

    async def fail(self, job: str, name: str) -> None:
        """Fail a pod and wait for its replacement."""
        before = self._children(PODS, job)[name]["metadata"]["uid"]

        def is_replaced() -> bool:
            pod = self._children(PODS, job).get(name)
            return pod is not None and pod["metadata"]["uid"] != before

        await self.actors.set_phase("Failed", f"{job}-{name}", code=137)
        await self.wait_for_condition(job, "Restarting T")
        await self._history.until(f"{job}: another {name}", is_replaced)

    async def fail_attempt(self, job: str, name: str) -> None:
        """Fail a pod and wait until all pods of the job have been replaced."""
        before = self._children(PODS, job)
        await self.actors.set_phase("Failed", f"{job}-{name}", code=137)
        await self._replacement(job, before)

    async def bind(self, job: str, name: str, node: str) -> None:
        """Put a pod on a healthy node once it exists."""
        await self.actors.set_node(node)
        await self._history.until(f"{job}: {name}", lambda: name in self._children(PODS, job))
        await self.actors.bind(f"{job}-{name}", node)

    async def lose(self, job: str, node: str) -> None:
        """Take a node out of service, and wait until all pods of the job have been replaced."""
        before = self._children(PODS, job)
        await self.actors.set_node(node, OUT_OF_SERVICE, ready="Unknown")
        await self._replacement(job, before)

    async def _replacement(self, job: str, before: Mapping[str, Mapping[str, Any]]) -> None:
        """Wait until all of these pods have been replaced."""
        uids = {pod["metadata"]["uid"] for pod in before.values()}

        def are_replaced() -> bool:
            now = {pod["metadata"]["uid"] for pod in self._children(PODS, job).values()}
            return len(now) == len(uids) and not now & uids

        await self._history.until(f"{job}: all pods replaced", are_replaced)

    async def restart_in_place(self, job: str, name: str, attempt: int) -> None:
        """End the container of a pod for a restart in place, run it again, and wait until the job runs again."""
        now = clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        report = {"attempt": attempt, "exitCode": 7, "counted": attempt + 1}
        message = json.dumps({"rallypoint": report})
        ended = {"exitCode": EXIT_CODE, "reason": "Error", "message": message, "finishedAt": now}
        container = {
            "name": "pytorch",
            "image": "img",
            "imageID": "",
            "ready": True,
            "restartCount": attempt + 1,
            "state": {"running": {"startedAt": now}},
            "lastState": {"terminated": ended},
        }
        status = {"phase": "Running", "containerStatuses": [container]}
        await self.actors.change(PODS, f"{job}-{name}", {"status": status}, "status")

        def has_restarted() -> bool:
            given = self._history.now.get((RESOURCE.kind, job), {})
            is_recorded = (given.get("status") or {}).get("restarts") == attempt + 1
            return is_recorded and "Running T" in conditions(given)

        await self._history.until(f"{job}: attempt {attempt + 1}", has_restarted)

    async def succeed(self, job: str, name: str) -> None:
        await self.actors.set_phase("Succeeded", f"{job}-{name}", code=0)

    async def scale(self, job: str, workers: int) -> None:
        roles = {"Worker": {"replicas": workers}}
        await self.actors.change(RESOURCE, job, {"spec": {"pytorchReplicaSpecs": roles}})

    async def suspend(self, job: str, *, is_suspended: bool) -> None:
        await self.actors.change(RESOURCE, job, {"spec": {"runPolicy": {"suspend": is_suspended}}})

    async def wait_for_terminating_pods(self, job: str) -> None:
        """Wait until all pods are terminating and all Services are gone."""

        def are_going() -> bool:
            pods = self._children(PODS, job).values()
            return all(map(_is_going, pods)) and not self._children(SERVICES, job)

        await self._history.until(f"{job}: all pods going", are_going)

    async def wait_for_deletion(self, job: str, *names: str) -> None:
        def are_gone() -> bool:
            return not set(names) & {*self._children(PODS, job), *self._children(SERVICES, job)}

        await self._history.until(f"{job}: {names} gone", are_gone)

    async def wait_for_job_deletion(self, job: str) -> None:
        """Wait until the job and its children are gone."""

        def is_gone() -> bool:
            children = [*self._children(PODS, job), *self._children(SERVICES, job)]
            return not children and (RESOURCE.kind, job) not in self._history.now

        await self._history.until(f"{job} gone", is_gone)

    async def wait_for_autoscaler(self, job: str, most: int) -> None:
        def follows() -> bool:
            found = self._history.now.get((HORIZONTAL_POD_AUTOSCALERS.kind, job))
            return found is not None and found["spec"]["maxReplicas"] == most

        await self._history.until(f"{job}: an autoscaler up to {most}", follows)

    def _children(self, resource: Resource, job: str) -> dict[str, dict[str, Any]]:
        """Return the children of a job by role and index."""
        return {
            name.removeprefix(f"{job}-"): obj
            for (kind, name), obj in self._history.now.items()
            if kind == resource.kind and obj["metadata"].get("labels", {}).get(JOB_NAME) == job
        }


def _is_going(pod: Mapping[str, Any]) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _is_of(job: str, child: str) -> bool:
    return child == job or child.startswith(f"{job}-")


def _child_name(job: str, key: tuple[str, str]) -> str:
    return f"{key[0]} {key[1].removeprefix(job).removeprefix('-')}".strip()


def _roles(masters: int, workers: int, *, on_node: bool = False, **container: Any) -> dict[str, Any]:
    pod = template(**container)
    if on_node:
        pod["spec"]["nodeName"] = "node-0"
    return {
        role: {"replicas": count, "restartPolicy": "OnFailure", "template": pod}
        for role, count in (("Master", masters), ("Worker", workers))
        if count
    }


def _children(**pods: int) -> dict[str, int]:
    """Return pods created so often, each with a Service created once; ``_`` stands for ``-``."""
    names = {name.replace("_", "-"): times for name, times in pods.items()}
    return {
        **{f"Pod {name}": times for name, times in names.items()},
        **{f"Service {name}": 1 for name in names},
    }


async def _whole(runner: ScenarioRunner, job: str) -> None:
    await runner.run(job, "master-0", "worker-0", "worker-1")
    await runner.fail(job, "worker-1")
    await runner.run(job, "worker-1")
    await runner.succeed(job, "master-0")
    await runner.wait_for_job_deletion(job)


async def _shared(runner: ScenarioRunner, job: str) -> None:
    await runner.run(job, "master-0", "worker-0")
    await runner.actors.change(RESOURCE, job, {"metadata": {"annotations": {SERVICES_ANNOTATION: None}}})
    await runner.fail(job, "worker-0")
    await runner.run(job, "worker-0")
    await runner.succeed(job, "master-0")
    await runner.wait_for_job_deletion(job)


async def _paused(runner: ScenarioRunner, job: str) -> None:
    names = ("master-0", "worker-0")
    await runner.run(job, *names)
    await runner.suspend(job, is_suspended=True)
    await runner.wait_for_terminating_pods(job)
    await runner.wait_for_condition(job, "Suspended T")
    await runner.suspend(job, is_suspended=False)
    for name in names:
        await runner.actors.delete(PODS, f"{job}-{name}", grace_period_seconds=0)
    await runner.run(job, *names)
    await runner.succeed(job, "master-0")
    await runner.wait_for_condition(job, "Succeeded T")


async def _elastic(runner: ScenarioRunner, job: str) -> None:
    await runner.run(job, "worker-0", "worker-1")
    await runner.wait_for_autoscaler(job, 3)
    await runner.actors.change(RESOURCE, job, {"spec": {"elasticPolicy": {"maxReplicas": 4}}})
    await runner.wait_for_autoscaler(job, 4)
    await runner.scale(job, 3)
    await runner.run(job, "worker-2")
    await runner.scale(job, 1)
    await runner.wait_for_deletion(job, "worker-1", "worker-2")
    await runner.succeed(job, "worker-0")
    await runner.wait_for_condition(job, "Succeeded T")


async def _exhausted(runner: ScenarioRunner, job: str) -> None:
    await runner.run(job, "master-0", "worker-0")
    await runner.fail(job, "worker-0")
    await runner.run(job, "worker-0")
    await runner.actors.set_phase("Failed", f"{job}-worker-0", code=137)
    await runner.wait_for_condition(job, "Failed T")
    await runner.wait_for_deletion(job, "master-0", "worker-0")


async def _restarted_in_place(runner: ScenarioRunner, job: str) -> None:
    await runner.run(job, "master-0", "worker-0")
    await runner.restart_in_place(job, "worker-0", 0)
    await runner.restart_in_place(job, "master-0", 1)
    await runner.fail_attempt(job, "worker-0")
    await runner.run(job, "master-0", "worker-0")
    await runner.succeed(job, "master-0")
    await runner.wait_for_condition(job, "Succeeded T")


async def _restarted(runner: ScenarioRunner, job: str) -> None:
    names = ("master-0", "worker-0", "worker-1")
    await runner.run(job, *names)
    await runner.fail_attempt(job, "worker-1")
    await runner.run(job, *names)
    await runner.actors.set_phase("Failed", f"{job}-worker-0", code=137)
    await runner.wait_for_condition(job, "Failed T")


async def _lost(runner: ScenarioRunner, job: str) -> None:
    names = ("master-0", "worker-0", "worker-1")
    await runner.bind(job, "worker-1", "node-1")
    await runner.run(job, *names)
    await runner.lose(job, "node-1")
    await runner.run(job, *names)
    await runner.succeed(job, "master-0")
    await runner.wait_for_condition(job, "Succeeded T")


WHOLE = Scenario(
    _whole,
    {
        "pytorchReplicaSpecs": _roles(1, 2),
        "runPolicy": {"cleanPodPolicy": "All", "backoffLimit": 50, "ttlSecondsAfterFinished": 1},
    },
    Outcome(
        "Created T, Running F, Succeeded T",
        {"Worker": 1},
        _children(master_0=1, worker_0=1, worker_1=2),
        frozenset(),
    ),
    frozenset({"PyTorchJobRestarting", "PyTorchJobSucceeded"}),
)
"""Runs, replaces a failed worker, succeeds; then cleanup and TTL delete everything."""

SHARED = Scenario(
    _shared,
    {
        "pytorchReplicaSpecs": _roles(1, 1),
        "runPolicy": {"cleanPodPolicy": "All", "ttlSecondsAfterFinished": 1},
    },
    Outcome(
        "Created T, Running F, Succeeded T",
        {},
        {"Pod master-0": 1, "Pod worker-0": 2, "Service": 1},
        frozenset(),
    ),
    frozenset({"PyTorchJobRestarting", "PyTorchJobSucceeded"}),
    {SERVICES_ANNOTATION: "per-job"},
)
"""Runs with one Service, keeps it although a user removes the annotation, replaces a failed worker, succeeds."""

PAUSED = Scenario(
    _paused,
    {"pytorchReplicaSpecs": _roles(1, 1, on_node=True)},
    Outcome(
        "Created T, Suspended F, Running F, Succeeded T",
        {},
        {"Pod master-0": 2, "Pod worker-0": 2, "Service master-0": 2, "Service worker-0": 2},
        frozenset(_children(master_0=1, worker_0=1)),
    ),
    frozenset({"PyTorchJobSuspended", "PyTorchJobResumed", "PyTorchJobSucceeded"}),
)
"""Suspended with slowly terminating pods and resumed meanwhile; succeeds; everything stays."""

ELASTIC = Scenario(
    _elastic,
    {
        "pytorchReplicaSpecs": _roles(0, 2),
        "elasticPolicy": {
            "minReplicas": 1,
            "maxReplicas": 3,
            "metrics": [
                {
                    "type": "Resource",
                    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
                }
            ],
        },
    },
    Outcome(
        "Created T, Running F, Succeeded T",
        {},
        {"HorizontalPodAutoscaler": 1, **_children(worker_0=1, worker_1=1, worker_2=1)},
        frozenset({"HorizontalPodAutoscaler", "Pod worker-0", "Service worker-0"}),
    ),
    frozenset({"PyTorchJobSucceeded"}),
)
"""With an autoscaler that a user changes; scaled up and down; succeeds."""

EXHAUSTED = Scenario(
    _exhausted,
    {"pytorchReplicaSpecs": _roles(1, 1), "runPolicy": {"backoffLimit": 2}},
    Outcome(
        "Created T, Running F, Failed T",
        {"Worker": 1},
        _children(master_0=1, worker_0=2),
        frozenset(),
    ),
    frozenset({"PyTorchJobRestarting", "PyTorchJobFailed"}),
)
"""Exceeds its backoff limit with the second failure."""

RESTARTED = Scenario(
    _restarted,
    {
        "pytorchReplicaSpecs": _roles(1, 2),
        "runPolicy": {"failurePolicy": {"maxRestarts": 1, "rules": [{"action": "RestartJob"}]}},
    },
    Outcome(
        "Created T, Running F, Failed T",
        {},
        {
            **{f"Pod {name}": 2 for name in ("master-0", "worker-0", "worker-1")},
            **{f"Service {name}": 1 for name in ("master-0", "worker-0", "worker-1")},
        },
        frozenset(_children(master_0=1, worker_0=1, worker_1=1)),
        ("0 worker-1 RestartJob", "1 worker-0 RestartJob"),
    ),
    frozenset({"PyTorchJobRestarting", "PyTorchJobMaxRestartsExceeded"}),
)
"""Restarts as a whole after the first failure; the second one exceeds maxRestarts."""

LOST = Scenario(
    _lost,
    {
        "pytorchReplicaSpecs": _roles(1, 2),
        "runPolicy": {
            "nodeLostSeconds": 30,
            "failurePolicy": {
                "rules": [{"action": "RestartJob", "onReasons": ["NodeLost"]}, {"action": "FailJob"}]
            },
        },
    },
    Outcome(
        "Created T, Running F, Succeeded T",
        {},
        {
            **{f"Pod {name}": 2 for name in ("master-0", "worker-0", "worker-1")},
            **{f"Service {name}": 1 for name in ("master-0", "worker-0", "worker-1")},
        },
        frozenset(_children(master_0=1, worker_0=1, worker_1=1)),
        ("0 worker-1 RestartJob",),
    ),
    frozenset({"PyTorchJobRestarting", "PyTorchJobSucceeded"}),
)
"""Loses a node, whose pod nobody ends, and restarts as a whole. A failure for any other reason would end it."""

RESTARTED_IN_PLACE = Scenario(
    _restarted_in_place,
    {
        "pytorchReplicaSpecs": _roles(1, 1, command=["train"]),
        "runPolicy": {
            "failurePolicy": {
                "maxRestarts": 3,
                "rules": [{"action": "RestartJob"}],
                "restartStrategy": "InPlaceRestart",
            }
        },
    },
    Outcome(
        "Created T, Running F, Succeeded T",
        {},
        {"Pod master-0": 2, "Pod worker-0": 2, "Service master-0": 1, "Service worker-0": 1},
        frozenset(_children(master_0=1, worker_0=1)),
        ("0 worker-0 RestartJob", "1 master-0 RestartJob", "2 worker-0 RestartJob"),
    ),
    frozenset({"PyTorchJobRestarting", "PyTorchJobSucceeded"}),
)
"""Restarts in place twice, then by recreation; succeeds."""
