"""One request: its connection, its time limits, its login, and the typed error that an answer may mean.

Two pools of connections, so that long watches never take the place of calls. Which call goes when, and again, is the client's matter.
"""

import asyncio
import contextlib
import io
import socket
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import BytesPayload
from typing_extensions import override
from yarl import URL

from controller.kube import errors
from controller.kube.connect import Connection, NotConfigured

CALL_TIMEOUT_SECONDS = 30.0
"""A call that has no answer after this long has failed; the API server itself gives up after 60."""
CONNECT_TIMEOUT_SECONDS = 10.0
STREAM_SILENCE_SECONDS = 90.0
"""A watch that says nothing for so long is dead: the API server sends a bookmark about once a minute."""
ENDLESS = aiohttp.ClientTimeout(None, sock_connect=CONNECT_TIMEOUT_SECONDS)
KEEPALIVE_SECONDS = 75.0
"""How long a connection may idle. The API server's own limit is 90; one that both close at once loses a call."""
LARGE_BYTES = 1024 * 1024
"""Bodies of this size are sent in pieces, so that one does not hold up the event loop."""
RENEWAL_SECONDS = 10.0
"""How long a new login is left alone, whatever the server says of it."""
NO_ANSWER = "<error>"
"""The code of a call that got none."""

NOT_ACCEPTED = (errors.Unauthorized, aiohttp.ClientConnectorCertificateError)
"""One side does not accept the other: the server the token, or the client the server's certificate."""


class Observer(Protocol):
    """Told of each request. ``method`` and ``code`` are as on the wire, ``resource`` is the plural."""

    def answered(
        self, method: str, resource: str, code: str, seconds: float, sent_bytes: int, received_bytes: int
    ) -> None:
        """One try is over; ``code`` is ``<error>`` if there was no answer."""

    def retried(self, method: str, code: str) -> None:
        """It is tried again, because of this code."""

    def limited(self, method: str, seconds: float) -> None:
        """How long it waited for its turn; told only where there is a limit on requests per second."""


class _Unobserved:
    def answered(
        self, method: str, resource: str, code: str, seconds: float, sent_bytes: int, received_bytes: int
    ) -> None: ...
    def retried(self, method: str, code: str) -> None: ...
    def limited(self, method: str, seconds: float) -> None: ...


UNOBSERVED: Observer = _Unobserved()


def undated(date: str, took_seconds: float) -> None: ...


