"""The server's side of SPDY/3.1 inside a WebSocket, which kubectl uses for port-forward.

The messages of the WebSocket together are one stream of frames. SPDY's flow control is not used: kubectl has none. So a
stream whose reader is slow delays the others once it holds ``BUFFER_BYTES``, as with a kubelet.

Source: draft-mbelshe-httpbis-spdy-00 (SPDY/3); Kubernetes, streaming pkg/httpstream/spdy; moby/spdystream.
"""

import asyncio
import contextlib
import struct
import zlib
from collections.abc import Callable, Mapping

from aiohttp import WSMsgType, web
from typing_extensions import override

_VERSION = 0x8003
"""The first two bytes of a control frame: the control bit, and version 3."""
SYN_STREAM, SYN_REPLY, RST_STREAM, PING, HEADERS = 1, 2, 3, 6, 8
FIN = 0x01
REFUSED_STREAM = 3

CHUNK_BYTES = 32 * 1024
MAX_FRAME_BYTES = 1024 * 1024
"""kubectl sends frames of up to 32 KiB."""
MAX_HEADER_BYTES = 64 * 1024
MAX_STREAMS = 1024
BUFFER_BYTES = 256 * 1024
"""Received data that waits for its reader, before the connection is read no further."""

_WORDS = """options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age
allow authorization cache-control connection content-base content-encoding content-language content-length
content-location content-md5 content-range content-type date etag expect expires from host if-match if-modified-since
if-none-match if-range if-unmodified-since last-modified location max-forwards pragma proxy-authenticate
proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade user-agent vary via warning
www-authenticate method get status 200_OK version HTTP/1.1 url public set-cookie keep-alive origin"""
_TEXT = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden"
    "404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable"
    "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT"
    "chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,"
    "publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)


def _with_length(text: bytes) -> bytes:
    return struct.pack("!I", len(text)) + text


DICTIONARY = (
    b"".join(_with_length(word.replace("_", " ").encode()) for word in _WORDS.split()) + _TEXT.encode()
)
"""The dictionary with which header blocks are compressed."""


class ProtocolError(Exception):
    """The client sent something that is not SPDY/3.1."""


