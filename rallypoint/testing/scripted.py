"""A server that says exactly what a test wants said, byte by byte, for what no API server would say on purpose."""

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
class Seen:
    """One request that arrived, and the loop time when it did."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    at: float


Answer = Callable[[web.Request, Seen], Awaitable[web.StreamResponse]]


class ScriptedServer:
    """Serves on loopback while the block runs; ``answer`` is asked for each request."""

    def __init__(self, answer: Answer) -> None:
        self.seen: list[Seen] = []
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
        seen = Seen(request.method, request.path, dict(request.query), dict(request.headers), body, at)
        self.seen.append(seen)
        return await self._answer(request, seen)


def answer_json(value: Any, status: int = 200, **headers: str) -> web.Response:
    """A whole answer; underscores in the names of headers stand for hyphens."""
    return web.Response(
        body=orjson.dumps(value),
        status=status,
        content_type="application/json",
        headers={name.replace("_", "-"): text for name, text in headers.items()},
    )


async def fine(request: web.Request, seen: Seen) -> web.StreamResponse:
    """All is well, and there is nothing to say."""
    return answer_json({})


def saying(*answers: web.Response) -> Answer:
    """These answers one after the other, then all is fine."""
    coming = list(answers)

    async def handle(request: web.Request, seen: Seen) -> web.StreamResponse:
        return coming.pop(0) if coming else await fine(request, seen)

    return handle


@asynccontextmanager
async def calling(
    answer: Answer = fine, connection: Mapping[str, Any] | None = None, **options: Any
) -> AsyncGenerator[tuple[Client, ScriptedServer]]:
    """A client of such a server. What is given beyond its address goes to the connection, the options to the client."""
    async with (
        ScriptedServer(answer) as server,
        Client(Connection(server.url, **(connection or {})), **options) as client,
    ):
        yield client, server


def refusal(code: int, reason: str, message: str = "no", **details: Any) -> dict[str, Any]:
    """A Status object."""
    return {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details}


async def answer_lines(
    request: web.Request, lines: Iterable[Any], *, silence_seconds: float = 0.0, cut: bool = False
) -> web.StreamResponse:
    """A watch that sends lines (bytes go out as they are), is silent for a while, and ends well or is cut."""
    response = web.StreamResponse()
    response.enable_chunked_encoding()
    await response.prepare(request)
    for line in lines:
        await response.write(line if isinstance(line, bytes) else orjson.dumps(line) + b"\n")
    await asyncio.sleep(silence_seconds)
    if cut and request.transport is not None:
        request.transport.abort()
    return response
