"""Both protocols over WebSockets, with servers of this process in place of pods."""

import asyncio
import contextlib
import errno
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from rallypoint.local.apiserver.apimachinery.errors import StatusError
from rallypoint.local.node.sandbox.isolation import connected
from rallypoint.local.node.streams.exec_endpoint import NotRunning
from rallypoint.local.node.streams.port_forward_endpoint import CHANNELS, TUNNEL, answer
from tests.support.spdy_client import SpdyClient

pytestmark = pytest.mark.looptime(False)

POD = {"metadata": {"name": "p", "uid": "u"}}
MIB = 1024 * 1024
REFUSED = (
    "error forwarding port 1 to pod p, uid u: connection refused: no program in the pod listens on this port"
)
Program = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send everything back, and end after the client."""
    while data := await reader.read(MIB):
        writer.write(data)
        await writer.drain()
    writer.close()


class Fixture:
    """An API server with one pod, in which ``program`` serves all ports but those of ``errors``."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url = url
        self.session = session

    @asynccontextmanager
    async def tunnel(self) -> AsyncIterator[SpdyClient]:
        """Connect as kubectl does."""
        async with self.session.ws_connect(self.url, protocols=[TUNNEL], max_msg_size=0) as socket:
            client = SpdyClient(socket.send_bytes)
            reading = asyncio.create_task(self._read(socket, client))
            yield client
            reading.cancel()

    async def _read(self, socket: aiohttp.ClientWebSocketResponse, client: SpdyClient) -> None:
        async for message in socket:
            client.receive(message.data)

    def channels(self, *ports: object) -> Any:
        """Connect as the Python client does."""
        query = {"ports": ",".join(map(str, ports))}
        return self.session.ws_connect(self.url, params=query, protocols=[CHANNELS], max_msg_size=0)


@asynccontextmanager
async def serving(
    program: Program = echo, errors: Mapping[int, Exception] | None = None
) -> AsyncIterator[Fixture]:
    pod = await asyncio.start_server(program, "127.0.0.1", 0)

    async def connect(_: Mapping[str, Any], port: int) -> socket.socket:
        if errors and port in errors:
            raise errors[port]
        address = pod.sockets[0].getsockname()
        return await connected(socket.socket(socket.AF_INET, socket.SOCK_STREAM), address)

    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            return await answer(connect, request, POD)
        except StatusError as error:
            return web.json_response(error.status, status=error.code)

    app = web.Application()
    app.router.add_route("*", "/", handle)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        yield Fixture(str(server.make_url("/")), session)
    pod.close()


