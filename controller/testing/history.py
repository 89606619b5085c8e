"""All that was ever seen of some resources in a namespace, by watching: what a list at the end no longer shows."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import orjson

from api.meta import EVENTS, HORIZONTAL_POD_AUTOSCALERS, PODS, SERVICES, Resource
from api.v1.pytorchjob import RESOURCE
from controller.kube.client import LONGEST_LINE_BYTES, Client

CHILDREN = (PODS, SERVICES, HORIZONTAL_POD_AUTOSCALERS)
WATCHED = (*CHILDREN, RESOURCE, EVENTS)


class History:
    """What has happened in one namespace."""

    def __init__(self) -> None:
        self.made: Counter[tuple[str, str]] = Counter()
        """How often an object of that kind and name was created."""
        self.now: dict[tuple[str, str], dict[str, Any]] = {}
        """What is there, by kind and name."""
        self.last: dict[tuple[str, str], dict[str, Any]] = {}
        """How each object was last seen, those that are gone too."""

    def told(self) -> Counter[str]:
        """How often each reason has an event, those that were counted up once."""
        return Counter(obj["reason"] for (kind, _), obj in self.last.items() if kind == EVENTS.kind)

    def take(self, type_: str, obj: dict[str, Any]) -> None:
        key = (obj["kind"], obj["metadata"]["name"])
        self.last[key] = obj
        if type_ == "DELETED":
            self.now.pop(key, None)
            return
        self.made[key] += type_ == "ADDED"
        self.now[key] = obj


@asynccontextmanager
async def recorded(
    client: Client, namespace: str, resources: Sequence[Resource] = WATCHED
) -> AsyncGenerator[History]:
    """The history from now on."""
    history = History()
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(
                _follow(client, namespace, one, await _version(client, namespace, one), history)
            )
            for one in resources
        ]
        yield history
        for task in tasks:
            task.cancel()


async def _version(client: Client, namespace: str, resource: Resource) -> str:
    return str(orjson.loads(await client.list(resource, namespace))["metadata"]["resourceVersion"])


async def _follow(client: Client, namespace: str, resource: Resource, version: str, history: History) -> None:
    params = {"watch": "1", "resourceVersion": version, "timeoutSeconds": "3600"}
    async with client.stream(resource.path(namespace), params) as stream:
        while line := await stream.readline(max_line_length=LONGEST_LINE_BYTES):
            event = orjson.loads(line)
            history.take(event["type"], event["object"])
