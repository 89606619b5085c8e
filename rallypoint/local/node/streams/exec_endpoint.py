"""``GET …/pods/NAME/exec`` over WebSockets, which the API server passes to the node.

Each message starts with the number of its channel. Source: Kubernetes, apimachinery pkg/util/remotecommand
(constants.go), kubelet pkg/kubelet/cri/streaming/remotecommand (websocket.go, exec.go).
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

import orjson
from aiohttp import WSMessage, WSMsgType, web

from rallypoint.local.apiserver.apimachinery import errors
from rallypoint.local.apiserver.apimachinery.errors import StatusError
from rallypoint.local.apiserver.apimachinery.unstructured import Json
from rallypoint.local.manifest import Manifest
from rallypoint.local.node.containers.process import Process, Streams
from rallypoint.local.node.containers.program import CannotStart
from rallypoint.local.node.streams.log_endpoint import container_of, flag
from rallypoint.local.node.streams.stdio import Stdio

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
"""The newer protocol can signal the end of standard input."""
STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
PING_SECONDS = 30.0
DRAIN_SECONDS = 2.0
"""The time to wait for output after the process ends. Only a process that left its group can keep the pipe open."""

Enter: TypeAlias = Callable[[Manifest, str, Sequence[str], Streams], Awaitable[Process]]
"""Starts a command in a container of a pod. Raises CannotStart, or NotRunning if the container does not run."""


class NotRunning(Exception):
    """The container has no running process."""


async def answer(enter: Enter, request: web.Request, pod: Mapping[str, Any]) -> web.StreamResponse:
    """Run the command of the query and relay its streams.

    Raises:
        StatusError: the query has no valid container or no command, the container does not run, or the request is no WebSocket.
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
