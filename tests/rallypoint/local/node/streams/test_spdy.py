"""The frames of SPDY, without a network."""

import asyncio
import hashlib
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import WSMessage, WSMsgType

from rallypoint.local.node.streams import spdy
from rallypoint.local.node.streams.spdy import (
    BUFFER_BYTES,
    DICTIONARY,
    MAX_FRAME_BYTES,
    MAX_STREAMS,
    PING,
    REFUSED_STREAM,
    ProtocolError,
    Session,
    Stream,
)
from tests.support.spdy_client import SpdyClient, control_frame, data_frame


async def discard(_: bytes) -> None: ...


class Socket:
    """A WebSocket in memory; it hands over one message after the other."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.sent: list[bytes] = []
        self.client = SpdyClient(self.messages.put)
        self.closed = False

    async def send_bytes(self, data: bytes) -> None:
        self.sent.append(data)
        self.client.receive(data)

    def __aiter__(self) -> AsyncIterator[WSMessage]:
        return self._messages()

    async def _messages(self) -> AsyncIterator[WSMessage]:
        while (message := await self.messages.get()) is not None:
            yield WSMessage(WSMsgType.BINARY, message, None)


class Server:
    """A session whose streams a test reads and writes."""

    def __init__(self) -> None:
        self.socket = Socket()
        self.client = self.socket.client
        self.streams: asyncio.Queue[Stream] = asyncio.Queue()
        socket: Any = self.socket
        self.task = asyncio.create_task(Session(socket, self.streams.put_nowait).run())


@asynccontextmanager
async def running() -> AsyncIterator[Server]:
    server = Server()
    yield server
    await server.socket.messages.put(None)
    await server.task


def test_the_dictionary_is_that_of_the_protocol() -> None:
    assert len(DICTIONARY) == 1423
    assert hashlib.sha256(DICTIONARY).hexdigest().startswith("51d27341373f923f")


async def test_a_stream_has_the_headers_of_the_client() -> None:
    async with running() as server:
        first = await server.client.open({"port": "80", "streamtype": "data"})
        second = await server.client.open({"port": "80", "streamtype": "error"})
        await server.client.until(lambda: server.client.replied == {first, second})

        headers = [server.streams.get_nowait().headers for _ in range(2)]
        assert headers == [{"port": "80", "streamtype": kind} for kind in ("data", "error")]


async def test_each_side_ends_its_data_alone() -> None:
    async with running() as server:
        number = await server.client.open({})
        stream = await server.streams.get()
        await server.client.write(number, b"question", is_last=True)
        assert [await stream.read(), await stream.read()] == [b"question", b""]

        await stream.write(b"answer")
        assert server.client.ended == set()
        await stream.close()
        assert bytes(server.client.received[number]) == b"answer"
        assert server.client.ended == {number}


async def test_frames_may_be_split_and_joined() -> None:
    async with running() as server:
        frames = server.client.syn_stream(1, {"a": "b"}) + data_frame(1, b"one") + data_frame(1, b"two")
        for part in (frames[:5], frames[5:30], frames[30:]):
            await server.socket.messages.put(part)
        stream = await server.streams.get()
        received = b""
        while len(received) < 6:
            received += await stream.read()

        assert received == b"onetwo"


async def test_a_reset_ends_a_stream_only() -> None:
    async with running() as server:
        numbers = [await server.client.open({}), await server.client.open({})]
        streams = [await server.streams.get(), await server.streams.get()]
        resets: list[int] = []
        for stream, number in zip(streams, numbers, strict=True):
            stream.on_reset = lambda number=number: resets.append(number)  # type: ignore[misc]
        await server.client.reset(numbers[0])
        await server.client.write(numbers[1], b"still there")

        assert await streams[1].read() == b"still there"
        assert resets == [numbers[0]]
        await streams[0].write(b"too late")
        assert bytes(server.client.received[numbers[0]]) == b""
    assert resets == numbers


async def test_the_session_reads_no_further_while_a_stream_is_full() -> None:
    async with running() as server:
        number = await server.client.open({})
        stream = await server.streams.get()
        chunk = bytes(BUFFER_BYTES // 4)
        for _ in range(12):
            await server.client.write(number, chunk)
        await asyncio.sleep(1)
        assert server.socket.messages.qsize() == 7

        received = 0
        while received < 12 * len(chunk):
            received += len(await stream.read())
        assert server.socket.messages.empty()


async def test_data_for_a_closed_stream_delays_no_other() -> None:
    async with running() as server:
        first, second = await server.client.open({}), await server.client.open({})
        closed, other = await server.streams.get(), await server.streams.get()
        for _ in range(8):
            await server.client.write(first, bytes(BUFFER_BYTES))
        await asyncio.sleep(1)
        await closed.close()
        await server.client.write(second, b"here")

        async with asyncio.timeout(60):
            assert await other.read() == b"here"


async def test_a_ping_is_answered() -> None:
    async with running() as server:
        ping = control_frame(PING, struct.pack("!I", 1))
        await server.socket.messages.put(ping)
        await asyncio.sleep(1)

        assert server.socket.sent == [ping]


async def test_a_client_cannot_open_any_number_of_streams() -> None:
    async with running() as server:
        *_, last = [await server.client.open({}) for _ in range(MAX_STREAMS + 1)]
        await server.client.until(lambda: bool(server.client.reset_status))

        assert server.client.reset_status == {last: REFUSED_STREAM}
        assert server.streams.qsize() == MAX_STREAMS


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(struct.pack("!HHI", 0x8002, 1, 0), id="another version"),
        pytest.param(struct.pack("!II", 1, MAX_FRAME_BYTES + 1), id="a frame that is too large"),
        pytest.param(control_frame(spdy.SYN_STREAM, b"\0\0"), id="a frame that is too short"),
        pytest.param(
            control_frame(spdy.SYN_STREAM, bytes(10) + b"no zlib"), id="headers that are not compressed"
        ),
        pytest.param(
            SpdyClient(discard).syn_stream(1, {"a": "b" * spdy.MAX_HEADER_BYTES}),
            id="headers that are too large",
        ),
    ],
)
async def test_other_protocols_are_refused(message: bytes) -> None:
    server = Server()
    await server.socket.messages.put(message)

    with pytest.raises(ProtocolError):
        await server.task
