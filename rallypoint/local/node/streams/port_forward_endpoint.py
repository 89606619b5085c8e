"""``GET …/pods/NAME/portforward`` over WebSockets, which the API server passes to the node.

There are two protocols. kubectl's carries any number of connections as SPDY streams. That of the Python client and of
``rallypoint port-forward`` has one connection for each port of the query, and cannot end the data of one direction.

Source: Kubernetes, client-go tools/portforward; cri-streaming pkg/streaming/portforward (httpstream.go, websocket.go).
"""

import asyncio
import contextlib
import errno
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

from aiohttp import WSMsgType, web

from rallypoint.local.apiserver.apimachinery import errors
from rallypoint.local.apiserver.apimachinery.errors import StatusError
from rallypoint.local.manifest import Manifest
from rallypoint.local.node.streams.exec_endpoint import NotRunning
from rallypoint.local.node.streams.spdy import CHUNK_BYTES, ProtocolError, ReceivedData, Session, Stream

TUNNEL = "SPDY/3.1+portforward.k8s.io"
CHANNELS = "v4.channel.k8s.io"
MAX_CHANNEL_PORTS = 127
"""The number of a channel is one byte, and each port has two channels."""

Connect: TypeAlias = Callable[[Manifest, int], Awaitable[socket.socket]]
"""Connects to a port of a pod. Raises NotRunning if the pod does not run, OSError if the connection fails."""


class _Data(Protocol):
    """The data of one forwarded connection, as a client sends and receives it."""

    async def read(self) -> bytes:
        """Return the next data; empty at its end."""
        ...

    async def write(self, data: bytes) -> None: ...


async def answer(connect: Connect, request: web.Request, pod: Mapping[str, Any]) -> web.StreamResponse:
    """Forward connections until the client disconnects.

    Raises:
        StatusError: the request is no WebSocket handshake with one of the protocols, or names no valid ports.
    """
    # No heartbeat: a client whose own reader is slow does not answer it in time.
    response = web.WebSocketResponse(protocols=(TUNNEL, CHANNELS))
    if not response.can_prepare(request):
        raise errors.bad_request("Upgrade request required")
    offered = [name.strip() for name in request.headers.get("Sec-WebSocket-Protocol", "").split(",")]
    forward = partial(_forward, connect, pod)
    if TUNNEL in offered:
        await response.prepare(request)
        await _serve_tunnel(response, forward)
    elif CHANNELS in offered:
        ports = _ports(request)
        await response.prepare(request)
        await _serve_channels(response, ports, forward)
    else:
        raise StatusError(403, "Forbidden", f"unable to upgrade: the protocols are {TUNNEL} and {CHANNELS}")
    return response


_Forward: TypeAlias = Callable[[int, _Data], Awaitable[str]]


async def _forward(connect: Connect, pod: Manifest, port: int, data: _Data) -> str:
    """Copy in both directions until the pod ends the connection; return the error, empty if there is none."""
    try:
        connection = await connect(pod, port)
    except (NotRunning, OSError) as error:
        meta = pod["metadata"]
        return f"error forwarding port {port} to pod {meta['name']}, uid {meta['uid']}: {_reason(error)}"
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        async with asyncio.TaskGroup() as both:
            upload = both.create_task(_upload(data, connection))
            await _download(connection, data)
            upload.cancel()
    return ""


def _reason(error: NotRunning | OSError) -> str:
    if isinstance(error, NotRunning):
        return "the pod is not running"
    if error.errno == errno.ECONNREFUSED:
        return "connection refused: no program in the pod listens on this port"
    return str(error)


async def _upload(data: _Data, connection: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError):  # The pod reads no more; it may still write.
        while chunk := await data.read():
            await loop.sock_sendall(connection, chunk)
        connection.shutdown(socket.SHUT_WR)
        return
    while await data.read():
        pass  # Otherwise the data would delay that of other connections.


async def _download(connection: socket.socket, data: _Data) -> None:
    loop = asyncio.get_running_loop()
    with contextlib.suppress(ConnectionError):
        while chunk := await loop.sock_recv(connection, CHUNK_BYTES):
            await data.write(chunk)


async def _serve_tunnel(response: web.WebSocketResponse, forward: _Forward) -> None:
    """Serve kubectl: for each connection there is a stream for data and one for the error."""
    unpaired: dict[str, Stream] = {}

    def opened(stream: Stream) -> None:
        request_id = stream.headers.get("requestid", "")
        other = unpaired.pop(request_id, None)
        if other is None:
            unpaired[request_id] = stream
            stream.on_reset = partial(unpaired.pop, request_id, None)
            return
        is_data = stream.headers.get("streamtype") == "data"
        data, error = (stream, other) if is_data else (other, stream)
        task = tasks.create_task(_serve_pair(forward, data, error))
        data.on_reset, error.on_reset = task.cancel, lambda: None

    async with asyncio.TaskGroup() as tasks:
        with contextlib.suppress(ProtocolError):
            await Session(response, opened).run()
    await response.close()


async def _serve_pair(forward: _Forward, data: Stream, error: Stream) -> None:
    port = data.headers.get("port", "")
    problem = await forward(int(port), data) if _is_port(port) else f"{port!r} is not a port"
    if problem:
        await error.write(problem.encode())
    await data.close()
    await error.close()


class _Channel:
    """The data of one port; implements ``_Data``."""

    def __init__(self, response: web.WebSocketResponse, number: int) -> None:
        self.received = ReceivedData()
        self._response = response
        self._number = number

    async def read(self) -> bytes:
        return await self.received.read()

    async def write(self, data: bytes) -> None:
        if not self._response.closed:
            with contextlib.suppress(ConnectionError):
                await self._response.send_bytes(bytes((self._number,)) + data)


async def _serve_channels(response: web.WebSocketResponse, ports: list[int], forward: _Forward) -> None:
    """Serve one connection for each port: an even channel for its data, the next one for its error."""
    channels = [_Channel(response, number) for number in range(2 * len(ports))]
    for channel, port in zip(channels, [port for port in ports for _ in range(2)], strict=True):
        await channel.write(port.to_bytes(2, "little"))

    async def serve(port: int, data: _Channel, error: _Channel) -> None:
        if problem := await forward(port, data):
            await error.write(problem.encode())
        data.received.close()

    async def serve_all() -> None:
        async with asyncio.TaskGroup() as connections:
            for port, data, error in zip(ports, channels[::2], channels[1::2], strict=True):
                connections.create_task(serve(port, data, error))

    async with asyncio.TaskGroup() as tasks:
        both = tasks.create_task(_receive(response, channels)), tasks.create_task(serve_all())
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        for task in both:
            task.cancel()
    await response.close()


async def _receive(response: web.WebSocketResponse, channels: Sequence[_Channel]) -> None:
    """Pass on data until the client disconnects."""
    async for message in response:
        if message.type is WSMsgType.BINARY and message.data and message.data[0] < len(channels):
            await channels[message.data[0]].received.add(message.data[1:])


def _ports(request: web.Request) -> list[int]:
    """Raises:
    StatusError: 400, the query names no valid ports.
    """
    found = [text for value in request.query.getall("ports", []) for text in value.split(",")]
    if not found:
        raise errors.bad_request('query parameter "ports" is required')
    for text in found:
        if not _is_port(text):
            raise errors.bad_request(f'unable to parse "{text}" as a port')
    if len(found) > MAX_CHANNEL_PORTS:
        raise errors.bad_request(f"at most {MAX_CHANNEL_PORTS} ports at once")
    return [int(text) for text in found]


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and 0 < int(text) < 65536
