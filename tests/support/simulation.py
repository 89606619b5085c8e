"""A simulation of processes that pause, clocks of different rates and a network that loses messages, in one thread on simulated time.

Each process is an event loop with a clock of its own, which ``Simulation`` runs when something is due. Processes and the one server
exchange messages alone; the simulation decides when each arrives, if at all. Nothing depends on chance.
"""

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import orjson
from typing_extensions import override

from api.meta import Resource
from controller.kube.client import Client
from controller.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from controller.kube.failure_log import FailureLog

NEVER = float("inf")
SILENCE_SECONDS = 90.0
"""After so long without a line a watch is broken."""


class Simulation:
    """The true time and the queue of what happens."""

    def __init__(self) -> None:
        self.now = 0.0
        self.latency = 0.001
        """Seconds that a message takes."""
        self.loops: list[SimulatedLoop] = []
        self.on_step: Callable[[], None] = lambda: None
        """Called after each step."""
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()

    def at(self, seconds: float, what: Callable[[], None]) -> None:
        """Schedule a call in so many seconds of true time."""
        heapq.heappush(self._due, (self.now + seconds, next(self._count), what))

    def advance(self, seconds: float) -> None:
        """Run everything due within so many seconds."""
        end = self.now + seconds
        while True:
            due = min([self._due[0][0] if self._due else NEVER, *(loop.wakes_at() for loop in self.loops)])
            if due > end:
                break
            self.now = max(self.now, due)
            while self._due and self._due[0][0] <= self.now:
                heapq.heappop(self._due)[2]()
            for loop in self.loops:
                if loop.wakes_at() <= self.now:
                    loop.run_once()
            self.on_step()
        self.now = end

    def close(self) -> None:
        """Cancel everything that runs in any process."""
        for loop in self.loops:
            while tasks := asyncio.all_tasks(loop):
                for task in tasks:
                    task.cancel()
                loop.run_once()
            loop.close()
        self.loops.clear()


class _Selector:
    """A selector without events."""

    def select(self, timeout: float | None) -> list[Any]:
        return []

    def close(self) -> None: ...


class SimulatedLoop(asyncio.BaseEventLoop):
    """The event loop of one process. Its clock runs at ``rate`` times true time, also while the process is paused."""

    # Members of BaseEventLoop that its stubs omit.
    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]
    _run_once: Callable[[], None]

    def __init__(self, simulation: Simulation, rate: float) -> None:
        super().__init__()
        self._simulation = simulation
        self._rate = rate
        self._selector = _Selector()
        self._clock_resolution = 1e-6  # converted clock times differ in the last bits
        self.paused_until = 0.0
        simulation.loops.append(self)

    @override
    def time(self) -> float:
        return self._simulation.now * self._rate

    def wakes_at(self) -> float:
        """Return the true time of the next thing to do."""
        due = 0.0 if self._ready else self._scheduled[0].when() / self._rate if self._scheduled else NEVER
        return max(due, self.paused_until) if due < NEVER else NEVER

    def run_once(self) -> None:
        """Run what is due."""
        asyncio.events._set_running_loop(self)
        try:
            self._run_once()
        finally:
            asyncio.events._set_running_loop(None)

    def _process_events(self, event_list: list[Any]) -> None: ...

    def _write_to_self(self) -> None: ...


