"""Pipe and terminal ends for the event loop, closed exactly once by any loop implementation."""

import asyncio
import os


class Pipe:
    """A descriptor for ``connect_read_pipe`` and ``connect_write_pipe``. The transport owns it from then on.

    uvloop closes the given object and then the descriptor. With a file object that would close the descriptor twice, when
    another thread may already reuse its number.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._is_ours = not type(asyncio.get_running_loop()).__module__.startswith("uvloop")

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        if self._is_ours:
            self._is_ours = False
            os.close(self._descriptor)
