"""A server that sends scripted answers byte by byte, such as no API server sends."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self

import orjson
from aiohttp import web
from aiohttp.test_utils import TestServer

from controller.kube.client import Client
from controller.kube.connect import Connection


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """One request, and the loop time at which it arrived."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    at: float


Answer = Callable[[web.Request, ReceivedRequest], Awaitable[web.StreamResponse]]


class ScriptedServer:
    """Serves on loopback while the block runs; ``answer`` handles each request."""

    def __init__(self, answer: Answer) -> None:
        self.requests: list[ReceivedRequest] = []
        self.url = ""
        self._answer = answer

    @property
    def connection(self) -> Connection:
        return Connection(self.url)

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=0)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._server = TestServer(app)
        await self._server.start_server(access_log=None, shutdown_timeout=0.1)
        self.url = str(self._server.make_url("")).rstrip("/")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        at = asyncio.get_running_loop().time()
        received = ReceivedRequest(
            request.method, request.path, dict(request.query), dict(request.headers), body, at
        )
        self.requests.append(received)
        return await self._answer(request, received)


def answer_json(value: Any, status: int = 200, **headers: str) -> web.Response:
    """Return a JSON answer; underscores in the names of headers stand for hyphens."""
    return web.Response(
        body=orjson.dumps(value),
        status=status,
        content_type="application/json",
        headers={name.replace("_", "-"): text for name, text in headers.items()},
    )


async def fine(request: web.Request, received: ReceivedRequest) -> web.StreamResponse:
    """Answer with an empty object."""
    return answer_json({})


def saying(*answers: web.Response) -> Answer:
    """Return a handler that sends these answers in turn, then empty objects."""
    coming = list(answers)

    async def handle(request: web.Request, received: ReceivedRequest) -> web.StreamResponse:
        return coming.pop(0) if coming else await fine(request, received)

    return handle


@asynccontextmanager
async def calling(
    answer: Answer = fine, connection: Mapping[str, Any] | None = None, **options: Any
) -> AsyncGenerator[tuple[Client, ScriptedServer]]:
    """Start such a server and a client of it. ``connection`` are further arguments of the connection, ``options`` of the client."""
    async with (
        ScriptedServer(answer) as server,
        Client(Connection(server.url, **(connection or {})), **options) as client,
    ):
        yield client, server


def status_object(code: int, reason: str, message: str = "no", **details: Any) -> dict[str, Any]:
    """Return a Status object."""
    return {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details}


async def answer_lines(
    request: web.Request, lines: Iterable[Any], *, silence_seconds: float = 0.0, cut: bool = False
) -> web.StreamResponse:
    """Send lines of a watch (bytes unchanged), wait, then end the answer or break the connection."""
    response = web.StreamResponse()
    response.enable_chunked_encoding()
    await response.prepare(request)
    for line in lines:
        await response.write(line if isinstance(line, bytes) else orjson.dumps(line) + b"\n")
    await asyncio.sleep(silence_seconds)
    if cut and request.transport is not None:
        request.transport.abort()
    return response
