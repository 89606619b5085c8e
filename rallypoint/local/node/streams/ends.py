"""Our ends of the streams of a process that somebody talks to: three pipes, or a terminal."""

import asyncio
import contextlib
import fcntl
import os
import pty
import struct
import termios
from collections.abc import AsyncIterator

from typing_extensions import override

from rallypoint.local.node.containers.process import Streams
from rallypoint.local.node.streams.pipes import Pipe

CHUNK_BYTES = 32 * 1024
END_OF_INPUT = b"\x04"
"""How a terminal is told."""


class _Flow(asyncio.BaseProtocol):
    """Knows whether what is written is taken."""

    def __init__(self) -> None:
        self.free = asyncio.Event()
        self.free.set()

    @override
    def pause_writing(self) -> None:
        self.free.clear()

    @override
    def resume_writing(self) -> None:
        self.free.set()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.free.set()


class Ends:
    """``its`` are for the process, which has begun when ``begun`` is called; from then on the streams end with it."""

    def __init__(self, *, terminal: bool) -> None:
        if terminal:
            ours, theirs = pty.openpty()
            self.its = Streams(theirs, theirs, theirs, terminal=True)
            self._ours = [os.dup(ours), ours]
        else:
            (stdin, to), (out, stdout), (err, stderr) = (os.pipe() for _ in range(3))
            self.its = Streams(stdin, stdout, stderr)
            self._ours = [to, out, err]
        self._theirs = {self.its.stdin, self.its.stdout, self.its.stderr}
        self._flow = _Flow()
        self._writer: asyncio.WriteTransport | None = None
        self._transports: list[asyncio.BaseTransport] = []
        self._used: set[int] = set()

    def begun(self) -> None:
        while self._theirs:
            os.close(self._theirs.pop())

    async def write(self, data: bytes) -> None:
        """To its standard input; waits while it does not read. Lost when it has closed it."""
        if self._writer is None:
            loop, pipe = asyncio.get_running_loop(), Pipe(self._take(0))
            self._writer, _ = await loop.connect_write_pipe(lambda: self._flow, pipe)
            self._transports.append(self._writer)
        await self._flow.free.wait()
        if data and not self._writer.is_closing():
            self._writer.write(data)

    async def end_input(self) -> None:
        """Its standard input is at its end."""
        await self.write(END_OF_INPUT if self.its.terminal else b"")
        if not self.its.terminal and self._writer is not None:
            self._writer.close()

    async def output(self, number: int) -> AsyncIterator[bytes]:
        """What it writes to its standard output (1) or error (2), until it is closed. A terminal has only the first."""
        if number >= len(self._ours):
            return
        reader = asyncio.StreamReader(limit=CHUNK_BYTES)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), Pipe(self._take(number))
        )
        self._transports.append(transport)
        with contextlib.suppress(OSError):  # how a terminal says that nobody has it open any more
            while data := await reader.read(CHUNK_BYTES):
                yield data

    def resize(self, columns: int, rows: int) -> None:
        if self.its.terminal and 1 in self._used:
            fcntl.ioctl(self._ours[1], termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def close(self) -> None:
        self.begun()
        for transport in self._transports:
            transport.close()
        for number, descriptor in enumerate(self._ours):
            if number not in self._used:
                os.close(descriptor)

    def _take(self, number: int) -> int:
        """A descriptor that its transport closes from now on."""
        self._used.add(number)
        return self._ours[number]
