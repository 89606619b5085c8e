"""Egress for pods with their own network: an HTTP proxy on the bridge.

It listens on the bridge and connects from the machine's network, so no link, route or firewall rule of the machine
changes. Programs find it by the usual variables. It forwards to the user's own proxy if one is set.
"""

import asyncio
import contextlib
import socket
from collections.abc import Mapping
from typing import Self
from urllib.parse import urlsplit

PORT = 3128
HEAD_SECONDS = 30.0
PIECE_BYTES = 64 * 1024
VARIABLES = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
NO_PROXY = ("no_proxy", "NO_PROXY")
HOP_BY_HOP_HEADERS = (b"connection:", b"proxy-connection:", b"proxy-authorization:", b"keep-alive:")
"""Headers that a proxy does not forward."""
REFUSED = b"HTTP/1.1 502 Bad Gateway\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class Egress:
    def __init__(self, server: asyncio.Server, address: str, user_env: Mapping[str, str]) -> None:
        self._server = server
        self._address = address
        self._user_env = user_env

    @classmethod
    async def open(cls, listener: socket.socket, address: str, user_env: Mapping[str, str]) -> Self:
        """Serve at ``address`` on a socket of the pod network. ``user_env`` is the user's environment."""
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, PORT))
        upstream = next((user_env[name] for name in VARIABLES if user_env.get(name)), "")
        server = await asyncio.start_server(lambda *ends: _serve(upstream, *ends), sock=listener)
        return cls(server, address, user_env)

    def variables(self, env: Mapping[str, str], network: str) -> dict[str, str]:
        """Return ``env`` with the variables of the proxy, unless the manifest sets them. ``network`` needs no proxy."""
        proxy = f"http://{self._address}:{PORT}"
        no_proxy = f"localhost,127.0.0.1,{network},.svc,.cluster.local"
        ours = dict.fromkeys(VARIABLES, proxy) | dict.fromkeys(NO_PROXY, no_proxy)
        return dict(env) | {
            name: value for name, value in ours.items() if env.get(name) in (None, self._user_env.get(name))
        }

    def close(self) -> None:
        self._server.close()


async def _serve(upstream: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        async with asyncio.timeout(HEAD_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
            upstream_reader, upstream_writer, first, answer = await _connect(upstream, head)
    except (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        with contextlib.suppress(ConnectionError):
            writer.write(REFUSED)
            await writer.drain()
        writer.close()
        return
    writer.write(answer)
    upstream_writer.write(first)
    try:
        async with asyncio.TaskGroup() as both:
            both.create_task(_forward(reader, upstream_writer))
            both.create_task(_forward(upstream_reader, writer))
    finally:
        writer.close()
        upstream_writer.close()


async def _connect(
    upstream: str, head: bytes
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes, bytes]:
    """Connect to the destination of a request.

    Return the connection, the bytes to send to the destination first, and the bytes to answer the client first.

    Raises:
        OSError: the destination is unreachable.
        ValueError: the request is not a proxy request.
    """
    if upstream:
        proxy = urlsplit(upstream if "//" in upstream else f"//{upstream}")
        return *await asyncio.open_connection(proxy.hostname, proxy.port or 80), head, b""
    line, _, rest = head.partition(b"\r\n")
    method, target, version = line.decode("latin-1").split(" ")
    if method == "CONNECT":
        url = urlsplit(f"//{target}")
        ends = await asyncio.open_connection(url.hostname, url.port or 443)
        return *ends, b"", b"HTTP/1.1 200 Connection established\r\n\r\n"
    url = urlsplit(target)
    if url.scheme != "http":
        raise ValueError(target)
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    headers = b"\r\n".join(
        header for header in rest.split(b"\r\n") if not header.lower().startswith(HOP_BY_HOP_HEADERS)
    )
    # One request per connection: the next one may have another destination.
    first = f"{method} {path} {version}\r\nConnection: close\r\n".encode("latin-1") + headers
    return *await asyncio.open_connection(url.hostname, url.port or 80), first, b""


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Forward until one side closes; then close the other."""
    with contextlib.suppress(ConnectionError):
        while piece := await reader.read(PIECE_BYTES):
            writer.write(piece)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
