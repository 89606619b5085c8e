"""Processes in groups of their own: started, signalled as one, reaped, and their output handed on.

What runs, with which environment and where, is a ``Launch``; who decides about it is ``pod``.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from asyncio.subprocess import Process as Child
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from typing_extensions import override

from controller.local.node import guard

DRAIN_SECONDS = 2.0
"""How long output is awaited after the process has ended; only a process that left the group can hold it open."""
START_ERROR = 128
"""The exit code of a container that could not be started."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One process to start."""

    argv: Sequence[str]
    env: Mapping[str, str]
    folder: str
    """The working directory."""


class CannotStart(Exception):
    """The process does not begin. The text is what a container runtime says."""


class Process(Protocol):
    """What runs in a container: a process group, or something that the node does in its place."""

    async def wait(self) -> int:
        """The exit code, 128 + n after signal n, once nothing of it runs any more. Cancelled, it kills first."""
        ...

    def send(self, number: signal.Signals) -> None: ...


class Guard:
    """Our end of ``guard``: told of each process group."""

    def __init__(self, node: str, child: Child) -> None:
        self.node = node
        self._child = child

    @classmethod
    async def start(cls, node: str) -> Self:
        env = {name: value for name, value in os.environ.items() if name != guard.MARK}
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-I", str(Path(guard.__file__)), node, stdin=PIPE, env=env, start_new_session=True
        )
        return cls(node, child)

    def began(self, group: int) -> None:
        self._tell(f"+{group}\n")

    def ended(self, group: int) -> None:
        self._tell(f"-{group}\n")

    async def stop(self) -> None:
        """Let it end what is left, and wait until it has."""
        if self._child.stdin is not None:
            with contextlib.suppress(ConnectionError):
                self._child.stdin.close()
                await self._child.stdin.wait_closed()
        await self._child.wait()

    def _tell(self, line: str) -> None:
        if self._child.stdin is not None and not self._child.stdin.is_closing():
            self._child.stdin.write(line.encode())


class _Ends(asyncio.SubprocessProtocol):
    """Hands output on and notes the two ends of a process: its own, and that of its output."""

    def __init__(self, output: Callable[[bytes], None]) -> None:
        self._output = output
        self.exited = asyncio.Event()
        self.silent = asyncio.Event()

    @override
    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._output(data)

    @override
    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self.silent.set()

    @override
    def process_exited(self) -> None:
        self.exited.set()


class Group:
    """A process and everything in its group; the group ends with its first process, as a container does."""

    def __init__(self, transport: asyncio.SubprocessTransport, ends: _Ends, watch: Guard) -> None:
        self.pid = transport.get_pid()
        self._transport = transport
        self._ends = ends
        self._guard = watch

    @classmethod
    async def start(cls, launch: Launch, watch: Guard, output: Callable[[bytes], None]) -> Self:
        """Start it; ``output`` gets what it writes to either stream.

        Raises:
            CannotStart: there is no such program or folder, or it may not be run.
        """
        program = find_program(launch)
        try:
            transport, ends = await asyncio.get_running_loop().subprocess_exec(
                lambda: _Ends(output),
                program,
                *launch.argv[1:],
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=STDOUT,
                env={**launch.env, guard.MARK: watch.node},
                cwd=launch.folder,
                start_new_session=True,
            )
        except OSError as error:
            raise CannotStart(
                f'exec: "{launch.argv[0]}": {(error.strerror or str(error)).lower()}'
            ) from error
        watch.began(transport.get_pid())
        return cls(transport, ends, watch)

    async def wait(self) -> int:
        """The exit code; when this is cancelled, the group is killed first."""
        try:
            await self._ends.exited.wait()
        finally:
            guard.kill_group(self.pid)
            await self._ends.exited.wait()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_SECONDS):
                    await self._ends.silent.wait()
            self._transport.close()
            self._guard.ended(self.pid)
        code = self._transport.get_returncode() or 0
        return code if code >= 0 else 128 - code

    def send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)


def find_program(launch: Launch) -> str:
    """The absolute path of the program, found as execvp finds it with the container's PATH.

    Raises:
        CannotStart: it or the working directory does not exist.
    """
    name = launch.argv[0]
    if not Path(launch.folder).is_dir():
        raise CannotStart(f'chdir to cwd ("{launch.folder}"): no such file or directory')
    if "/" not in name:
        found = shutil.which(name, path=launch.env.get("PATH", os.defpath))
        if found is None:
            raise CannotStart(f'exec: "{name}": executable file not found in $PATH')
        return os.path.join(launch.folder, found)  # noqa: PTH118 - an entry of PATH may be relative
    path = Path(launch.folder, name)
    if not path.exists():
        raise CannotStart(f'exec: "{name}": stat {name}: no such file or directory')
    if path.is_dir() or not os.access(path, os.X_OK):
        raise CannotStart(f'exec: "{name}": permission denied')
    return str(path)
