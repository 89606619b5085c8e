"""A proxy between a controller's process and a real API server that stops jobs at breakpoints, so that a test kills the process there.

    async with BreakpointProxy(connection, {"cut-7": Breakpoint(CrashPoint(12, Moment.AFTER))}) as proxy: ...  # serves at ``proxy.url``

A job's calls are those that name it. Watches name no job and always pass. One kill can hit many jobs at their breakpoints.
"""

import asyncio
import contextlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

import aiohttp
from aiohttp import web
from typing_extensions import override
from yarl import URL

from controller.kube.client import LONGEST_LINE_BYTES
from controller.kube.connect import Connection
from tests.support.crash_injection import CrashPoint, Moment
from tests.support.scripted import ReceivedRequest, ScriptedServer

FORWARDED_HEADERS = ("Authorization", "Content-Type", "Accept", "Accept-Encoding", "User-Agent")


@dataclass(frozen=True, slots=True)
class Breakpoint:
    """The call at which a job stops; events are counted apart from other calls."""

    crash: CrashPoint
    is_event: bool = False


class BreakpointProxy(ScriptedServer):
    """Serves plain HTTP on loopback while the block runs. It counts and stops jobs named ``cut-NUMBER``."""

    def __init__(
        self,
        connection: Connection,
        points: Mapping[str, Breakpoint] | None = None,
        *,
        lost_responses: Iterable[tuple[str, str]] = (),
    ) -> None:
        """``lost_responses`` are methods and paths. The server handles such a call once; the client gets a 503 with Retry-After."""
        super().__init__(self._pass_on)
        self.calls: Counter[tuple[str, bool]] = Counter()
        """Calls by job and by whether the call is an event."""
        self.reached: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        """By job, set when it reaches its breakpoint."""
        self._target = connection
        self._points = points or {}
        self._lost_responses = set(lost_responses)
        self._over = asyncio.Event()

    @override
    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=0, ssl=self._target.tls() or True)
        self._session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(None))
        return await super().__aenter__()

    @override
    async def __aexit__(self, *_: object) -> None:
        self._over.set()
        await self._session.close()  # which ends the watches
        await super().__aexit__()

    async def _pass_on(self, request: web.Request, received: ReceivedRequest) -> web.StreamResponse:
        if "watch" in received.query:
            return await self._stream(request)
        body = received.body
        job, is_event = _job(request.path_qs.encode() + body), request.path.endswith("/events")
        self.calls[job, is_event] += 1
        point = self._points.get(job)
        if point is None or (is_event, self.calls[job, is_event]) != (point.is_event, point.crash.number):
            answer = await self._forward(request, body)
            if (call := (request.method, request.path)) in self._lost_responses:
                self._lost_responses.remove(call)
                return web.Response(status=503, headers={"Retry-After": "1"})
            return answer
        if point.crash.moment is Moment.AFTER:
            await self._forward(request, body)
        self.reached[job].set()
        await self._over.wait()
        if request.transport is not None:
            request.transport.abort()
        return web.Response(status=499)

    async def _forward(self, request: web.Request, body: bytes) -> web.Response:
        async with self._call(request, body) as answer:
            headers = {name: answer.headers[name] for name in ("Retry-After",) if name in answer.headers}
            return web.Response(
                body=await answer.read(),
                status=answer.status,
                content_type=answer.content_type,
                headers=headers,
            )

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        async with self._call(request, b"") as answer:
            response = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.content_type})
            response.enable_chunked_encoding()
            await response.prepare(request)
            with contextlib.suppress(
                ConnectionResetError, aiohttp.ClientError
            ):  # the watching process is dead
                while line := await answer.content.readline(max_line_length=LONGEST_LINE_BYTES):
                    await response.write(line)
        return response

    def _call(self, request: web.Request, body: bytes) -> "aiohttp.client._RequestContextManager":  # pyright: ignore[reportPrivateUsage] - it has no other name
        return self._session.request(
            request.method,
            URL(self._target.server + request.raw_path, encoded=True),
            data=body or None,
            headers={name: request.headers[name] for name in FORWARDED_HEADERS if name in request.headers},
        )


def _job(request: bytes) -> str:
    found = re.search(rb"\bcut-\d+\b", request)
    return found[0].decode() if found else ""
