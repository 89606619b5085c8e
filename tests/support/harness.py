"""An embedded API server with fault injection, and a client that acts as the user and the kubelet.

The controller under test is another client of the same server. All of them run on the running loop, in tests on loop time.
"""

import asyncio
import socket
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import aiohttp
import yaml

from api.meta import Resource
from api.v1.pytorchjob import RESOURCE
from controller import app
from controller.kube.client import Client
from controller.kube.connect import Connection
from controller.runtime import clock
from controller.settings import Settings
from rallypoint.local.apiserver import ApiServer
from rallypoint.local.apiserver.serving.interceptor import Call
from tests.support.actors import Actors
from tests.support.builders import NOON
from tests.support.faults import Faults, Rule

CRDS = Path(__file__).parents[2] / "manifests" / "base" / "crds"
NAMESPACE = "default"
DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
)
TEST_USER_AGENT = "test"
"""The user agent of the test's own client, which meets no fault."""
TEST_SETTINGS = Settings(
    metrics_bind_address="0", health_probe_bind_address="0", enable_scheme=(RESOURCE.kind,)
)
"""Settings of a controller of one kind, the one that ``start_harness`` defines, without its own HTTP servers."""

UNLIMITED_SETTINGS = replace(TEST_SETTINGS, kube_api_qps=1e6, kube_api_burst=1_000_000)
"""With a rate limit, however high, the client keeps no connection warm. In long runs that would be most of all calls."""


@cache
def definition(resource: Resource) -> dict[str, Any]:
    """Return the shipped CustomResourceDefinition of a kind."""
    text = (CRDS / f"{resource.group}_{resource.plural}.yaml").read_text()
    found: dict[str, Any] = yaml.load(text, Loader=yaml.CSafeLoader)
    return found


class Harness(Actors):
    """The server, its faults, the user and the kubelet."""

    def __init__(self, server: ApiServer, faults: Faults, client: Client) -> None:
        super().__init__(client, NAMESPACE)
        self.server = server
        self.faults = faults

    @property
    def connection(self) -> Connection:
        """The connection for a controller."""
        return Connection(self.server.url, token=lambda: self.server.token)

    @property
    def calls(self) -> list[Call]:
        """All calls except the test's own."""
        return [call for call in self.faults.calls if call.user_agent != TEST_USER_AGENT]

    async def define(self, definitions: Iterable[Mapping[str, Any]]) -> None:
        """Install definitions."""
        for definition in definitions:
            await self.create(DEFINITIONS, definition)

    async def settle(self, seconds: float = 1.0) -> None:
        """Wait until everything due within this loop time has happened."""
        await asyncio.sleep(seconds)


@asynccontextmanager
async def start_harness(
    *rules: Rule, crds: Sequence[Resource] = (RESOURCE,), faults: Faults | None = None, **options: Any
) -> AsyncGenerator[Harness]:
    """Start a server with the definitions of these kinds; its faults apply at once."""
    options.setdefault("clock", lambda: clock.now())
    faults = faults or Faults(rules, spared=TEST_USER_AGENT)
    server = ApiServer(crds=[definition(resource) for resource in crds], interceptor=faults, **options)
    await server.start()
    try:
        async with Client(
            Connection(server.url, token=lambda: server.token), user_agent=TEST_USER_AGENT
        ) as client:
            yield Harness(server, faults, client)
    finally:
        await server.stop()


@asynccontextmanager
async def running_controller(
    harness: Harness,
    settings: Settings = TEST_SETTINGS,
    *,
    connection: Connection | None = None,
    stop: asyncio.Event | None = None,
) -> AsyncGenerator["asyncio.Task[None]"]:
    """Run the whole controller on that harness; yield its task when it works. The end of the block cancels it."""
    working = asyncio.Event()
    time = asyncio.get_running_loop().time
    task = asyncio.create_task(
        app.run(
            settings,
            connection or harness.connection,
            stop=stop,
            on_work=working.set,
            time=time,
            cpu_time=time,
        )
    )
    waiting = asyncio.create_task(working.wait())
    try:
        await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
        yield task
    finally:
        for pending in (task, waiting):
            pending.cancel()
        await asyncio.gather(task, waiting, return_exceptions=True)


Answer = Callable[[str], Awaitable[tuple[int, str]]]
"""Requests a path of the controller, and returns the status and the body."""


@asynccontextmanager
async def starting(harness: Harness, settings: Settings = TEST_SETTINGS) -> AsyncGenerator[Answer]:
    """Run the whole controller from its first moment on; yield a function that requests a path that it serves."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    settings = replace(settings, health_probe_bind_address=address, metrics_bind_address=address)

    async def answer(path: str) -> tuple[int, str]:
        async with aiohttp.ClientSession() as session, session.get(f"http://{address}{path}") as response:
            return response.status, await response.text()

    task = asyncio.create_task(app.run(settings, harness.connection))
    try:
        yield answer
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextmanager
def fake_clock(ahead_seconds: Callable[[], float] = lambda: 0.0) -> Generator[Callable[[], datetime]]:
    """Tie the controller's clock to loop time, from noon on; yield the clock for the server.

    The controller's clock is ``ahead_seconds()`` ahead of it.
    """

    def now() -> datetime:
        return NOON + timedelta(seconds=asyncio.get_running_loop().time())

    def local() -> datetime:
        return now() + timedelta(seconds=ahead_seconds())

    with patch.object(clock, "now", local), patch.object(clock, "uptime", _loop_time):
        yield now


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


def is_owned_by(job: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], bool]:
    """Return a check whether that job controls an object."""

    def is_owned(obj: Mapping[str, Any]) -> bool:
        owners = obj["metadata"].get("ownerReferences") or ()
        return any(owner.get("controller") and owner["uid"] == job["metadata"]["uid"] for owner in owners)

    return is_owned
