"""Whole lives of jobs, as scripts for the user and the kubelet, and how each must end.

A script waits for what it sees, never for a time, so it goes on whatever happens to the controller meanwhile.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from api.labels import JOB_NAME
from api.meta import EVENTS, HORIZONTAL_POD_AUTOSCALERS, PODS, SERVICES, Resource
from api.v1.pytorchjob import RESOURCE
from controller.kube.errors import NotFound
from rallypoint.testing.actors import Cast
from rallypoint.testing.builders import template
from rallypoint.testing.history import CHILDREN, History


@dataclass(frozen=True, slots=True)
class Ending:
    """What can be told of a job's life after it. Children are named without their job."""

    conditions: str
    restarts: Mapping[str, int]
    """Of each role that has replaced pods, what the status has counted."""
    made: Mapping[str, int]
    """How often each child was created."""
    left: frozenset[str]
    """The children that are there at the end."""

    @classmethod
    def of(cls, name: str, history: History) -> "Ending":
        job = history.last[RESOURCE.kind, name]
        kinds = {resource.kind for resource in CHILDREN}
        made = {key: times for key, times in history.made.items() if key[0] in kinds and _is_of(name, key[1])}
        return cls(
            conditions=_conditions(job),
            restarts={
                role: one["restarts"]
                for role, one in (job.get("status", {}).get("replicaStatuses") or {}).items()
                if "restarts" in one
            },
            made={_told(name, key): times for key, times in made.items()},
            left=frozenset(_told(name, key) for key in made if key in history.now),
        )


