"""Starts processes in their own process groups, signals and reaps them, and forwards their output."""

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

import psutil
import structlog
from typing_extensions import override

from rallypoint.local.node.containers import guard
from rallypoint.local.node.containers.program import find_program, not_executed
from rallypoint.local.node.volumes.setup import Mount

log = structlog.get_logger()

DRAIN_SECONDS = 2.0
"""The time to wait for output after the process ends. Only a process that left the group can keep the pipe open."""
START_ERROR = 128
"""The exit code of a container that cannot start."""


@dataclass(frozen=True, slots=True)
class Launch:
    argv: Sequence[str]
    env: Mapping[str, str]
    folder: str
    """The working directory."""
    mounts: Sequence[Mount] = ()
    image: Path | None = None
    """The root folder of the process if it is not the machine's."""


@dataclass(frozen=True, slots=True)
class Streams:
    """Descriptors of a process's standard input, output and error. The process gets copies."""

    stdin: int
    stdout: int
    stderr: int
    terminal: bool = False
    """Whether standard input becomes the controlling terminal of the process."""


class Process(Protocol):
    """The process of a container: a process group, or a task of the node that replaces it."""

    async def wait(self) -> int:
        """Return the exit code, 128 + n after signal n, after all of it has ended. Kill it first if canceled."""
        ...

    def send(self, number: signal.Signals) -> None: ...


def pod_of(process: psutil.Process) -> str:
    """Return the UID of the pod that the environment of a process names, in a sandbox too; empty if there is none.

    MPI's daemons give their ranks the launcher's environment.
    """
    try:
        return process.environ().get(guard.POD, "")
    except (psutil.Error, OSError):
        return ""


class GuardClient:
    """The client of ``guard``: reports each process group to it."""

    def __init__(self, node: str, child: Child) -> None:
        self.node = node
        self._child = child

    @classmethod
    async def start(cls, node: str, folder: Path) -> Self:
        """Start the guard. It removes ``folder`` when it ends."""
        env = {name: value for name, value in os.environ.items() if name != guard.MARK}
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", str(Path(guard.__file__)), node, str(folder)),
            stdin=PIPE,
            env=env,
            start_new_session=True,
        )
        return cls(node, child)

    def add_group(self, group: int) -> None:
        self._send(f"+{group}\n")

    def remove_group(self, group: int) -> None:
        self._send(f"-{group}\n")

    async def stop(self) -> None:
        """Let the guard kill the remaining processes, and wait until it ends."""
        if self._child.stdin is not None:
            with contextlib.suppress(ConnectionError):
                self._child.stdin.close()
                await self._child.stdin.wait_closed()
        await self._child.wait()

    def _send(self, line: str) -> None:
        if self._child.stdin is not None and not self._child.stdin.is_closing():
            self._child.stdin.write(line.encode())


class ProcessGroup:
    """A process and its group. The group ends with its first process, as a container does.

    With ``is_exec`` the rest of the group stays: it is part of the container.
    """

    def __init__(self, child: Child, watch: GuardClient, *, is_exec: bool) -> None:
        self.pid = child.pid
        self._child = child
        self._is_exec = is_exec
        self._guard = watch

    @classmethod
    async def start(
        cls, launch: Launch, watch: GuardClient, streams: Streams, *, is_exec: bool = False
    ) -> Self:
        """Start the process.

        Raises:
            CannotStart: the program or the folder does not exist or is not accessible.
        """
        program = find_program(launch.argv[0], launch.folder, launch.env.get("PATH", os.defpath))
        argv = [program, *launch.argv[1:]]
        try:
            child = await asyncio.create_subprocess_exec(
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
        watch.add_group(child.pid)
        return cls(child, watch, is_exec=is_exec)

    async def wait(self) -> int:
        """Return the exit code. If canceled, kill the group first."""
        try:
            code = await self._child.wait()
        finally:
            if not (self._is_exec and self._child.returncode is not None):
                guard.kill_group(self.pid)
            await self._child.wait()
            self._guard.remove_group(self.pid)
        return code if code >= 0 else 128 - code

    def send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)


def _with_terminal(argv: Sequence[str]) -> list[str]:
    """Return a command that makes standard input its controlling terminal and executes ``argv``."""
    take = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
    return [sys.executable, "-I", "-c", take, *argv]


class _Output(asyncio.Protocol):
    """Forwards output and sets an event at its end."""

    def __init__(self, output: Callable[[bytes], None]) -> None:
        self._output = output
        self._has_failed = False
        self.closed = asyncio.Event()

    @override
    def data_received(self, data: bytes) -> None:
        try:
            self._output(data)
        except Exception:  # uvloop would close the pipe, and the process would fail.
            if not self._has_failed:
                log.exception("output of a container is lost")
            self._has_failed = True

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()


class CapturedProcess:
    """A ``Process`` without input whose output is forwarded. ``wait`` returns after all output."""

    def __init__(self, process: Process, transport: asyncio.BaseTransport, reader: _Output) -> None:
        self._process = process
        self._transport = transport
        self._reader = reader

    @classmethod
    async def start(
        cls, start: Callable[[Streams], Awaitable[Process]], output: Callable[[bytes], None]
    ) -> Self:
        """Call ``start`` to start the process. ``output`` gets the data of both streams."""
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


class Pipe:
    """A descriptor for ``connect_read_pipe`` and ``connect_write_pipe``. The transport owns it from then on.

    uvloop closes the given object and then the descriptor. A file object would close the descriptor twice, when another
    thread may already reuse its number.
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
