"""Sends one request: connection, timeouts, credentials, and the typed error of an answer.

Two connection pools, so that long watches never block calls: calls have a client of their own, which costs half of aiohttp's CPU time or less;
streams and WebSockets use aiohttp. The client decides when to send and to retry a call.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlencode

import aiohttp
from yarl import URL

from controller.kube import errors
from controller.kube.connect import Connection, NotConfigured
from controller.kube.dial import Dialer, basic, probing
from controller.kube.http1 import Headers, Request, allow
from controller.kube.pool import CONNECT_TIMEOUT_SECONDS, KEEPALIVE_SECONDS, ConnectionPool

CALL_TIMEOUT_SECONDS = 30.0
"""A call without an answer fails after this time; the API server itself gives up after 60 s."""
STREAM_SILENCE_SECONDS = 90.0
"""A watch that is silent for this long is broken: the API server sends a bookmark about once a minute."""
ENDLESS = aiohttp.ClientTimeout(None, sock_connect=CONNECT_TIMEOUT_SECONDS)
RENEWAL_SECONDS = 10.0
"""The minimum age of credentials before they are reloaded again, whatever the server answers."""
NO_ANSWER = "<error>"
"""The status code in metrics of a call without an answer."""

NOT_ACCEPTED = (errors.Unauthorized, aiohttp.ClientConnectorCertificateError)
"""One side does not accept the other: the server the token, or the client the server's certificate."""


class Observer(Protocol):
    """Receives each request. ``method`` and ``code`` are those of HTTP, ``resource`` is the plural."""

    def answered(
        self, method: str, resource: str, code: str, seconds: float, sent_bytes: int, received_bytes: int
    ) -> None:
        """One attempt ended; ``code`` is ``<error>`` if there was no answer."""

    def retried(self, method: str, code: str) -> None:
        """The request is retried because of this code."""

    def limited(self, method: str, seconds: float) -> None:
        """The request waited this long for the limit on requests per second. Not called without such a limit."""


class _Unobserved:
    def answered(
        self, method: str, resource: str, code: str, seconds: float, sent_bytes: int, received_bytes: int
    ) -> None: ...
    def retried(self, method: str, code: str) -> None: ...
    def limited(self, method: str, seconds: float) -> None: ...


class Tracer(Protocol):
    """Records calls in a trace."""

    def call(self, method: str, path: str, headers: dict[str, str]) -> AbstractContextManager[None]:
        """Record a call while the context manager is open. Its headers get those that continue the trace on the server."""
        ...


UNOBSERVED: Observer = _Unobserved()


def undated(date: str, took_seconds: float) -> None: ...


class Call(NamedTuple):
    """One request. ``path`` is quoted; empty parameters are omitted."""

    method: str
    path: str
    resource: str
    params: Mapping[str, str] | None
    body: bytes | None
    headers: dict[str, str]


