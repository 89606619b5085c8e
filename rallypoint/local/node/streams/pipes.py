"""Ends of pipes and terminals as the event loop takes them: closed once, by whichever loop it is."""

import asyncio
import os


class Pipe:
    """A descriptor for ``connect_read_pipe`` and ``connect_write_pipe``, which is the transport's from then on.

    uvloop closes the object that it is given and then the descriptor once more. With a plain file that is a second time,
    when another thread may already have been given the number for something else.
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
