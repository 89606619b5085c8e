"""The streams of an exec process: three pipes or a terminal."""

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
"""The end of input on a terminal."""


class _FlowControl(asyncio.BaseProtocol):
    """Tracks whether the pipe accepts writes."""

    def __init__(self) -> None:
        self.writable = asyncio.Event()
        self.writable.set()

    @override
    def pause_writing(self) -> None:
        self.writable.clear()

    @override
    def resume_writing(self) -> None:
        self.writable.set()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.writable.set()


class Stdio:
    """The node's ends of the streams, and the process's ends in ``process_streams``.

    Call ``close_process_ends`` after the process has started; then the streams end with the process.
    """

    def __init__(self, *, terminal: bool) -> None:
        if terminal:
            node_end, process_end = pty.openpty()
            self.process_streams = Streams(process_end, process_end, process_end, terminal=True)
            self._node_ends = [os.dup(node_end), node_end]
        else:
            (stdin, to), (out, stdout), (err, stderr) = (os.pipe() for _ in range(3))
            self.process_streams = Streams(stdin, stdout, stderr)
            self._node_ends = [to, out, err]
        self._process_ends = {
            self.process_streams.stdin,
            self.process_streams.stdout,
            self.process_streams.stderr,
        }
        self._flow = _FlowControl()
        self._writer: asyncio.WriteTransport | None = None
        self._transports: list[asyncio.BaseTransport] = []
        self._used: set[int] = set()

    def close_process_ends(self) -> None:
        while self._process_ends:
            os.close(self._process_ends.pop())

    async def write(self, data: bytes) -> None:
        """Write to standard input; wait while the process does not read. Discard the data if the process has closed it."""
        if self._writer is None:
            loop, pipe = asyncio.get_running_loop(), Pipe(self._transfer(0))
            self._writer, _ = await loop.connect_write_pipe(lambda: self._flow, pipe)
            self._transports.append(self._writer)
        await self._flow.writable.wait()
        if data and not self._writer.is_closing():
            self._writer.write(data)

    async def end_input(self) -> None:
        """Signal the end of standard input."""
        await self.write(END_OF_INPUT if self.process_streams.terminal else b"")
        if not self.process_streams.terminal and self._writer is not None:
            self._writer.close()

    async def output(self, number: int) -> AsyncIterator[bytes]:
        """Yield the data of standard output (1) or error (2) until it is closed. A terminal has only standard output."""
        if number >= len(self._node_ends):
            return
        reader = asyncio.StreamReader(limit=CHUNK_BYTES)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), Pipe(self._transfer(number))
        )
        self._transports.append(transport)
        with contextlib.suppress(OSError):  # A terminal raises it after its last user closes it.
            while data := await reader.read(CHUNK_BYTES):
                yield data

    def resize(self, columns: int, rows: int) -> None:
        if self.process_streams.terminal and 1 in self._used:
            fcntl.ioctl(self._node_ends[1], termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def close(self) -> None:
        self.close_process_ends()
        for transport in self._transports:
            transport.close()
        for number, descriptor in enumerate(self._node_ends):
            if number not in self._used:
                os.close(descriptor)

    def _transfer(self, number: int) -> int:
        """Transfer a descriptor to its transport, which closes it."""
        self._used.add(number)
        return self._node_ends[number]