class Transport:
    """Sends requests to one API server."""

    def __init__(
        self,
        connection: Connection,
        observer: Observer,
        *,
        connections: int,
        user_agent: str,
        on_date: Callable[[str, float], None] = undated,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        """``on_date`` gets the ``Date`` header of each answer, and the seconds that the answer took by ``timer``."""
        self._on_date = on_date
        self._timer = timer
        self._connection = connection
        self._observer = observer
        self._user_agent = user_agent
        self._renewing = asyncio.Lock()
        self._renewed_at = float("-inf")
        server, proxy = URL(connection.server), URL(connection.proxy) if connection.proxy else None
        self._target, self._headers = _prefix(server, proxy, user_agent)
        self._login = basic(server)
        dialer = Dialer(server, proxy=proxy, tls_name=connection.tls_name)
        self._calls = ConnectionPool(dialer.dial, connections)
        self._streams = self._session()

    async def close(self) -> None:
        await self._calls.close()
        await self._streams.close()

    async def send(self, call: Call, permit: Callable[[], float] | None = None) -> bytes:
        """Send a request once.

        Args:
            permit: returns the maximum duration in seconds; called now, and again when the bytes are sent.

        Raises:
            ApiError: the server refused the request.
            NotLeading: the permit did not allow the write, so nothing was sent.
            aiohttp.ClientError, TimeoutError: there was no answer; a write may have taken effect.
        """
        started, code, answer, body = self._timer(), NO_ANSWER, b"", call.body or b""

        def report_date(headers: Headers) -> None:
            self._on_date(headers.get(b"date", b"").decode("latin-1"), self._timer() - started)

        limit_seconds = CALL_TIMEOUT_SECONDS
        check: Callable[[], object] = allow
        if permit:
            limit_seconds = min(limit_seconds, _permitted(permit))
            # Milliseconds in a burst pass until the bytes are sent, and more if a connection has to be opened. The process may be
            # suspended in that time and continue when another process leads.
            check = partial(_permitted, permit)
        request = Request(self._head(call), body, check, report_date, is_repeatable=call.method == "GET")
        try:
            async with asyncio.timeout(limit_seconds):
                status, headers, answer = await self._calls.send(request, self._connection.tls())
            code = str(status)
        finally:
            took = self._timer() - started
            self._observer.answered(call.method, call.resource, code, took, len(body), len(answer))
        if status >= 300:
            raise _refusal(status, headers, answer)
        return answer

    @contextlib.asynccontextmanager
    async def stream(self, call: Call, *, endless: bool = False) -> AsyncGenerator[aiohttp.StreamReader]:
        """Open a streaming answer. Rejected credentials are reloaded for the next attempt. An ``endless`` stream may be silent.

        Raises:
            ApiError: the server refused the request.
            aiohttp.ClientError, TimeoutError: no answer, or silence for ``STREAM_SILENCE_SECONDS`` while reading.
        """
        try:
            response = await self._begin(call, endless=endless)
        except NOT_ACCEPTED as rejection:
            await self.renew(rejection)
            raise
        async with response:
            yield response.content

    async def renew(self, rejection: Exception) -> bool:
        """Reload credentials; return False if the connection cannot reload them. Concurrent rejections share one reload.

        Raises:
            the rejection: the reload failed.
        """
        renew = self._connection.renew
        if renew is None:
            return False
        async with self._renewing:
            now = asyncio.get_running_loop().time()
            if now - self._renewed_at >= RENEWAL_SECONDS:
                self._renewed_at = now
                try:
                    await renew()
                except (NotConfigured, OSError) as error:
                    raise _with_cause(rejection, error) from error
        return True

    @contextlib.asynccontextmanager
    async def socket(
        self, call: Call, protocols: Iterable[str]
    ) -> AsyncGenerator[aiohttp.ClientWebSocketResponse]:
        """Open a WebSocket for messages of any size; ``protocols`` are in order of preference.

        Raises:
            ApiError: the server refused the request.
            aiohttp.ClientError, TimeoutError: there was no answer.
        """
        # A parameter can occur more than once here, which a mapping cannot express; so it is part of the path already.
        options = self._options(call)
        try:
            async with self._streams.ws_connect(
                self._url(call), protocols=protocols, max_msg_size=0, **options
            ) as socket:
                yield socket
        except aiohttp.WSServerHandshakeError as error:
            raise errors.from_response(error.status, error.message.encode()) from error

    async def _begin(self, call: Call, *, endless: bool) -> aiohttp.ClientResponse:
        started, code, options = self._timer(), NO_ANSWER, self._options(call)
        if endless:
            options["timeout"] = ENDLESS
        try:
            response = await self._streams.request(call.method, self._url(call), **options)
            self._on_date(response.headers.get("Date", ""), self._timer() - started)
            code = str(response.status)
        finally:
            self._observer.answered(call.method, call.resource, code, self._timer() - started, 0, 0)
        if response.status >= 400:
            async with response:
                raise _error_response(response, await response.read())
        return response

    def _url(self, call: Call) -> URL:
        return URL(self._connection.server + call.path, encoded=True)

    def _options(self, call: Call) -> dict[str, Any]:
        """Return the arguments that every request takes from the current connection."""
        token, tls = self._connection.token(), self._connection.tls()
        headers = [*call.headers.items(), *self._connection.headers()]
        if token:
            headers.append(("Authorization", f"Bearer {token}"))
        options: dict[str, Any] = {"headers": headers}
        if tls:
            # The pool keys connections by their TLS context: a new context opens new connections and does not close the others.
            options["ssl"] = tls
        if self._connection.tls_name:
            options["server_hostname"] = self._connection.tls_name
        if call.params:
            options["params"] = {key: value for key, value in call.params.items() if value != ""}
        return options

    def _head(self, call: Call) -> bytes:
        """Return a request line and headers.

        Raises:
            ValueError: one of them contains a line break, or the path a space.
        """
        target = self._target + call.path
        if call.params and (query := urlencode({name: text for name, text in call.params.items() if text})):
            target += f"{'&' if '?' in target else '?'}{query}"
        lines = [f"{call.method} {target} HTTP/1.1", *self._headers]
        for name, text in call.headers.items():
            lines.append(f"{name}: {text}")
        for name, text in self._connection.headers():
            lines.append(f"{name}: {text}")
        if token := self._connection.token():
            lines.append(f"Authorization: Bearer {token}")
        elif self._login:
            lines.append(f"Authorization: {self._login}")
        if call.body or call.method != "GET":
            lines.append(f"Content-Length: {len(call.body or b'')}")
        head = "\r\n".join(lines)
        if " " in target or head.count("\r") != len(lines) - 1 or head.count("\n") != len(lines) - 1:
            raise ValueError(
                f"{call.method} {call.path!r} cannot be sent: a line break in a header, or a space in the path"
            )
        return f"{head}\r\n\r\n".encode()

    def _session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0, keepalive_timeout=KEEPALIVE_SECONDS, socket_factory=probing
            ),
            timeout=aiohttp.ClientTimeout(
                None, sock_connect=CONNECT_TIMEOUT_SECONDS, sock_read=STREAM_SILENCE_SECONDS
            ),
            headers={"User-Agent": self._user_agent, "Accept-Encoding": "identity"},
            trust_env=False,
            proxy=self._connection.proxy or None,
            cookie_jar=aiohttp.DummyCookieJar(),
        )


