"""Executes the commands of the tools in ``tools``. All pods share one socket; each connection is one command.

The tool sends its streams as descriptors, which the command inherits. If the tool disconnects first, the command gets
SIGHUP.
"""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import structlog

from rallypoint.local.manifest import Manifest
from rallypoint.local.node.containers.process import Process, Streams
from rallypoint.local.node.containers.program import CannotStart
from rallypoint.local.node.network.dns import PodNetwork
from rallypoint.local.node.remote.command_line import (
    FAILURE_EXIT_CODES,
    PARSERS,
    Call,
    UnsupportedCommandLine,
)
from rallypoint.local.node.remote.shim import LENGTH_BYTES, PIECE_BYTES, SOCKET
from rallypoint.local.node.remote.target import (
    CommandNotStarted,
    ContainerNotRunning,
    PodNotFound,
    Unreachable,
    error_message,
    find,
)
from rallypoint.local.node.streams.exec_endpoint import Enter, NotRunning

log = structlog.get_logger()

STREAMS = 3
BACKLOG = 1024
RETRY_SECONDS = 1.0
"""The delay between two attempts, as in ssh."""
POLL_SECONDS = 0.01
POLLS = 200
"""After two seconds the caller's phase no longer matters: the caller may be an init container."""
HANG_UP_SECONDS = 2.0
"""The time for a command to end after its tool disconnects, before it is killed."""

HANG_UP_EXIT_CODE = 128 + signal.SIGHUP


class ExecServer:
    def __init__(self, folder: Path, network: PodNetwork, enter: Enter) -> None:
        """``enter`` must not rewrite the command."""
        self._network = network
        self._enter = enter
        self._listener = _listen(folder)

    async def run(self) -> None:
        """Serve until canceled. All commands have ended when this returns."""
        loop = asyncio.get_running_loop()
        with self._listener:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    connection, _ = await loop.sock_accept(self._listener)
                    tasks.create_task(self._serve_safely(connection))

    async def _serve_safely(self, connection: socket.socket) -> None:
        """Serve a connection; whatever a program of a pod sends must not end the node."""
        try:
            await self._serve(connection)
        except Exception:
            log.exception("command in another pod failed")

    async def _serve(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        with connection, contextlib.suppress(OSError, EOFError), ExitStack() as stack:
            words, streams = await _receive(connection, stack)
            disconnected = asyncio.create_task(_disconnected(connection))
            try:
                code, message = await self._answer(words, streams, stack, disconnected)
            finally:
                disconnected.cancel()
                await asyncio.wait([disconnected])
            await asyncio.get_running_loop().sock_sendall(connection, f"{code}\n{message}".encode())

    async def _answer(
        self, words: Sequence[str], streams: Streams, stack: ExitStack, disconnected: "asyncio.Task[None]"
    ) -> tuple[int, str]:
        """Return the exit status and the message of the tool."""
        uid, tool, *arguments = words
        try:
            call = PARSERS[tool](arguments)
        except UnsupportedCommandLine as error:
            return FAILURE_EXIT_CODES[tool], f"{error}\n"
        try:
            process = await self._start_with_retries(uid, call, streams, disconnected)
        except Unreachable as error:
            return FAILURE_EXIT_CODES[tool], f"{error_message(tool, call, error)}\n"
        stack.close()  # Only the command holds the streams now, so their readers see its end.
        code = await _wait(process, disconnected)
        return code, f"command terminated with exit code {code}\n" if tool == "kubectl" and code else ""

    async def _start_with_retries(
        self, uid: str, call: Call, streams: Streams, disconnected: "asyncio.Task[None]"
    ) -> Process:
        """Start the command, with retries.

        Raises:
            Unreachable: all attempts failed, or the tool disconnected.
        """
        for left in reversed(range(call.attempts)):
            try:
                return await self._start(uid, call, streams)
            except Unreachable as error:
                if not left or not error.is_transient:
                    raise
                await asyncio.wait([disconnected], timeout=RETRY_SECONDS)
                if disconnected.done():
                    raise
        raise PodNotFound

    async def _start(self, uid: str, call: Call, streams: Streams) -> Process:
        caller = await self._caller(uid)
        found = find(self._network, caller, call)
        with ExitStack() as stack:
            if not call.has_input:
                devnull = os.open(os.devnull, os.O_RDONLY)
                stack.callback(os.close, devnull)
                streams = replace(streams, stdin=devnull)
            try:
                return await self._enter(found.pod, found.container, call.command, streams)
            except NotRunning as error:
                raise ContainerNotRunning from error
            except CannotStart as error:
                raise CommandNotStarted(error) from error

    async def _caller(self, uid: str) -> Manifest:
        """Return the pod of the tool. Wait until it is Running, because the processes that it starts resolve its name.

        Raises:
            PodNotFound: the pod no longer exists.
        """
        for left in reversed(range(POLLS)):
            pods = self._network.pods.values()
            caller = next((pod for pod in pods if pod["metadata"]["uid"] == uid), None)
            if caller is None:
                break
            if not left or (caller.get("status") or {}).get("phase") == "Running":
                return caller
            await asyncio.sleep(POLL_SECONDS)
        raise PodNotFound


def _listen(folder: Path) -> socket.socket:
    """Listen on a socket in ``folder`` that only this user can use."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.open(".", os.O_RDONLY)
    try:
        # No await here. Bind from inside the folder: the path of a socket is limited to about 100 bytes.
        os.chdir(folder)
        listener.bind(SOCKET)
        Path(SOCKET).chmod(0o600)
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    finally:
        os.fchdir(before)
        os.close(before)
    listener.setblocking(False)
    return listener


async def _receive(connection: socket.socket, stack: ExitStack) -> tuple[Sequence[str], Streams]:
    """Receive the arguments and the streams of a tool; ``stack`` closes the streams.

    Raises:
        EOFError: the message is incomplete.
    """
    await _readable(connection)
    data, descriptors, _, _ = socket.recv_fds(connection, PIECE_BYTES, STREAMS)
    for descriptor in descriptors:
        stack.callback(os.close, descriptor)
    if len(descriptors) != STREAMS or len(data) < LENGTH_BYTES:
        raise EOFError
    rest = LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "big") - len(data)
    while rest > 0:
        piece = await asyncio.get_running_loop().sock_recv(connection, min(rest, PIECE_BYTES))
        if not piece:
            raise EOFError
        data, rest = data + piece, rest - len(piece)
    stdin, stdout, stderr = descriptors
    return [os.fsdecode(word) for word in data[LENGTH_BYTES:].split(b"\0")], Streams(stdin, stdout, stderr)


async def _readable(connection: socket.socket) -> None:
    """Wait until the connection is readable. The event loop cannot receive descriptors itself."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(connection.fileno(), readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(connection.fileno())


async def _disconnected(connection: socket.socket) -> None:
    """Wait until the tool disconnects. It sends nothing more."""
    with contextlib.suppress(OSError):
        await asyncio.get_running_loop().sock_recv(connection, 1)


async def _wait(process: Process, disconnected: "asyncio.Task[None]") -> int:
    """Return the exit code after the command ends by itself or because its tool disconnected."""
    ended = asyncio.create_task(process.wait())
    try:
        await asyncio.wait((ended, disconnected), return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():
            process.send(signal.SIGHUP)
            await asyncio.wait([ended], timeout=HANG_UP_SECONDS)
        return ended.result() if ended.done() else HANG_UP_EXIT_CODE
    finally:
        ended.cancel()
        await asyncio.gather(ended, return_exceptions=True)
