"""A client of SPDY/3.1 that shows what the server sends."""

import asyncio
import struct
import zlib
from collections import defaultdict
from collections.abc import Awaitable, Callable

from rallypoint.local.node.streams.spdy import DICTIONARY, FIN, RST_STREAM, SYN_REPLY, SYN_STREAM

VERSION = 0x8003


def control_frame(kind: int, body: bytes, flags: int = 0) -> bytes:
    return struct.pack("!HHI", VERSION, kind, flags << 24 | len(body)) + body


def data_frame(number: int, data: bytes, *, is_last: bool = False) -> bytes:
    return struct.pack("!II", number, (FIN if is_last else 0) << 24 | len(data)) + data


class SpdyClient:
    def __init__(self, send: Callable[[bytes], Awaitable[None]]) -> None:
        self.send = send
        """Sends a message."""
        self.replied: set[int] = set()
        self.received: dict[int, bytearray] = defaultdict(bytearray)
        self.ended: set[int] = set()
        self.reset_status: dict[int, int] = {}
        self._next_number = 1
        self._deflate = zlib.compressobj(zdict=DICTIONARY)
        self._buffer = bytearray()
        self._change = asyncio.Event()

    async def open(self, headers: dict[str, str], *, is_last: bool = False) -> int:
        """Open a stream and return its number."""
        number = self._next_number
        self._next_number += 2
        await self.send(self.syn_stream(number, headers, FIN if is_last else 0))
        return number

    def syn_stream(self, number: int, headers: dict[str, str], flags: int = 0) -> bytes:
        texts = [text.encode() for pair in headers.items() for text in pair]
        plain = struct.pack("!I", len(headers)) + b"".join(
            struct.pack("!I", len(text)) + text for text in texts
        )
        block = self._deflate.compress(plain) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        return control_frame(SYN_STREAM, struct.pack("!IIH", number, 0, 0) + block, flags)

    async def forward(self, port: object, request_id: str = "1") -> tuple[int, int]:
        """Open the streams of a connection as kubectl does: return those for data and for the error."""
        headers = {"port": str(port), "requestid": request_id}
        error = await self.open({**headers, "streamtype": "error"}, is_last=True)
        return await self.open({**headers, "streamtype": "data"}), error

    async def write(self, number: int, data: bytes, *, is_last: bool = False) -> None:
        await self.send(data_frame(number, data, is_last=is_last))

    async def reset(self, number: int) -> None:
        await self.send(control_frame(RST_STREAM, struct.pack("!II", number, 5)))

    def receive(self, message: bytes) -> None:
        """Handle a message of the server."""
        self._buffer += message
        while len(self._buffer) >= 8:
            first, rest = struct.unpack_from("!II", self._buffer)
            length = rest & 0xFFFFFF
            if len(self._buffer) < 8 + length:
                break
            body = bytes(self._buffer[8 : 8 + length])
            del self._buffer[: 8 + length]
            self._handle(first, rest >> 24, body)
        self._change.set()
        self._change = asyncio.Event()

    def _handle(self, first: int, flags: int, body: bytes) -> None:
        if not first >> 31:
            self.received[first] += body
            if flags & FIN:
                self.ended.add(first)
        elif first & 0xFFFF == SYN_REPLY:
            self.replied.add(struct.unpack_from("!I", body)[0])
        elif first & 0xFFFF == RST_STREAM:
            number, status = struct.unpack("!II", body)
            self.reset_status[number] = status

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until ``holds`` is true after a message of the server."""
        async with asyncio.timeout(60):
            while not holds():
                await self._change.wait()
