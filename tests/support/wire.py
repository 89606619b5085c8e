"""The transport of an HTTP connection in memory: a test reads what is written and plays the server."""

import asyncio
import itertools
from collections.abc import Iterable

from typing_extensions import override

from controller.kube.http1 import HttpConnection


class Wire(asyncio.Transport):
    """What ``connection`` writes to. As with real transports, a closed one tells its protocol in the next turn of the event loop."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.unsent_bytes = 0
        """What the kernel has not taken yet."""
        self.is_closed = False
        self.connection = HttpConnection()
        self.connection.connection_made(self)

    def answer(self, data: bytes, cuts: Iterable[int] = ()) -> None:
        """Send bytes to the client, cut at these positions, until the connection is closed."""
        positions = sorted({0, len(data), *cuts})
        for start, end in itertools.pairwise(positions):
            if self.is_closed:
                return
            self.connection.data_received(data[start:end])

    def end(self) -> None:
        """Send no more bytes."""
        if not self.is_closed:
            self.connection.eof_received()

    def reset(self) -> None:
        """Break the connection."""
        self._close(ConnectionResetError("reset"))

    @override
    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.is_closed
        self.writes.append(bytes(data))

    @override
    def abort(self) -> None:
        self._close(None)

    @override
    def is_closing(self) -> bool:
        return self.is_closed

    @override
    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def _close(self, error: Exception | None) -> None:
        if not self.is_closed:
            self.is_closed = True
            asyncio.get_running_loop().call_soon(self.connection.connection_lost, error)
