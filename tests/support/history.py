"""All changes of some resources in a namespace, recorded by watches: a list at the end no longer shows them."""

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import orjson

from api.meta import EVENTS, HORIZONTAL_POD_AUTOSCALERS, PODS, SERVICES, Resource
from api.v1.pytorchjob import RESOURCE
from controller.kube.client import LONGEST_LINE_BYTES, Client
from controller.kube.connect import from_kubeconfig

CHILDREN = (PODS, SERVICES, HORIZONTAL_POD_AUTOSCALERS)
WATCHED = (*CHILDREN, RESOURCE, EVENTS)


LONGEST_SECONDS = 300.0
"""The timeout of each wait."""


class History:
    """The changes of one namespace."""

    def __init__(self) -> None:
        self.created: Counter[tuple[str, str]] = Counter()
        """How often an object was created, by kind and name."""
        self.now: dict[tuple[str, str], dict[str, Any]] = {}
        """The objects that exist, by kind and name."""
        self.latest: dict[tuple[str, str], dict[str, Any]] = {}
        """The latest state of each object, deleted ones included."""
        self.changes: list[tuple[str, dict[str, Any]]] = []
        """Each change: ADDED, MODIFIED or DELETED, and the object then. Changes of one watch are in order; versions order them all."""
        self._changed = asyncio.Event()

    def event_counts(self) -> Counter[str]:
        """Return the number of events by reason; a counted event is one."""
        return Counter(obj["reason"] for (kind, _), obj in self.latest.items() if kind == EVENTS.kind)

    async def until(self, what: str, question: Callable[[], object]) -> None:
        """Wait until ``question`` is true; evaluate it after each change.

        Raises:
            TimeoutError: it was not within ``LONGEST_SECONDS``.
        """
        try:
            async with asyncio.timeout(LONGEST_SECONDS):
                while not question():
                    await self._changed.wait()
        except TimeoutError as error:
            raise TimeoutError(f"waited for {what}") from error

    def record(self, type_: str, obj: dict[str, Any]) -> None:
        # Waiters evaluate their question on the next turn of the loop, after this method.
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
    client: Client,
    namespace: str,
    resources: Sequence[Resource] = WATCHED,
    history: History | None = None,
) -> AsyncGenerator[History]:
    """Record the history from now on, into ``history`` if it is given."""
    history = History() if history is None else history
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


@contextmanager
def loop_in_thread() -> Generator[asyncio.AbstractEventLoop]:
    """Run an event loop in a thread of its own. It must outlive the servers it has connections to, or these stay open."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextmanager
def history_in_thread(
    loop: asyncio.AbstractEventLoop, kubeconfig: Path, namespace: str, resources: Sequence[Resource]
) -> Generator[History]:
    """Record the history by the loop of another thread, for tests without an event loop."""
    started = Future[History]()
    stop = asyncio.Event()

    async def record() -> None:
        async with (
            Client(await from_kubeconfig(str(kubeconfig)), user_agent="test") as client,
            record_history(client, namespace, resources) as history,
        ):
            started.set_result(history)
            await stop.wait()

    recording = asyncio.run_coroutine_threadsafe(record(), loop)
    futures: list[Future[Any]] = [started, recording]
    wait(futures, return_when=FIRST_COMPLETED)
    if not started.done():
        recording.result()
    try:
        yield started.result()
    finally:
        loop.call_soon_threadsafe(stop.set)
        recording.result()


async def _version(client: Client, namespace: str, resource: Resource) -> str:
    return str(orjson.loads(await client.list(resource, namespace))["metadata"]["resourceVersion"])


async def _watch(client: Client, namespace: str, resource: Resource, version: str, history: History) -> None:
    while True:
        params = {"watch": "1", "allowWatchBookmarks": "true", "resourceVersion": version}
        with contextlib.suppress(TimeoutError):  # a silent watch starts again
            async with client.stream(resource.path(namespace), params) as stream:
                while line := await stream.readline(max_line_length=LONGEST_LINE_BYTES):
                    event = orjson.loads(line)
                    assert event["type"] != "ERROR", f"the watch of {resource.plural} failed: {event}"
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        history.record(event["type"], event["object"])
