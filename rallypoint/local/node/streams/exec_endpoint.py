"""``GET …/pods/NAME/exec`` over WebSockets, which the API server passes to the node.

Each message starts with the number of its channel. Source: Kubernetes, apimachinery pkg/util/remotecommand
(constants.go), kubelet pkg/kubelet/cri/streaming/remotecommand (websocket.go, exec.go).
"""

import asyncio
import contextlib
import fcntl
import os
import pty
import struct
import termios
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

import orjson
from aiohttp import WSMessage, WSMsgType, web
from typing_extensions import override

from rallypoint.local.apiserver.apimachinery import errors
from rallypoint.local.apiserver.apimachinery.errors import StatusError
from rallypoint.local.apiserver.apimachinery.unstructured import Json
from rallypoint.local.manifest import Manifest
from rallypoint.local.node.containers.process import Pipe, Process, Streams
from rallypoint.local.node.containers.program import CannotStart
from rallypoint.local.node.streams.log_endpoint import container_of, flag

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
"""The newer protocol can signal the end of standard input."""
STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
PING_SECONDS = 30.0
DRAIN_SECONDS = 2.0
"""The time to wait for output after the process ends. Only a process that left its group can keep the pipe open."""

Enter: TypeAlias = Callable[[Manifest, str, Sequence[str], Streams], Awaitable[Process]]
"""Starts a command in a container of a pod. Raises CannotStart, or NotRunning if the container does not run."""

CHUNK_BYTES = 32 * 1024
END_OF_INPUT = b"\x04"
"""The end of input on a terminal."""


class NotRunning(Exception):
    """The container has no running process."""


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
        """Write to standard input; wait while the process does not read. Discard the data if it has closed its end."""
        if self._writer is None:
            loop, pipe = asyncio.get_running_loop(), Pipe(self._transfer(0))
            self._writer, _ = await loop.connect_write_pipe(lambda: self._flow, pipe)
            self._transports.append(self._writer)
        await self._flow.writable.wait()
        if data and not self._writer.is_closing():
            self._writer.write(data)

    async def end_input(self) -> None:
        await self.write(END_OF_INPUT if self.process_streams.terminal else b"")
        if not self.process_streams.terminal and self._writer is not None:
            self._writer.close()

    async def output(self, number: int) -> AsyncIterator[bytes]:
        """Yield the data of standard output (1) or error (2) until its end. A terminal has only standard output."""
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


async def answer(enter: Enter, request: web.Request, pod: Mapping[str, Any]) -> web.StreamResponse:
    """Run the command of the query and relay its streams.

    Raises:
        StatusError: the query has no valid container or no command, the container does not run, or the request is no
            WebSocket handshake.
    """
    query = request.query
    command = query.getall("command", [])
    try:
        container = container_of(pod, query.get("container", ""))
    except ValueError as error:
        raise errors.bad_request(str(error)) from error
    if not command:
        raise errors.bad_request("you must specify a command for the container")
    socket = web.WebSocketResponse(protocols=PROTOCOLS, heartbeat=PING_SECONDS)
    if not socket.can_prepare(request):
        raise errors.bad_request("Upgrade request required")
    stdio = Stdio(terminal=flag(query, "tty"))
    try:
        try:
            process = await enter(pod, container, command, stdio.process_streams)
        except NotRunning as error:
            raise StatusError(404, "NotFound", f'container not found ("{container}")') from error
        except CannotStart as error:
            await socket.prepare(request)
            await _close(socket, _internal(f"error executing command in container: {error}"))
            return socket
        stdio.close_process_ends()
        requested = {name: flag(query, name) for name in ("stdin", "stdout", "stderr")}
        await socket.prepare(request)
        await _stream(socket, process, stdio, requested)
    finally:
        stdio.close()
    return socket


async def _stream(
    socket: web.WebSocketResponse, process: Process, stdio: Stdio, requested: Mapping[str, bool]
) -> None:
    """Relay until the process ends or the client disconnects, which kills the process."""
    outputs = [
        asyncio.create_task(_forward_output(socket, stdio, number, is_requested=requested[name]))
        for number, name in ((STDOUT, "stdout"), (STDERR, "stderr"))
    ]
    receiving = asyncio.create_task(_receive(socket, stdio, is_requested=requested["stdin"]))
    ended = asyncio.create_task(process.wait())
    try:
        await asyncio.wait((receiving, ended), return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            await asyncio.wait(outputs, timeout=DRAIN_SECONDS)
            await _close(socket, _status(ended.result()))
    finally:
        for task in (receiving, ended, *outputs):
            task.cancel()
        await asyncio.gather(receiving, ended, *outputs, return_exceptions=True)


async def _forward_output(
    socket: web.WebSocketResponse, stdio: Stdio, number: int, *, is_requested: bool
) -> None:
    async for data in stdio.output(number):
        if is_requested and not socket.closed:
            await socket.send_bytes(bytes((number,)) + data)


async def _receive(socket: web.WebSocketResponse, stdio: Stdio, *, is_requested: bool) -> None:
    """Forward input until the client disconnects. Without a receiver, the disconnect would go unnoticed."""
    if not is_requested:
        await stdio.end_input()
    async for message in socket:
        channel, data = _split_message(message)
        if channel == STDIN and is_requested:
            await stdio.write(data)
        elif channel == RESIZE:
            with contextlib.suppress(orjson.JSONDecodeError, KeyError, TypeError):
                size = orjson.loads(data)
                stdio.resize(size["Width"], size["Height"])
        elif channel == CLOSE and data == bytes((STDIN,)):
            await stdio.end_input()


def _split_message(message: WSMessage) -> tuple[int, bytes]:
    data: Any = message.data
    if message.type is WSMsgType.TEXT:
        data = str(data).encode()
    return (data[0], data[1:]) if data else (STDIN, b"")


async def _close(socket: web.WebSocketResponse, status: Json) -> None:
    if not socket.closed:
        with contextlib.suppress(ConnectionError):
            await socket.send_bytes(bytes((ERROR,)) + orjson.dumps(status))
            await socket.close()


def _status(code: int) -> Json:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: command terminated with exit code {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


def _internal(message: str) -> Json:
    cause = {"message": message}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"Internal error occurred: {message}",
        "reason": "InternalError",
        "details": {"causes": [cause]},
        "code": 500,
    }
