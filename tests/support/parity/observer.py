"""Watches the namespace of the cases and keeps the objects of each job.

It does not use the controller's informers: what they make of the same watches is part of the test.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import asynccontextmanager

from typing_extensions import override

from api.meta import PODS, Resource
from controller.kube.client import Client
from controller.shadow.defaults import Object
from tests.support.history import History, record_history
from tests.support.parity.resources import CHILDREN, NAMESPACE, Owners


class ObservedJob:
    """The objects of one job as of the last event. ``now`` is the clock: seconds since 1970."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self.job: Object | None = None
        self.children: dict[Resource, dict[str, Object]] = {resource: {} for resource in CHILDREN}
        self.changed_at = float("-inf")
        """The time of the last change of the job or a child."""
        self.generated: dict[str, str] = {}
        """By generated pod name: the part that is the same in other runs."""
        self._change = asyncio.Event()

    def take(self, resource: Resource, obj: Object, *, gone: bool) -> None:
        name = obj["metadata"]["name"]
        if resource not in self.children:
            self.job = None if gone else obj
        elif gone:
            self.children[resource].pop(name, None)
        else:
            self.children[resource][name] = obj
        if resource == PODS and (beginning := obj["metadata"].get("generateName")):
            self.generated[name] = f"{beginning}<random>"
        self.changed_at = self._now()
        self._change.set()

    @property
    def is_being_cleared(self) -> bool:
        """Return whether the job is gone and children of it remain."""
        return self.job is None and any(self.children.values())

    async def until(self, holds: Callable[[], bool], seconds: float) -> None:
        """Return when ``holds`` does. TimeoutError: it does not in so many seconds."""
        async with asyncio.timeout(seconds):
            while not holds():
                self._change.clear()
                await self._change.wait()


class Observer(History):
    """Observed jobs by name; the empty name holds objects of no job."""

    def __init__(self, owners: Owners, jobs: Collection[Resource]) -> None:
        super().__init__()
        self.observed_jobs: defaultdict[str, ObservedJob] = defaultdict(ObservedJob)
        self._owners = owners
        self._resources = {(resource.api_version, resource.kind): resource for resource in (*CHILDREN, *jobs)}

    @override
    def record(self, type_: str, obj: Object) -> None:
        super().record(type_, obj)
        resource = self._resources[obj["apiVersion"], obj["kind"]]
        self.observed_jobs[self._owners.of(obj["metadata"])].take(resource, obj, gone=type_ == "DELETED")


@asynccontextmanager
async def observe(client: Client, owners: Owners, jobs: Collection[Resource]) -> AsyncGenerator[Observer]:
    """Yield an observer of children and of these kinds of jobs, from now on."""
    observer = Observer(owners, jobs)
    async with record_history(client, NAMESPACE, (*CHILDREN, *jobs), observer):
        yield observer
