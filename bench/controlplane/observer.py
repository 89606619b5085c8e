"""Watches jobs, pods and Services of a namespace and records when each first reached each state.

Times are those of arrival in this process, in the same way for the controller and for the baseline.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Literal, Self

import msgspec
import orjson

from api.meta import PODS, SERVICES, Resource
from bench.controlplane.job_kinds import RESOURCES
from controller.kube.client import Client

WATCH_RETRY_SECONDS = 0.01
"""Pause before a watch resumes, so that a server that closes watches at once gets no busy loop."""

Timestamps = dict[str, float]
"""Object name → arrival of the first event of this sort, in seconds on the monotonic clock."""


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    deletion_timestamp: str | None = None
    resource_version: str = ""


class _Condition(msgspec.Struct):
    type: str
    status: str


class _Status(msgspec.Struct):
    phase: str = ""
    conditions: list[_Condition] = []


class _Object(msgspec.Struct):
    metadata: _Meta
    status: _Status = msgspec.field(default_factory=_Status)


class _Event(msgspec.Struct):
    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: _Object


_decode = msgspec.json.Decoder(_Event).decode


class Observer:
    """Watches while it is entered; ``wait_until`` waits for a state."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._change = asyncio.Event()
        self._tasks = AsyncExitStack()
        self.jobs: Timestamps = {}
        self.pods: Timestamps = {}
        self.pods_running: Timestamps = {}
        self.pods_gone: Timestamps = {}
        self.services: Timestamps = {}
        self.conditions: dict[str, Timestamps] = {}
        """Condition type → when each job first had it as True."""
        self._present: set[tuple[str, str]] = set()

    async def __aenter__(self) -> Self:
        group = await self._tasks.enter_async_context(asyncio.TaskGroup())
        tasks = [
            group.create_task(self._watch(PODS, self._pod)),
            group.create_task(self._watch(SERVICES, self._service)),
            *(group.create_task(self._watch(kind, self._job)) for kind in RESOURCES),
        ]
        for task in tasks:
            self._tasks.callback(task.cancel)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._tasks.aclose()

    def reset(self) -> None:
        """Discard all times. Objects that exist now count again only when they change."""
        for timestamps in (
            self.jobs,
            self.pods,
            self.pods_running,
            self.pods_gone,
            self.services,
            self.conditions,
        ):
            timestamps.clear()

    def with_condition(self, condition: str) -> Mapping[str, float]:
        return self.conditions.get(condition, {})

    def is_empty(self) -> bool:
        """Return whether the namespace holds no object."""
        return not self._present

    async def wait_until(self, holds: Callable[[], bool]) -> None:
        """Return when ``holds()`` is true; it is called after each batch of events."""
        while not holds():
            self._change.clear()
            await self._change.wait()

    async def _watch(self, resource: Resource, note: Callable[[_Object, float], None]) -> None:
        """Watch until canceled. Resume after the server closes the watch, as it does with slow readers, or sends nothing."""
        path = resource.path(self._namespace)
        listed = orjson.loads(await self._client.list(resource, self._namespace))
        reached = str(listed["metadata"]["resourceVersion"])
        while True:
            params = {"watch": "true", "resourceVersion": reached, "allowWatchBookmarks": "true"}
            with contextlib.suppress(TimeoutError):
                async with self._client.stream(path, params) as lines:
                    async for line in lines:
                        event = _decode(line)
                        self._note(resource, event, note)
                        reached = event.object.metadata.resource_version
            await asyncio.sleep(WATCH_RETRY_SECONDS)

    def _note(self, resource: Resource, event: _Event, note: Callable[[_Object, float], None]) -> None:
        key = (resource.plural, event.object.metadata.name)
        match event.type:
            case "ADDED" | "MODIFIED":
                self._present.add(key)
                note(event.object, time.monotonic())
            case "DELETED":
                self._present.discard(key)
                if resource == PODS:
                    self.pods_gone.setdefault(event.object.metadata.name, time.monotonic())
            case "ERROR":
                raise RuntimeError(f"the watch of {resource.plural} failed")
            case "BOOKMARK":
                pass
        self._change.set()

    def _pod(self, pod: _Object, now: float) -> None:
        if pod.metadata.deletion_timestamp:
            return
        self.pods.setdefault(pod.metadata.name, now)
        if pod.status.phase == "Running":
            self.pods_running.setdefault(pod.metadata.name, now)

    def _service(self, service: _Object, now: float) -> None:
        self.services.setdefault(service.metadata.name, now)

    def _job(self, job: _Object, now: float) -> None:
        self.jobs.setdefault(job.metadata.name, now)
        for condition in job.status.conditions:
            if condition.status == "True":
                self.conditions.setdefault(condition.type, {}).setdefault(job.metadata.name, now)
