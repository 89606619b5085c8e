"""Silent or excessive connections do not block other clients."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import aiohttp
import pytest
from aiohttp import web

from controller import bounded_server
from controller.bounded_server import TLS, BoundedServer
from rallypoint.local.apiserver.serving import certificates

HOST = "127.0.0.1"
LIMIT = 4
IDLE_SECONDS = 30.0
FAKE_TIME = pytest.mark.asyncio(loop_factories=["asyncio"])
"""On this loop time passes at once."""


class Served:
    """A server of one page, which answers once ``release`` is set."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.release.set()
        self.waiting = asyncio.Semaphore(0)
        app = web.Application()
        app.router.add_get("/", self._answer)
        self.server = BoundedServer(app, max_connections=LIMIT, idle_seconds=IDLE_SECONDS)
        self.port = 0

    async def _answer(self, request: web.Request) -> web.Response:
        self.waiting.release()
        await self.release.wait()
        return web.Response(text="ok")


@asynccontextmanager
async def served(tls: TLS | None = None) -> AsyncIterator[Served]:
    served = Served()
    await served.server.start()
    _, served.port = await served.server.listen(HOST, 0, tls=tls)
    try:
        yield served
    finally:
        await served.server.stop()


@pytest.fixture
async def running() -> AsyncIterator[Served]:
    async with served() as running:
        yield running


@pytest.fixture
def connections() -> Iterator[list[asyncio.StreamWriter]]:
    """What a test opens by hand; closed after it."""
    opened: list[asyncio.StreamWriter] = []
    yield opened
    for writer in opened:
        writer.close()


async def half_open(port: int, opened: list[asyncio.StreamWriter]) -> asyncio.StreamReader:
    """A connection that begins a request and does not go on."""
    reader, writer = await asyncio.open_connection(HOST, port)
    opened.append(writer)
    writer.write(b"GET / HTTP/1.1\r\nHost:")
    await writer.drain()
    return reader


async def get(port: int) -> str:
    async with aiohttp.ClientSession() as session, session.get(f"http://{HOST}:{port}/") as response:
        return await response.text()


async def is_closed(reader: asyncio.StreamReader) -> bool:
    with contextlib.suppress(ConnectionResetError):
        return await reader.read() == b""
    return True


@FAKE_TIME
async def test_a_request_that_is_never_completed_is_closed(
    running: Served, connections: list[asyncio.StreamWriter]
) -> None:
    loop = asyncio.get_running_loop()
    started = loop.time()
    reader = await half_open(running.port, connections)

    assert await is_closed(reader)
    assert loop.time() - started == pytest.approx(IDLE_SECONDS, abs=1)


@FAKE_TIME
async def test_an_idle_connection_is_closed(running: Served) -> None:
    reader, writer = await asyncio.open_connection(HOST, running.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    answer = await reader.read()
    writer.close()

    assert answer.endswith(b"ok")


async def test_a_new_connection_replaces_the_oldest_idle_connection(
    running: Served, connections: list[asyncio.StreamWriter]
) -> None:
    readers = [await half_open(running.port, connections) for _ in range(LIMIT)]

    assert await get(running.port) == "ok"
    assert await is_closed(readers[0])
    assert not readers[1].at_eof()


async def test_many_half_open_connections_do_not_block_others(
    running: Served, connections: list[asyncio.StreamWriter]
) -> None:
    for _ in range(10 * LIMIT):
        await half_open(running.port, connections)

    assert await get(running.port) == "ok"


async def test_requests_in_progress_are_never_closed_for_new_connections(running: Served) -> None:
    running.release.clear()
    gets = [asyncio.create_task(get(running.port)) for _ in range(LIMIT)]
    for _ in gets:
        await running.waiting.acquire()

    with pytest.raises(aiohttp.ClientError):
        await get(running.port)
    running.release.set()

    assert await asyncio.gather(*gets) == ["ok"] * LIMIT


@FAKE_TIME
async def test_a_handshake_that_never_ends_is_closed() -> None:
    context = certificates.identity(datetime.now(UTC)).tls
    async with served(lambda: context) as running:
        loop = asyncio.get_running_loop()
        started = loop.time()
        reader, writer = await asyncio.open_connection(HOST, running.port)

        assert await is_closed(reader)
        assert loop.time() - started == pytest.approx(bounded_server.HANDSHAKE_SECONDS, abs=1)
        writer.close()


async def test_a_connection_is_closed_while_there_is_no_certificate() -> None:
    async with served(lambda: None) as running:
        reader, writer = await asyncio.open_connection(HOST, running.port)

        assert await is_closed(reader)
        writer.close()


async def test_a_stopped_server_does_not_listen() -> None:
    async with served() as running:
        port = running.port

    with pytest.raises(OSError, match=r"refused|failed"):
        await asyncio.open_connection(HOST, port)


async def test_a_taken_port_is_an_error() -> None:
    async with served() as running:
        with socket.create_server((HOST, 0)) as taken, pytest.raises(OSError, match="in use"):
            await running.server.listen(HOST, taken.getsockname()[1])
