"""All that was ever seen of some resources in a namespace, by watching: what a list at the end no longer shows."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import orjson

from api.meta import EVENTS, HORIZONTAL_POD_AUTOSCALERS, PODS, SERVICES, Resource
from api.v1.pytorchjob import RESOURCE
from controller.kube.client import LONGEST_LINE_BYTES, Client

CHILDREN = (PODS, SERVICES, HORIZONTAL_POD_AUTOSCALERS)
WATCHED = (*CHILDREN, RESOURCE, EVENTS)


LONGEST_SECONDS = 300.0
"""Of anything that is waited for."""


class History:
    """What has happened in one namespace."""

    def __init__(self) -> None:
        self.created: Counter[tuple[str, str]] = Counter()
        """How often an object of that kind and name was created."""
        self.now: dict[tuple[str, str], dict[str, Any]] = {}
        """What is there, by kind and name."""
        self.latest: dict[tuple[str, str], dict[str, Any]] = {}
        """How each object was last seen, those that are gone too."""
        self.changes: list[tuple[str, dict[str, Any]]] = []
        """All of it: ADDED, MODIFIED or DELETED, and the object as it was then. Each watch is in order; versions order them all."""
        self._changed = asyncio.Event()

    def event_counts(self) -> Counter[str]:
        """How often each reason has an event, those that were counted up once."""
        return Counter(obj["reason"] for (kind, _), obj in self.latest.items() if kind == EVENTS.kind)

    async def until(self, what: str, question: Callable[[], object]) -> None:
        """Wait for a yes, asking anew whenever something has happened.

        Raises:
            TimeoutError: there is none for ``LONGEST_SECONDS``.
        """
        try:
            async with asyncio.timeout(LONGEST_SECONDS):
                while not question():
                    await self._changed.wait()
        except TimeoutError as error:
            raise TimeoutError(f"waited for {what}") from error

    def record(self, type_: str, obj: dict[str, Any]) -> None:
        # Whoever waits is woken once, and asks on the next turn of the loop, when this is done.
        self._changed.set()
        self._changed.clear()
        self.changes.append((type_, obj))
        key = (obj["kind"], obj["metadata"]["name"])
        self.latest[key] = obj
        if type_ == "DELETED":
            self.now.pop(key, None)
            return
        self.created[key] += type_ == "ADDED"
        self.now[key] = obj


@asynccontextmanager
async def record_history(
    client: Client, namespace: str, resources: Sequence[Resource] = WATCHED
) -> AsyncGenerator[History]:
    """The history from now on."""
    history = History()
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(
                _watch(client, namespace, resource, await _version(client, namespace, resource), history)
            )
            for resource in resources
        ]
        yield history
        for task in tasks:
            task.cancel()


async def _version(client: Client, namespace: str, resource: Resource) -> str:
    return str(orjson.loads(await client.list(resource, namespace))["metadata"]["resourceVersion"])


async def _watch(client: Client, namespace: str, resource: Resource, version: str, history: History) -> None:
    while True:
        params = {"watch": "1", "allowWatchBookmarks": "true", "resourceVersion": version}
        with contextlib.suppress(TimeoutError):  # of which nothing is heard is asked for again
            async with client.stream(resource.path(namespace), params) as stream:
                while line := await stream.readline(max_line_length=LONGEST_LINE_BYTES):
                    event = orjson.loads(line)
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        history.record(event["type"], event["object"])
