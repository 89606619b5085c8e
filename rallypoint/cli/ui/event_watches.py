"""Watches of events for the page of a job.

An API server has no index of events: each list, also one with a field selector, reads all events of the namespace. A page that shows a job
reads it every two seconds, so it watches the namespace instead.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from api.meta import EVENTS
from controller.runtime.informer import Ending, Informer
from rallypoint.cli.cluster import Cluster
from rallypoint.diagnosis.objects import Object
from rallypoint.local.manifest import Row, decode

SETTLE_SECONDS = 2.0
"""Readers wait this long for the first list of a watch, then list themselves."""


class EventWatch:
    """The events of a namespace, of all namespaces if it is empty, by the namespace and the name of their object."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.readers = 0
        self._informer = Informer(cluster.client, EVENTS, decode, self._changed, namespace=namespace)
        self._events: dict[tuple[str, str], dict[str, Object]] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._informer.run())

    async def settle(self) -> None:
        """Wait until the events are known, but not for long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_SECONDS):
                await self._informer.settled.wait()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def find(self, namespace: str, name: str) -> list[Object] | None:
        """Return the events of the objects of that name, and of those whose names begin with it and a dash.

        None if they may be old: the server does not answer, or has refused the watch, as to a user who may only list.
        """
        if not self._informer.is_following or self._informer.endings[Ending.REFUSED]:
            return None
        prefix = f"{name}-"
        return [
            event
            for (place, about), events in self._events.items()
            if place == namespace and (about == name or about.startswith(prefix))
            for event in events.values()
        ]

    def _changed(self, before: Row | None, after: Row | None) -> None:
        if before is not None:
            key = _key(before)
            self._events[key].pop(before.uid)
            if not self._events[key]:
                del self._events[key]
        if after is not None:
            self._events.setdefault(_key(after), {})[after.uid] = after.manifest


def _key(row: Row) -> tuple[str, str]:
    return row.namespace, str((row.manifest.get("involvedObject") or {}).get("name"))


class EventWatches:
    """The watches that have readers, by namespace. All readers of a namespace share one."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._watches: dict[str, EventWatch] = {}

    @asynccontextmanager
    async def open(self, namespace: str) -> AsyncGenerator[EventWatch]:
        """Yield a watch that covers the namespace; it lasts until its last reader has left."""
        place = "" if "" in self._watches else namespace
        watch = self._watches.get(place)
        if watch is None:
            watch = self._watches[place] = EventWatch(self._cluster, place)
            watch.start()
        watch.readers += 1
        try:
            await watch.settle()
            yield watch
        finally:
            watch.readers -= 1
            if not watch.readers:
                del self._watches[place]
                await watch.stop()
