"""Watches the namespace of the cases and keeps what is there of each job.

What the controller's own informers make of the same watches is part of what is tested, so this looks with its own eyes.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import orjson

from api.meta import PODS, Resource
from controller.kube.client import LONGEST_LINE_BYTES, Client
from tests.support.parity.defaults import Object
from tests.support.parity.owners import Owners
from tests.support.parity.resources import CHILDREN, NAMESPACE


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


class Observer:
    """Observed jobs by name; the empty name holds objects of no job."""

    def __init__(self, client: Client, owners: Owners) -> None:
        self._client = client
        self._owners = owners
        self.observed_jobs: defaultdict[str, ObservedJob] = defaultdict(ObservedJob)

    async def watch(self, resource: Resource, listed: asyncio.Event) -> None:
        """Keep the scenes true to one resource, until cancelled; ``listed`` is set once they are.

        Raises:
            RuntimeError: the watch has ended, and what has changed since is not known.
        """
        answer = orjson.loads(await self._client.list(resource, NAMESPACE))
        for obj in answer["items"]:
            self._note(resource, obj, gone=False)
        params = {
            "watch": "true",
            "resourceVersion": answer["metadata"]["resourceVersion"],
            "allowWatchBookmarks": "true",
        }
        listed.set()
        # Without events there are only bookmarks, and a busy machine sends those late.
        async with self._client.stream(resource.path(NAMESPACE), params, endless=True) as lines:
            while line := await lines.readline(max_line_length=LONGEST_LINE_BYTES):
                self._take(resource, orjson.loads(line))
        raise RuntimeError(f"the watch of {resource.plural} ended")

    def _take(self, resource: Resource, event: dict[str, Any]) -> None:
        if event["type"] == "ERROR":
            raise RuntimeError(f"the watch of {resource.plural} failed: {event['object']}")
        if event["type"] != "BOOKMARK":
            self._note(resource, event["object"], gone=event["type"] == "DELETED")

    def _note(self, resource: Resource, obj: Object, *, gone: bool) -> None:
        self.observed_jobs[self._owners.of(obj["metadata"])].take(resource, obj, gone=gone)


@asynccontextmanager
async def observe(client: Client, owners: Owners, jobs: Iterable[Resource]) -> AsyncGenerator[Observer]:
    """Yield an observer that has listed everything and watches children and these kinds of jobs."""
    observer = Observer(client, owners)
    async with asyncio.TaskGroup() as group:
        watches: list[asyncio.Task[None]] = []
        for resource in (*CHILDREN, *jobs):
            listed = asyncio.Event()
            watches.append(group.create_task(observer.watch(resource, listed)))
            await listed.wait()
        yield observer
        for watch in watches:
            watch.cancel()
