"""Accepts connections for an aiohttp application, and limits their number and their idle time.

aiohttp limits neither: by default a connection that never completes a request stays open for an hour, and enough of them leave the
process without file descriptors.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

HANDSHAKE_SECONDS = 10.0
"""The timeout of a TLS handshake."""
ACCEPT_RETRY_SECONDS = 0.1
"""The pause after an ``accept`` that failed for lack of descriptors or memory."""
_BACKLOG = 128

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
TLS = Callable[[], ssl.SSLContext | None]
"""Returns the context for a new connection; None closes it."""


class BoundedServer:
    """An HTTP server with at most ``max_connections`` connections over all of its addresses.

    A connection is closed when no complete request head arrives within ``idle_seconds`` of the last response, or of its start. Beyond
    ``max_connections``, a new connection replaces the oldest one without a request in progress; if all have one, the new one is closed.
    """

    def __init__(
        self, app: web.Application, *, max_connections: int, idle_seconds: float, **runner_options: Any
    ) -> None:
        self._max_connections = max_connections
        app.middlewares.append(self._track_request)
        self._runner = web.AppRunner(app, access_log=None, keepalive_timeout=idle_seconds, **runner_options)
        self._listeners: dict[socket.socket, asyncio.Task[None]] = {}
        self._handshakes: dict[asyncio.Task[None], RequestHandler] = {}
        """Connections that are being opened, the oldest first, with their request handlers."""
        self._busy: set[RequestHandler] = set()

    async def start(self) -> None:
        """Prepare to listen."""
        await self._runner.setup()

    async def listen(self, host: str | None, port: int, *, tls: TLS | None = None) -> tuple[str, int]:
        """Listen on one more address, and return it. A ``host`` of None means all addresses of this machine.

        Raises:
            OSError: the address is in use or unknown.
        """
        listener = await _bound(host, port)
        self.listen_on(listener, tls=tls)
        address = listener.getsockname()
        return address[0], address[1]

    def listen_on(self, listener: socket.socket, *, tls: TLS | None = None) -> None:
        """Listen on one more socket, which this server closes when it stops."""
        listener.setblocking(False)
        listener.listen(_BACKLOG)
        self._listeners[listener] = asyncio.create_task(
            self._accept(listener, tls), name="accept connections"
        )

    async def stop(self) -> None:
        """Stop listening, then close all connections."""
        for listener, task in self._listeners.items():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            listener.close()
        self._listeners.clear()
        for task in list(self._handshakes):
            task.cancel()
        await self._runner.cleanup()

    async def _accept(self, listener: socket.socket, tls: TLS | None) -> None:
        loop, server = asyncio.get_running_loop(), self._runner.server
        assert server is not None
        while True:
            # Yield, so that a flood of connections does not block the other tasks.
            await asyncio.sleep(0)
            try:
                connection, _ = await loop.sock_accept(listener)
            except OSError:
                # There are no descriptors or no memory left, or the client has disconnected.
                self._close_oldest_idle()
                await asyncio.sleep(ACCEPT_RETRY_SECONDS)
                continue
            if self._count() >= self._max_connections and not self._close_oldest_idle():
                connection.close()
                continue
            handler = server()
            task = asyncio.create_task(self._open(connection, handler, tls), name="open a connection")
            self._handshakes[task] = handler
            task.add_done_callback(lambda done: self._handshakes.pop(done, None))

    async def _open(self, connection: socket.socket, handler: RequestHandler, tls: TLS | None) -> None:
        """Assign a connection to its request handler, after the TLS handshake if there is one."""
        context = tls() if tls else None
        if tls and context is None:
            connection.close()
            return
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: handler,
                connection,
                ssl=context,
                ssl_handshake_timeout=HANDSHAKE_SECONDS if context else None,
            )
        except OSError:
            connection.close()  # the client does not speak TLS, is too slow or has disconnected
        except asyncio.CancelledError:
            connection.close()
            raise

    def _count(self) -> int:
        """Return how many connections are open and not about to be closed."""
        return len(self._opening()) + len(self._open_connections())

    def _opening(self) -> list[asyncio.Task[None]]:
        """Return the tasks that open connections which no request handler has yet, the oldest first."""
        assert self._runner.server is not None
        opened = set(self._runner.server.connections)
        return [
            task
            for task, handler in self._handshakes.items()
            if handler not in opened and not task.cancelling()
        ]

    def _open_connections(self) -> dict[RequestHandler, asyncio.Transport]:
        """Return the connections that have a request handler, the oldest first."""
        assert self._runner.server is not None
        # The transports of uvloop are no instances of asyncio.Transport.
        transports = {handler: handler.transport for handler in self._runner.server.connections}
        return {
            handler: transport
            for handler, transport in transports.items()
            if transport is not None and not transport.is_closing()
        }

    def _close_oldest_idle(self) -> bool:
        """Close the oldest connection without a request in progress; return whether there was one."""
        for task in self._opening():
            return task.cancel()
        for handler, transport in self._open_connections().items():
            if handler not in self._busy:
                transport.abort()
                return True
        return False

    @web.middleware
    async def _track_request(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        connection = request.protocol
        self._busy.add(connection)
        try:
            return await handler(request)
        finally:
            self._busy.discard(connection)


async def _bound(host: str | None, port: int) -> socket.socket:
    if host is None:
        if socket.has_dualstack_ipv6():
            return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
        return socket.create_server(("", port))
    family, _, _, _, address = (
        await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    )[0]
    return socket.create_server(address, family=family)