class Call(NamedTuple):
    """What is asked. ``path`` is quoted, and parameters that are empty are left out."""

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
        """``on_date`` gets the ``Date`` header of each answer, and how many seconds the answer took by the ``timer``."""
        self._on_date = on_date
        self._timer = timer
        self._connection = connection
        self._observer = observer
        self._user_agent = user_agent
        self._renewing = asyncio.Lock()
        self._renewed_at = float("-inf")
        self._calls = self._session(connections, _within(CALL_TIMEOUT_SECONDS))
        self._streams = self._session(
            0,
            aiohttp.ClientTimeout(
                None, sock_connect=CONNECT_TIMEOUT_SECONDS, sock_read=STREAM_SILENCE_SECONDS
            ),
        )

    async def close(self) -> None:
        await self._calls.close()
        await self._streams.close()

    async def send(self, call: Call, permit: Callable[[], float] | None = None) -> bytes:
        """One try.

        Args:
            permit: the seconds that it may take at most; asked now, and again when its bytes go out.

        Raises:
            ApiError: the server refused.
            NotLeading: by the permit nothing was sent.
            aiohttp.ClientError, TimeoutError: there was no answer; a write may have been done all the same.
        """
        started, code, answer, body = self._timer(), NO_ANSWER, b"", call.body or b""
        options = self._options(call)
        if permit and (limit_seconds := _permitted(permit)) < CALL_TIMEOUT_SECONDS:
            options["timeout"] = _within(limit_seconds)
        if len(body) >= LARGE_BYTES:
            options["data"] = io.BytesIO(body)
        elif body:
            options["data"] = _Permitted(body, permit) if permit else body
        try:
            async with self._calls.request(call.method, self._url(call), **options) as response:
                self._on_date(response.headers.get("Date", ""), self._timer() - started)
                answer = await response.read()
                code = str(response.status)
        except aiohttp.ClientConnectionError as error:
            if isinstance(error.__cause__, errors.NotLeading):
                raise error.__cause__ from None
            raise
        finally:
            took = self._timer() - started
            self._observer.answered(call.method, call.resource, code, took, len(body), len(answer))
        if response.status >= 400:
            raise _refusal(response, answer)
        return answer

    @contextlib.asynccontextmanager
    async def stream(self, call: Call, *, endless: bool = False) -> AsyncGenerator[aiohttp.StreamReader]:
        """The body of a long answer; what was not accepted is renewed for the next try. An ``endless`` one may be silent.

        Raises:
            ApiError: the server refused.
            aiohttp.ClientError, TimeoutError: no answer, or silence for ``STREAM_SILENCE_SECONDS`` while reading.
        """
        try:
            response = await self._begin(call, endless=endless)
        except NOT_ACCEPTED as refusal:
            await self.renew(refusal)
            raise
        async with response:
            yield response.content

    async def renew(self, refusal: Exception) -> bool:
        """Whether there is something new to try with; many calls refused at once share one renewal.

        Raises:
            the refusal: the renewal failed.
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
                    raise _with_cause(refusal, error) from error
        return True

    @contextlib.asynccontextmanager
    async def socket(
        self, call: Call, protocols: Iterable[str]
    ) -> AsyncGenerator[aiohttp.ClientWebSocketResponse]:
        """A WebSocket, with messages of any size; ``protocols`` in the order of preference.

        Raises:
            ApiError: the server refused.
            aiohttp.ClientError, TimeoutError: no answer.
        """
        # A parameter may come more than once here, which a mapping does not say; so it is part of the path already.
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
                raise _refusal(response, await response.read())
        return response

    def _url(self, call: Call) -> URL:
        return URL(self._connection.server + call.path, encoded=True)

    def _options(self, call: Call) -> dict[str, Any]:
        """What every request needs of the connection as it is at this very moment."""
        token, tls = self._connection.token(), self._connection.tls()
        headers = {**call.headers, "Authorization": f"Bearer {token}"} if token else call.headers
        options: dict[str, Any] = {"headers": headers}
        if tls:
            # The pool keeps connections by the context they were made with: another one makes new ones, and ends none.
            options["ssl"] = tls
        if self._connection.tls_name:
            options["server_hostname"] = self._connection.tls_name
        if call.params:
            options["params"] = {key: value for key, value in call.params.items() if value != ""}
        return options

    def _session(self, limit: int, timeout: aiohttp.ClientTimeout) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=limit, keepalive_timeout=KEEPALIVE_SECONDS, socket_factory=probing
            ),
            timeout=timeout,
            headers={"User-Agent": self._user_agent, "Accept-Encoding": "identity"},
            trust_env=False,
            proxy=self._connection.proxy or None,
            cookie_jar=aiohttp.DummyCookieJar(),
        )


class _Permitted(BytesPayload):
    """A body that asks once more, when it and the headers before it are about to be written.

    Between the first question and the write lies a turn of the event loop, which takes milliseconds in a burst: long enough for a
    process to be stopped in it, and to go on when another leads.
    """

    def __init__(self, body: bytes, permit: Callable[[], float]) -> None:
        super().__init__(body)
        self._permit = permit

    @override
    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        _permitted(self._permit)
        await super().write_with_length(writer, content_length)


def _permitted(permit: Callable[[], float]) -> float:
    seconds = permit()
    if seconds <= 0:
        raise errors.NotLeading(
            "the write was not sent: this process does not lead, or may not lead much longer"
        )
    return seconds


def _within(seconds: float) -> aiohttp.ClientTimeout:
    """Exactly so long: by default aiohttp rounds up to whole seconds, and a write would outlive its permit."""
    return aiohttp.ClientTimeout(seconds, CONNECT_TIMEOUT_SECONDS, ceil_threshold=float("inf"))


def _refusal(response: aiohttp.ClientResponse, answer: bytes) -> errors.ApiError:
    return errors.from_response(response.status, answer, response.headers.get("Retry-After", ""))


def _with_cause(refusal: Exception, cause: Exception) -> Exception:
    if isinstance(refusal, errors.Unauthorized):
        return errors.Unauthorized(
            refusal.code, refusal.reason, f"{refusal.message}; the new login failed: {cause}"
        )
    return refusal


_PROBES = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}
"""The kernel finds out within 30 s that the other side is gone without a word, and closes; else each connection that idles in the
pool would cost one more call. Those that the system does not know are left out. The last one is in milliseconds."""


def probing(address: tuple[Any, ...]) -> socket.socket:
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _PROBES.items():
        if option := getattr(socket, name, None):
            made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made