async def test_a_connection_of_the_tunnel_is_ended_by_each_side_alone() -> None:
    async def program(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        question = await reader.read()
        writer.write(question[::-1])
        writer.close()

    async with serving(program) as fixture, fixture.tunnel() as client:
        data, error = await client.forward(80)
        await client.write(data, b"abc", is_last=True)
        await client.until(lambda: client.ended == {data, error})

        assert (bytes(client.received[data]), bytes(client.received[error])) == (b"cba", b"")


async def test_one_tunnel_carries_many_connections() -> None:
    async with serving() as fixture, fixture.tunnel() as client:
        pairs = [await client.forward(80, str(number)) for number in range(300)]
        for number, (data, _) in enumerate(pairs):
            await client.write(data, str(number).encode(), is_last=True)
        await client.until(lambda: len(client.ended) == 2 * len(pairs))

        assert [client.received[data].decode() for data, _ in pairs] == [str(n) for n in range(300)]


@pytest.mark.parametrize(
    ("raised", "message"),
    [
        pytest.param(ConnectionRefusedError(errno.ECONNREFUSED, "refused"), REFUSED, id="nothing listens"),
        pytest.param(
            NotRunning(),
            "error forwarding port 1 to pod p, uid u: the pod is not running",
            id="the pod does not run",
        ),
        pytest.param(
            OSError("the sandbox daemon has ended"),
            "error forwarding port 1 to pod p, uid u: the sandbox daemon has ended",
            id="another error",
        ),
    ],
)
async def test_an_error_is_reported_and_ends_its_connection_only(raised: Exception, message: str) -> None:
    async with serving(errors={1: raised}) as fixture:
        async with fixture.tunnel() as client:
            other, _ = await client.forward(80, "other")
            data, error = await client.forward(1)
            await client.until(lambda: client.ended == {data, error})
            assert bytes(client.received[error]) == message.encode()
            await client.write(other, b"here")
            await client.until(lambda: bytes(client.received[other]) == b"here")
        async with fixture.channels(1) as channels:
            messages = [item.data async for item in channels]
            assert messages == [b"\0\x01\0", b"\1\x01\0", b"\1" + message.encode()]


async def test_ports_of_the_python_client_are_separate_channels() -> None:
    errors = {1: ConnectionRefusedError(errno.ECONNREFUSED, "refused")}
    async with serving(errors=errors) as fixture, fixture.channels(80, 1) as channels:
        await channels.send_bytes(b"\0hello")
        await channels.send_bytes(b"\2discarded")
        await channels.send_bytes(b"\7no such channel")
        found = {(await channels.receive()).data for _ in range(6)}

    heads = {b"\0\x50\0", b"\1\x50\0", b"\2\x01\0", b"\3\x01\0"}
    assert found == heads | {b"\0hello", b"\3" + REFUSED.encode()}


@pytest.mark.parametrize("protocol", [TUNNEL, CHANNELS])
async def test_the_pod_notices_a_client_that_goes_away(protocol: str) -> None:
    is_closed = asyncio.Event()

    async def program(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        assert await reader.read() == b""
        is_closed.set()
        writer.close()

    async with serving(program) as fixture:
        if protocol == TUNNEL:
            async with fixture.tunnel() as client:
                data, _ = await client.forward(80)
                await client.until(lambda: bytes(client.received[data]) == b"hello")
        else:
            async with fixture.channels(80) as channels:
                while (await channels.receive()).data != b"\0hello":
                    pass
        async with asyncio.timeout(60):
            await is_closed.wait()


async def test_a_reset_closes_a_connection_whose_data_has_ended() -> None:
    ends = asyncio.Queue[bool]()

    async def program(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.read() == b""
        ends.put_nowait(True)
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(bytes(MIB))
                await writer.drain()
        ends.put_nowait(True)

    async with serving(program) as fixture, fixture.tunnel() as client:
        data, _ = await client.forward(80)
        await client.write(data, b"", is_last=True)
        async with asyncio.timeout(60):
            await ends.get()
            await client.reset(data)
            await ends.get()


@pytest.mark.parametrize("protocol", [TUNNEL, CHANNELS])
async def test_a_client_that_does_not_read_slows_the_pod_down(protocol: str) -> None:
    total = 256 * MIB
    written = 0
    stalled = asyncio.Event()

    async def program(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        while written < total:
            writer.write(bytes(MIB))
            written += MIB
            drained = asyncio.ensure_future(writer.drain())
            if not (await asyncio.wait([drained], timeout=1))[0]:
                stalled.set()
            await drained
        writer.close()

    options: dict[str, Any] = {"params": {"ports": "80"}, "protocols": [protocol], "max_msg_size": 0}
    async with serving(program) as fixture, fixture.session.ws_connect(fixture.url, **options) as socket:
        client = SpdyClient(socket.send_bytes)
        if protocol == TUNNEL:
            await client.forward(80)
        async with asyncio.timeout(60):
            await stalled.wait()
        assert written < 64 * MIB

        received = 0
        while received < total:
            received += len(await socket.receive_bytes())


async def test_a_pod_that_does_not_read_slows_the_client_down() -> None:
    goes_on = asyncio.Event()
    total = 128 * MIB

    async def program(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await goes_on.wait()
        received = 0
        while data := await reader.read(MIB):
            received += len(data)
        writer.write(str(received).encode())
        writer.close()

    async with serving(program) as fixture, fixture.tunnel() as client:
        data, _ = await client.forward(80)
        sent = 0

        async def send() -> None:
            nonlocal sent
            for _ in range(total // 2**15):
                await client.write(data, bytes(2**15))
                sent += 2**15
            await client.write(data, b"", is_last=True)

        sending = asyncio.create_task(send())
        done, _ = await asyncio.wait([sending], timeout=2)
        assert not done
        assert sent < 64 * MIB
        goes_on.set()
        await client.until(lambda: data in client.ended)
        assert client.received[data] == str(total).encode()


@pytest.mark.parametrize(
    ("query", "protocols", "expected"),
    [
        pytest.param("", None, (400, "Upgrade request required"), id="no handshake"),
        pytest.param("", [CHANNELS], (400, 'query parameter "ports" is required'), id="no port"),
        pytest.param("ports=0", [CHANNELS], (400, 'unable to parse "0" as a port'), id="the port 0"),
        pytest.param("ports=http", [CHANNELS], (400, 'unable to parse "http" as a port'), id="a name"),
        pytest.param(
            "ports=1",
            ["v5.channel.k8s.io"],
            (403, "unable to upgrade: the protocols are"),
            id="another protocol",
        ),
    ],
)
async def test_other_requests_are_refused(
    query: str, protocols: list[str] | None, expected: tuple[int, str]
) -> None:
    headers = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    headers |= {
        "Sec-WebSocket-Key": "MDEyMzQ1Njc4OWFiY2RlZg==",
        "Sec-WebSocket-Protocol": ",".join(protocols or ()),
    }
    async with serving() as fixture:
        given = headers if protocols else {}
        async with fixture.session.get(f"{fixture.url}?{query}", headers=given) as response:
            status = await response.json()

    assert (response.status, status["message"][: len(expected[1])]) == expected
