"""Keeps connections to one server open between requests."""

import asyncio
import ssl
from collections import deque
from collections.abc import Awaitable, Callable

import aiohttp

from controller.kube.http1 import Answer, HttpConnection, Request

CONNECT_TIMEOUT_SECONDS = 10.0
KEEPALIVE_SECONDS = 75.0
"""How long a connection may idle. The API server's own limit is 90 s; if both sides close at once, a call is lost."""


class ConnectionPool:
    """At most ``limit`` connections, which ``dial`` opens; requests beyond that wait in order.

    Each request names its TLS context. With another one than before, idle connections are closed and new ones opened; requests that are
    being sent end on theirs. Only one context is in use at a time.
    """

    def __init__(
        self, dial: Callable[[ssl.SSLContext | None], Awaitable[HttpConnection]], limit: int
    ) -> None:
        self._dial = dial
        self._slots = asyncio.Semaphore(limit)
        self._tls: ssl.SSLContext | None = None
        self._idle = deque[tuple[float, HttpConnection]]()
        """With the loop times from which they idle, in order. The last one is used first, so that a quiet client closes the others."""
        self._open = set[HttpConnection]()
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def send(self, request: Request, tls: ssl.SSLContext | None = None) -> Answer:
        """Send a request and return its answer.

        If the server closes a connection while a request is on its way to it, nobody knows whether it was read. A repeatable request is
        sent again, once, if its connection had been used before and ended without a byte of an answer.

        Raises:
            aiohttp.ClientError: there is no connection, or no complete answer; a write may have taken effect. Or the pool is closed.
            Exception: the request's ``check`` raised it.
        """
        async with self._slots:
            self._check_open()
            if connection := self._take(tls):
                try:
                    return await self._send(connection, request, tls)
                except aiohttp.ClientConnectionError:
                    if not (request.is_repeatable and connection.is_silent):
                        raise
            return await self._send(await self._connect(tls), request, tls)

    async def close(self) -> None:
        """Close all connections; requests on them fail."""
        self._is_closed = True
        if self._timer:
            self._timer.cancel()
        closing = [connection.closed for connection in self._open]
        for connection in [*self._open]:
            self._discard(connection)
        if closing:
            await asyncio.wait(closing)

    def _take(self, tls: ssl.SSLContext | None) -> HttpConnection | None:
        """Return an idle connection, if there is one."""
        if tls is not self._tls:
            self._tls = tls
            self._close_idle(float("inf"))
        while self._idle:
            _, connection = self._idle.pop()
            if connection.is_usable:
                return connection
            self._discard(connection)
        return None

    def _check_open(self) -> None:
        if self._is_closed:
            raise aiohttp.ClientConnectionError("the client is closed")

    async def _connect(self, tls: ssl.SSLContext | None) -> HttpConnection:
        self._check_open()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                connection = await self._dial(tls)
        except TimeoutError as error:
            raise aiohttp.ConnectionTimeoutError(
                f"no connection to the server within {CONNECT_TIMEOUT_SECONDS:g} s"
            ) from error
        if self._is_closed:
            connection.abort()
        self._check_open()
        self._open.add(connection)
        return connection

    async def _send(self, connection: HttpConnection, request: Request, tls: ssl.SSLContext | None) -> Answer:
        try:
            return await connection.send(request)
        finally:
            if connection.is_usable and tls is self._tls and not self._is_closed:
                self._idle.append((asyncio.get_running_loop().time(), connection))
                self._timer = self._timer or self._schedule()
            else:
                self._discard(connection)

    def _discard(self, connection: HttpConnection) -> None:
        self._open.discard(connection)
        connection.abort()

    def _schedule(self) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_at(self._idle[0][0] + KEEPALIVE_SECONDS, self._expire)

    def _expire(self) -> None:
        # Event loops call timers up to their clock's resolution too early.
        self._close_idle(asyncio.get_running_loop().time() - KEEPALIVE_SECONDS + 0.001)
        self._timer = self._schedule() if self._idle else None

    def _close_idle(self, until: float) -> None:
        """Close connections that have been idle since this loop time."""
        while self._idle and self._idle[0][0] <= until:
            self._discard(self._idle.popleft()[1])
