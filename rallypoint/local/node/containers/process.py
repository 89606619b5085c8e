"""Processes in groups of their own: started, signalled as one, reaped, and their output handed on.

What runs, with which environment and where, is a ``Launch``; who decides about it is ``pod``.
"""

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import PIPE
from asyncio.subprocess import Process as Child
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from typing_extensions import override

from rallypoint.local.node.containers import guard
from rallypoint.local.node.containers.program import find_program, not_executed
from rallypoint.local.node.streams.pipes import Pipe
from rallypoint.local.node.volumes.setup import Mount

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
    mounts: Sequence[Mount] = ()
    image: Path | None = None
    """A folder that is its root, where it is not the machine's own."""


@dataclass(frozen=True, slots=True)
class Streams:
    """Descriptors that a process gets copies of as its standard input, output and error."""

    stdin: int
    stdout: int
    stderr: int
    terminal: bool = False
    """Whether standard input is a terminal that is to control the process."""


class Process(Protocol):
    """What runs in a container: a process group, or something that the node does in its place."""

    async def wait(self) -> int:
        """The exit code, 128 + n after signal n, once nothing of it runs any more. Cancelled, it kills first."""
        ...

    def send(self, number: signal.Signals) -> None: ...


class GuardClient:
    """Our end of ``guard``: told of each process group."""

    def __init__(self, node: str, child: Child) -> None:
        self.node = node
        self._child = child

    @classmethod
    async def start(cls, node: str, folder: Path) -> Self:
        """Start it; it removes ``folder`` at the end."""
        env = {name: value for name, value in os.environ.items() if name != guard.MARK}
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", str(Path(guard.__file__)), node, str(folder)),
            stdin=PIPE,
            env=env,
            start_new_session=True,
        )
        return cls(node, child)

    def began(self, group: int) -> None:
        self._send(f"+{group}\n")

    def ended(self, group: int) -> None:
        self._send(f"-{group}\n")

    async def stop(self) -> None:
        """Let it end what is left, and wait until it has."""
        if self._child.stdin is not None:
            with contextlib.suppress(ConnectionError):
                self._child.stdin.close()
                await self._child.stdin.wait_closed()
        await self._child.wait()

    def _send(self, line: str) -> None:
        if self._child.stdin is not None and not self._child.stdin.is_closing():
            self._child.stdin.write(line.encode())


class _Exit(asyncio.SubprocessProtocol):
    """Notes the end of a process."""

    def __init__(self) -> None:
        self.exited = asyncio.Event()

    @override
    def process_exited(self) -> None:
        self.exited.set()


class ProcessGroup:
    """A process and everything in its group; the group ends with its first process, as a container does.

    A guest's does not: what it leaves behind is the container's.
    """

    def __init__(
        self, transport: asyncio.SubprocessTransport, end: _Exit, watch: GuardClient, *, is_exec: bool
    ) -> None:
        self.pid = transport.get_pid()
        self._is_exec = is_exec
        self._transport = transport
        self._end = end
        self._guard = watch

    @classmethod
    async def start(
        cls, launch: Launch, watch: GuardClient, streams: Streams, *, is_exec: bool = False
    ) -> Self:
        """Start it.

        Raises:
            CannotStart: there is no such program or folder, or it may not be run.
        """
        program = find_program(launch.argv[0], launch.folder, launch.env.get("PATH", os.defpath))
        argv = [program, *launch.argv[1:]]
        try:
            transport, end = await asyncio.get_running_loop().subprocess_exec(
                _Exit,
                *(_with_terminal(argv) if streams.terminal else argv),
                stdin=streams.stdin,
                stdout=streams.stdout,
                stderr=streams.stderr,
                env={**launch.env, guard.MARK: watch.node},
                cwd=launch.folder,
                start_new_session=True,
            )
        except OSError as error:
            raise not_executed(launch.argv[0], error) from error
        watch.began(transport.get_pid())
        return cls(transport, end, watch, is_exec=is_exec)

    async def wait(self) -> int:
        """The exit code; when this is cancelled, the group is killed first."""
        try:
            await self._end.exited.wait()
        finally:
            if not (self._is_exec and self._end.exited.is_set()):
                guard.kill_group(self.pid)
            await self._end.exited.wait()
            self._transport.close()
            self._guard.ended(self.pid)
        code = self._transport.get_returncode() or 0
        return code if code >= 0 else 128 - code

    def send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)


def _with_terminal(argv: Sequence[str]) -> list[str]:
    """``argv`` run by a session leader that has taken its standard input for its terminal."""
    take = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
    return [sys.executable, "-I", "-c", take, *argv]


class _Output(asyncio.Protocol):
    """Hands output on and notes its end."""

    def __init__(self, output: Callable[[bytes], None]) -> None:
        self._output = output
        self.closed = asyncio.Event()

    @override
    def data_received(self, data: bytes) -> None:
        self._output(data)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()


class CapturedProcess:
    """A process without input, whose output is handed on; a ``Process`` that lasts until all of it has been."""

    def __init__(self, process: Process, transport: asyncio.BaseTransport, reader: _Output) -> None:
        self._process = process
        self._transport = transport
        self._reader = reader

    @classmethod
    async def start(
        cls, start: Callable[[Streams], Awaitable[Process]], output: Callable[[bytes], None]
    ) -> Self:
        """Have ``start`` start it; ``output`` gets what it writes to either stream."""
        read, write = os.pipe()
        devnull = os.open(os.devnull, os.O_RDONLY)
        transport, reader = await asyncio.get_running_loop().connect_read_pipe(
            lambda: _Output(output), Pipe(read)
        )
        try:
            return cls(await start(Streams(devnull, write, write)), transport, reader)
        except BaseException:
            transport.close()
            raise
        finally:
            os.close(write)
            os.close(devnull)

    async def wait(self) -> int:
        try:
            return await self._process.wait()
        finally:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_SECONDS):
                    await self._reader.closed.wait()
            self._transport.close()

    def send(self, number: signal.Signals) -> None:
        self._process.send(number)