Script = Callable[["Actors", str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Play:
    """One life: the job's spec, what happens to it, and its ending."""

    script: Script
    spec: Mapping[str, Any]
    ending: Ending
    told: frozenset[str]
    """Reasons of the events of its state."""


class Actors:
    """What the scripts ask of the cast, and of the history of its namespace."""

    def __init__(self, cast: Cast, history: History) -> None:
        self.cast = cast
        self._history = history

    async def perform(self, play: Play, name: str) -> None:
        body = {"apiVersion": RESOURCE.api_version, "kind": RESOURCE.kind, "metadata": {"name": name}}
        await self.cast.create(RESOURCE, {**body, "spec": play.spec})
        await play.script(self, name)

    async def owed(self, job: str) -> set[str]:
        """Reasons of conditions of which no event tells."""
        told = {one["reason"] for one in await self.cast.items(EVENTS)}
        try:
            status = (await self.cast.job(job)).get("status") or {}
        except NotFound:
            return set()
        return {one["reason"] for one in status.get("conditions") or ()} - told

    async def run(self, job: str, *names: str) -> None:
        """Let pods run once they and their Services are there, and see the job run."""

        def are_there() -> bool:
            pods = self._children(PODS, job)
            there = {name for name, pod in pods.items() if not _is_going(pod)}
            return set(names) <= there & self._children(SERVICES, job).keys()

        await self._history.until(f"{job}: {names}", are_there)
        await self.cast.become("Running", *(f"{job}-{name}" for name in names))
        await self.see(job, "Running T")

    async def see(self, job: str, condition: str) -> None:
        def is_told() -> bool:
            return condition in _conditions(self._history.now.get((RESOURCE.kind, job), {}))

        await self._history.until(f"{job}: {condition}", is_told)

    async def fail(self, job: str, name: str) -> None:
        """Let a pod fail, and see it replaced."""
        before = self._children(PODS, job)[name]["metadata"]["uid"]

        def is_replaced() -> bool:
            pod = self._children(PODS, job).get(name)
            return pod is not None and pod["metadata"]["uid"] != before

        await self.cast.become("Failed", f"{job}-{name}", code=137)
        await self.see(job, "Restarting T")
        await self._history.until(f"{job}: another {name}", is_replaced)

    async def succeed(self, job: str, name: str) -> None:
        await self.cast.become("Succeeded", f"{job}-{name}", code=0)

    async def scale(self, job: str, workers: int) -> None:
        roles = {"Worker": {"replicas": workers}}
        await self.cast.change(RESOURCE, job, {"spec": {"pytorchReplicaSpecs": roles}})

    async def suspend(self, job: str, *, is_suspended: bool) -> None:
        await self.cast.change(RESOURCE, job, {"spec": {"runPolicy": {"suspend": is_suspended}}})

    async def see_going(self, job: str) -> None:
        """All pods on their way out, all Services gone."""

        def are_going() -> bool:
            pods = self._children(PODS, job).values()
            return all(map(_is_going, pods)) and not self._children(SERVICES, job)

        await self._history.until(f"{job}: all pods going", are_going)

    async def see_gone(self, job: str, *names: str) -> None:
        def are_gone() -> bool:
            return not set(names) & {*self._children(PODS, job), *self._children(SERVICES, job)}

        await self._history.until(f"{job}: {names} gone", are_gone)

    async def see_no_job(self, job: str) -> None:
        """Neither the job nor its children."""

        def is_gone() -> bool:
            children = [*self._children(PODS, job), *self._children(SERVICES, job)]
            return not children and (RESOURCE.kind, job) not in self._history.now

        await self._history.until(f"{job} gone", is_gone)

    async def see_autoscaler(self, job: str, most: int) -> None:
        def follows() -> bool:
            found = self._history.now.get((HORIZONTAL_POD_AUTOSCALERS.kind, job))
            return found is not None and found["spec"]["maxReplicas"] == most

        await self._history.until(f"{job}: an autoscaler up to {most}", follows)

    def _children(self, resource: Resource, job: str) -> dict[str, dict[str, Any]]:
        """By role and index."""
        return {
            name.removeprefix(f"{job}-"): one
            for (kind, name), one in self._history.now.items()
            if kind == resource.kind and one["metadata"].get("labels", {}).get(JOB_NAME) == job
        }


def _conditions(job: Mapping[str, Any]) -> str:
    """Such as ``Created T, Running F``."""
    found = (job.get("status") or {}).get("conditions") or ()
    return ", ".join(f"{one['type']} {one['status'][0]}" for one in found)


def _is_going(pod: Mapping[str, Any]) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _is_of(job: str, child: str) -> bool:
    return child == job or child.startswith(f"{job}-")


def _told(job: str, key: tuple[str, str]) -> str:
    return f"{key[0]} {key[1].removeprefix(job).removeprefix('-')}".strip()


def _roles(masters: int, workers: int, *, on_node: bool = False) -> dict[str, Any]:
    pod = template()
    if on_node:
        pod["spec"]["nodeName"] = "node-0"
    return {
        role: {"replicas": count, "restartPolicy": "OnFailure", "template": pod}
        for role, count in (("Master", masters), ("Worker", workers))
        if count
    }


def _children(**pods: int) -> dict[str, int]:
    """Pods made so often, each with a Service made once; ``_`` stands for ``-``."""
    names = {name.replace("_", "-"): times for name, times in pods.items()}
    return {
        **{f"Pod {name}": times for name, times in names.items()},
        **{f"Service {name}": 1 for name in names},
    }


async def _whole(actors: Actors, job: str) -> None:
    await actors.run(job, "master-0", "worker-0", "worker-1")
    await actors.fail(job, "worker-1")
    await actors.run(job, "worker-1")
    await actors.succeed(job, "master-0")
    await actors.see_no_job(job)


async def _paused(actors: Actors, job: str) -> None:
    names = ("master-0", "worker-0")
    await actors.run(job, *names)
    await actors.suspend(job, is_suspended=True)
    await actors.see_going(job)
    await actors.see(job, "Suspended T")
    await actors.suspend(job, is_suspended=False)
    for name in names:
        await actors.cast.delete(PODS, f"{job}-{name}", grace_period_seconds=0)
    await actors.run(job, *names)
    await actors.succeed(job, "master-0")
    await actors.see(job, "Succeeded T")


async def _elastic(actors: Actors, job: str) -> None:
    await actors.run(job, "worker-0", "worker-1")
    await actors.see_autoscaler(job, 3)
    await actors.cast.change(RESOURCE, job, {"spec": {"elasticPolicy": {"maxReplicas": 4}}})
    await actors.see_autoscaler(job, 4)
    await actors.scale(job, 3)
    await actors.run(job, "worker-2")
    await actors.scale(job, 1)
    await actors.see_gone(job, "worker-1", "worker-2")
    await actors.succeed(job, "worker-0")
    await actors.see(job, "Succeeded T")


async def _exhausted(actors: Actors, job: str) -> None:
    await actors.run(job, "master-0", "worker-0")
    await actors.fail(job, "worker-0")
    await actors.run(job, "worker-0")
    await actors.cast.become("Failed", f"{job}-worker-0", code=137)
    await actors.see(job, "Failed T")
    await actors.see_gone(job, "master-0", "worker-0")


WHOLE = Play(
    _whole,
    {
        "pytorchReplicaSpecs": _roles(1, 2),
        "runPolicy": {"cleanPodPolicy": "All", "backoffLimit": 50, "ttlSecondsAfterFinished": 1},
    },
    Ending(
        "Created T, Running F, Succeeded T",
        {"Worker": 1},
        _children(master_0=1, worker_0=1, worker_1=2),
        frozenset(),
    ),
    frozenset({"PyTorchJobRestarting", "PyTorchJobSucceeded"}),
)
"""Created, run, a failed worker replaced, succeeded, cleaned up, deleted."""

PAUSED = Play(
    _paused,
    {"pytorchReplicaSpecs": _roles(1, 1, on_node=True)},
    Ending(
        "Created T, Suspended F, Running F, Succeeded T",
        {},
        {"Pod master-0": 2, "Pod worker-0": 2, "Service master-0": 2, "Service worker-0": 2},
        frozenset(_children(master_0=1, worker_0=1)),
    ),
    frozenset({"PyTorchJobSuspended", "PyTorchJobResumed", "PyTorchJobSucceeded"}),
)
"""Suspended with pods that take their time to go, resumed while they do, succeeded; everything stays."""

ELASTIC = Play(
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
    Ending(
        "Created T, Running F, Succeeded T",
        {},
        {"HorizontalPodAutoscaler": 1, **_children(worker_0=1, worker_1=1, worker_2=1)},
        frozenset({"HorizontalPodAutoscaler", "Pod worker-0", "Service worker-0"}),
    ),
    frozenset({"PyTorchJobSucceeded"}),
)
"""With an autoscaler that is amended, scaled up and down, succeeded."""

EXHAUSTED = Play(
    _exhausted,
    {"pytorchReplicaSpecs": _roles(1, 1), "runPolicy": {"backoffLimit": 2}},
    Ending(
        "Created T, Running F, Failed T",
        {"Worker": 1},
        _children(master_0=1, worker_0=2),
        frozenset(),
    ),
    frozenset({"PyTorchJobRestarting", "PyTorchJobFailed"}),
)
"""Out of tries: the first failure is one restart, the second is one too many."""