def _prefix(server: URL, proxy: URL | None, user_agent: str) -> tuple[str, list[str]]:
    """Return what precedes the path in the target of each request, and the headers that all requests have."""
    target = server.raw_path.rstrip("/")
    headers = [
        f"Host: {server.host_port_subcomponent}",
        f"User-Agent: {user_agent}",
        "Accept-Encoding: identity",
    ]
    if proxy and server.scheme == "http":
        target = f"http://{server.host_port_subcomponent}{target}"
        if login := basic(proxy):
            headers.append(f"Proxy-Authorization: {login}")
    return target, headers


def _permitted(permit: Callable[[], float]) -> float:
    seconds = permit()
    if seconds <= 0:
        raise errors.NotLeading(
            "the write was not sent: this process is not the leader, or its Lease is about to expire"
        )
    return seconds


def _refusal(status: int, headers: Headers, answer: bytes) -> errors.ApiError:
    if status < 400:
        where = headers.get(b"location", b"").decode(errors="replace")
        return errors.from_status(
            status,
            "Redirect",
            f"the server answered with a redirect to {where or 'an unknown location'}; check the server address",
        )
    return errors.from_response(status, answer, headers.get(b"retry-after", b"").decode("latin-1"))


def _error_response(response: aiohttp.ClientResponse, answer: bytes) -> errors.ApiError:
    return errors.from_response(response.status, answer, response.headers.get("Retry-After", ""))


def _with_cause(rejection: Exception, cause: Exception) -> Exception:
    if isinstance(rejection, errors.Unauthorized):
        return errors.Unauthorized(
            rejection.code, rejection.reason, f"{rejection.message}; the new login failed: {cause}"
        )
    return rejection
