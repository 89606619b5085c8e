"""A proxy between operators and the API server that injects faults: errors, silence, delays, lost events, a wrong clock."""

import asyncio
import contextlib
import re
import threading
import time
from collections.abc import Generator
from concurrent.futures import Future
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import Literal

import aiohttp
from aiohttp import web
from typing_extensions import override

from controller.kube.client import LONGEST_LINE_BYTES
from controller.kube.connect import Connection, from_kubeconfig
from tests.support.breakpoint_proxy import BreakpointProxy
from tests.support.scripted import ReceivedRequest, answer_json, status_object

_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Fault:
    """What happens to requests of these methods, paths and bodies, which are regular expressions.

    ``refuse`` answers with the status code ``code``, ``hang`` does not answer and holds watches, ``garble`` answers with an object
    without metadata, ``delay`` waits for ``seconds`` first.
    """

    effect: Literal["refuse", "hang", "garble", "delay"]
    method: str = ".*"
    path: str = ".*"
    body: str = ""
    code: int = 503
    seconds: float = 0.0

    def hits(self, method: str, path: str, body: bytes = b"") -> bool:
        return bool(
            re.fullmatch(self.method, method)
            and re.search(self.path, path)
            and re.search(self.body.encode(), body)
        )


class FaultProxy(BreakpointProxy):
    """Serves plain HTTP on loopback. The test's thread changes its fields."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self.faults: list[Fault] = []
        """The first one that hits a request counts."""
        self.lost = ""
        """Watches do not report objects of this name."""
        self.clock_offset_seconds = 0.0
        """How far the clock in the answers is ahead."""

    @override
    async def _pass_on(self, request: web.Request, received: ReceivedRequest) -> web.StreamResponse:
        self.requests.clear()
        path, body = request.path_qs, received.body
        match self._fault(request.method, path, body):
            case Fault(effect="refuse", code=code):
                return answer_json(status_object(code, "InternalError", "injected"), code)
            case Fault(effect="garble"):
                return answer_json({}, 201)
            case Fault(effect="delay", seconds=seconds):
                await asyncio.sleep(seconds)
        await self._held(request)
        if "watch" in received.query:
            return await self._stream(request)
        answer = await self._forward(request, body)
        answer.headers["Date"] = self._date()
        return answer

    @override
    async def _stream(self, request: web.Request) -> web.StreamResponse:
        async with self._call(request, b"") as answer:
            headers = {"Content-Type": answer.content_type, "Date": self._date()}
            response = web.StreamResponse(status=answer.status, headers=headers)
            response.enable_chunked_encoding()
            await response.prepare(request)
            with contextlib.suppress(ConnectionResetError, aiohttp.ClientError):
                while line := await answer.content.readline(max_line_length=LONGEST_LINE_BYTES):
                    await self._held(request)
                    if not (self.lost and f'"name":"{self.lost}"'.encode() in line):
                        await response.write(line)
        return response

    async def _held(self, request: web.Request) -> None:
        """Wait while the request hangs."""
        while (fault := self._fault(request.method, request.path_qs)) and fault.effect == "hang":  # noqa: ASYNC110 - another thread changes the faults
            await asyncio.sleep(_POLL_SECONDS)

    def _fault(self, method: str, path: str, body: bytes = b"") -> Fault | None:
        return next((fault for fault in self.faults if fault.hits(method, path, body)), None)

    def _date(self) -> str:
        return formatdate(time.time() + self.clock_offset_seconds, usegmt=True)


@contextlib.contextmanager
def fault_proxy(kubeconfig: Path) -> Generator[FaultProxy]:
    """Run a proxy for the server and the user of a kubeconfig, in a thread of its own, until the end of the block."""
    started: Future[FaultProxy] = Future()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        try:
            async with FaultProxy(await from_kubeconfig(str(kubeconfig))) as proxy:
                started.set_result(proxy)
                await stop.wait()
        except Exception as error:
            if started.done():
                raise
            started.set_exception(error)

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        yield started.result(30)
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