class SimulatedServer:
    """Objects of one resource with versions; each change goes to all watches."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.watches: list[SimulatedWatch] = []
        self._version = itertools.count(1)
        self._events: list[tuple[int, bytes]] = []

    def get(self, namespace: str, name: str) -> bytes:
        try:
            return orjson.dumps(self.objects[namespace, name])
        except KeyError as error:
            raise NotFound(404, "NotFound", f"{name} not found") from error

    def write(self, namespace: str, name: str, body: bytes, *, is_new: bool) -> bytes:
        new = orjson.loads(body)
        name = name or new["metadata"]["name"]
        old = self.objects.get((namespace, name))
        if is_new and old:
            raise AlreadyExists(409, "AlreadyExists", f"{name} already exists")
        if not is_new:
            known = orjson.loads(self.get(namespace, name))["metadata"]["resourceVersion"]
            if new["metadata"]["resourceVersion"] != known:
                raise Conflict(409, "Conflict", "the object has been modified")
        version = next(self._version)
        new["metadata"] |= {"uid": "uid", "resourceVersion": str(version)}
        self.objects[namespace, name] = new
        self._send_event("MODIFIED" if old else "ADDED", new, version)
        return orjson.dumps(new)

    def begin(self, watch: "SimulatedWatch", params: Mapping[str, str]) -> None:
        """Send all objects, or all changes after a version, then further changes."""
        if "sendInitialEvents" in params:
            for obj in self.objects.values():
                watch.send(_line("ADDED", obj))
            version = self._events[-1][0] if self._events else 1
            metadata = {
                "resourceVersion": str(version),
                "annotations": {"k8s.io/initial-events-end": "true"},
            }
            watch.send(_line("BOOKMARK", {"metadata": metadata}))
        else:
            for version, line in self._events:
                if version > int(params["resourceVersion"]):
                    watch.send(line)
        self.watches.append(watch)

    def _send_event(self, type_: str, obj: dict[str, Any], version: int) -> None:
        self._events.append((version, _line(type_, obj)))
        for watch in self.watches:
            watch.send(self._events[-1][1])


class SimulatedWatch:
    """One watch of a process. Once a line is lost no later line arrives: the watch is silent."""

    def __init__(self, simulation: Simulation, client: "SimulatedClient") -> None:
        self._simulation = simulation
        self._client = client
        self._lines: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self._is_lost = False

    def send(self, line: bytes) -> None:
        self._simulation.at(self._simulation.latency, lambda: self._arrive(line))

    def _arrive(self, line: bytes) -> None:
        self._is_lost = self._is_lost or not self._client.receives
        if not self._is_lost:
            self._lines.append(line)
            self._client.loop.call_soon(self._wake.set)

    async def readline(self, *, max_line_length: int) -> bytes:
        async with asyncio.timeout(SILENCE_SECONDS):
            while not self._lines:
                self._wake.clear()
                await self._wake.wait()
        return self._lines.popleft()


class SimulatedClient:
    """The client of a process: the verbs of ``Client``, and messages to the simulated server."""

    def __init__(self, simulation: Simulation, loop: SimulatedLoop, server: SimulatedServer) -> None:
        self.loop = loop
        self.receives = True
        """Whether messages to the process arrive."""
        self.sends = True
        """Whether messages from it arrive."""
        self.watch_failures = FailureLog[str]()
        self._simulation = simulation
        self._server = server

    def as_client(self) -> Client:
        return cast("Client", self)

    async def get(self, resource: Resource, namespace: str, name: str) -> bytes:
        return await self.call(lambda: self._server.get(namespace, name))

    async def create(self, resource: Resource, namespace: str, body: bytes) -> bytes:
        return await self.call(lambda: self._server.write(namespace, "", body, is_new=True))

    async def update(self, resource: Resource, namespace: str, name: str, body: bytes) -> bytes:
        return await self.call(lambda: self._server.write(namespace, name, body, is_new=False))

    @asynccontextmanager
    async def stream(self, path: str, params: Mapping[str, str], **_: str) -> AsyncGenerator[SimulatedWatch]:
        watch = SimulatedWatch(self._simulation, self)

        def begin() -> bytes:
            self._server.begin(watch, params)
            return b""

        async with asyncio.timeout(SILENCE_SECONDS):
            await self.call(begin)
        try:
            yield watch
        finally:
            if watch in self._server.watches:
                self._server.watches.remove(watch)

    async def call(self, do: Callable[[], bytes]) -> bytes:
        """Run a function at the server and return its answer, if that arrives."""
        answer: asyncio.Future[bytes] = self.loop.create_future()

        def arrive() -> None:
            try:
                value: bytes | ApiError = do()
            except ApiError as error:
                value = error
            self._simulation.at(self._simulation.latency, lambda: self._answer(answer, value))

        if self.sends:
            self._simulation.at(self._simulation.latency, arrive)
        return await answer

    def _answer(self, answer: "asyncio.Future[bytes]", value: bytes | ApiError) -> None:
        if self.receives:
            self.loop.call_soon(_settle, answer, value)


def _settle(answer: "asyncio.Future[bytes]", value: bytes | ApiError) -> None:
    if answer.done():
        return
    if isinstance(value, ApiError):
        answer.set_exception(value)
    else:
        answer.set_result(value)


def _line(type_: str, obj: Mapping[str, Any]) -> bytes:
    return orjson.dumps({"type": type_, "object": obj}) + b"\n"