class ReceivedData(asyncio.ReadTransport):
    """Received data that waits for its reader."""

    def __init__(self) -> None:
        super().__init__()
        self._reader = asyncio.StreamReader(limit=BUFFER_BYTES // 2)
        self._reader.set_transport(self)  # The reader pauses it at twice its limit.
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._is_closed = False

    async def read(self) -> bytes:
        """Return the next data; empty at its end."""
        return await self._reader.read(CHUNK_BYTES)

    async def add(self, data: bytes, *, is_last: bool = False) -> None:
        """Add data, and wait while too much is unread."""
        if not self._is_closed:
            self._reader.feed_data(data)
            if is_last:
                self.close()
            await self._has_room.wait()

    @override
    def close(self) -> None:
        """End the data; discard what ``add`` gets from now on."""
        if not self._is_closed:
            self._is_closed = True
            self._reader.feed_eof()
            self._has_room.set()

    @override
    def pause_reading(self) -> None:
        self._has_room.clear()

    @override
    def resume_reading(self) -> None:
        self._has_room.set()


class Stream:
    """A stream that the client has opened, with data in both directions."""

    def __init__(self, session: "Session", number: int, headers: Mapping[str, str]) -> None:
        self.headers = headers
        """Names are in lower case."""
        self.on_reset: Callable[[], object] = lambda: None
        """Called when the client resets the stream, and at the end of the session."""
        self._session = session
        self._number = number
        self._received = ReceivedData()
        self._has_client_ended = False
        self._is_closed = False

    async def read(self) -> bytes:
        """Return the next data; empty at its end."""
        return await self._received.read()

    async def write(self, data: bytes) -> None:
        """Send data, at most ``MAX_FRAME_BYTES``."""
        if not self._is_closed:
            await self._session.send(_data_frame(self._number, data))

    async def close(self) -> None:
        """End the data of this side, and discard what the client still sends."""
        self._received.close()
        if not self._is_closed:
            self._is_closed = True
            await self._session.send(_data_frame(self._number, b"", FIN))
            self._discard_if_done()

    async def receive(self, data: bytes, *, is_last: bool) -> None:
        if is_last:
            self._has_client_ended = True
            self._discard_if_done()
        await self._received.add(data, is_last=is_last)

    def reset(self) -> None:
        """Handle a reset by the client, or the end of the session."""
        self._is_closed = True
        self._received.close()
        self._session.discard(self._number)
        self.on_reset()

    def _discard_if_done(self) -> None:
        if self._has_client_ended and self._is_closed:
            self._session.discard(self._number)


class Session:
    """The streams of one WebSocket."""

    def __init__(self, socket: web.WebSocketResponse, opened: Callable[[Stream], object]) -> None:
        """``opened`` is called with each new stream."""
        self._socket = socket
        self._opened = opened
        self._streams: dict[int, Stream] = {}
        self._buffer = bytearray()
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._deflate = zlib.compressobj()  # It sends no header, so it needs no dictionary.

    async def run(self) -> None:
        """Handle frames until the client disconnects; then reset all streams.

        Raises:
            ProtocolError: the client does not speak SPDY/3.1.
        """
        try:
            async for message in self._socket:
                if message.type is not WSMsgType.BINARY:
                    raise ProtocolError("a message is not binary")
                self._buffer += message.data
                while (length := self._frame_bytes()) <= len(self._buffer):
                    frame = bytes(self._buffer[:length])
                    del self._buffer[:length]
                    await self._handle(frame)
        except (struct.error, zlib.error, ValueError) as error:
            raise ProtocolError(f"a frame is not valid: {error}") from error
        finally:
            for stream in list(self._streams.values()):
                stream.reset()

    async def send(self, frame: bytes) -> None:
        if not self._socket.closed:
            with contextlib.suppress(ConnectionError):  # ``run`` notices that the client has disconnected.
                await self._socket.send_bytes(frame)

    def discard(self, number: int) -> None:
        self._streams.pop(number, None)

    def _frame_bytes(self) -> int:
        """Return the length of the next frame; that of its head while this is incomplete."""
        if len(self._buffer) < 8:
            return 8
        length = int.from_bytes(self._buffer[5:8], "big")
        if length > MAX_FRAME_BYTES:
            raise ProtocolError(f"a frame has {length} bytes")
        return 8 + length

    async def _handle(self, frame: bytes) -> None:
        first, rest = struct.unpack_from("!II", frame)
        is_last, body = bool(rest >> 24 & FIN), frame[8:]
        if not first & 0x80000000:
            if (stream := self._streams.get(first)) is not None:
                await stream.receive(body, is_last=is_last)
            return
        if first >> 16 != _VERSION:
            raise ProtocolError(f"version {first >> 16 & 0x7FFF} is not 3")
        kind = first & 0xFFFF
        if kind == SYN_STREAM:
            await self._open(body, is_last=is_last)
        elif kind == RST_STREAM:
            if (stream := self._streams.get(_number(body))) is not None:
                stream.reset()
        elif kind == PING:
            await self.send(frame)
        elif kind in (SYN_REPLY, HEADERS):
            self._read_headers(body[4:])  # The compression of later headers depends on these.

    async def _open(self, body: bytes, *, is_last: bool) -> None:
        number, headers = _number(body), self._read_headers(body[10:])
        if len(self._streams) >= MAX_STREAMS or number in self._streams:
            await self.send(_control_frame(RST_STREAM, struct.pack("!II", number, REFUSED_STREAM)))
            return
        stream = self._streams[number] = Stream(self, number, headers)
        empty = self._deflate.compress(struct.pack("!I", 0)) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        await self.send(_control_frame(SYN_REPLY, struct.pack("!I", number) + empty))
        self._opened(stream)
        await stream.receive(b"", is_last=is_last)

    def _read_headers(self, block: bytes) -> dict[str, str]:
        plain = self._inflate.decompress(block, MAX_HEADER_BYTES)
        if self._inflate.unconsumed_tail:
            raise ProtocolError("the headers of a stream are too large")
        (count,) = struct.unpack_from("!I", plain)
        texts: list[str] = []
        position = 4
        for _ in range(2 * count):
            (length,) = struct.unpack_from("!I", plain, position)
            position += 4 + length
            texts.append(plain[position - length : position].decode())
        return dict(zip(texts[::2], texts[1::2], strict=True))


def _control_frame(kind: int, body: bytes) -> bytes:
    return struct.pack("!HHI", _VERSION, kind, len(body)) + body


def _data_frame(number: int, data: bytes, flags: int = 0) -> bytes:
    return struct.pack("!II", number, flags << 24 | len(data)) + data


def _number(body: bytes) -> int:
    (number,) = struct.unpack_from("!I", body)
    return int(number & 0x7FFFFFFF)
