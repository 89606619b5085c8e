"""One HTTP/1.1 connection of a client: one request at a time, whose answer arrives whole.

No redirects, no compression, no upgrades. Errors are those of aiohttp, so that calls and streams fail alike.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple, cast

import aiohttp
from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser
from typing_extensions import override

PIECE_BYTES = 256 * 1024
"""Larger bodies are sent in pieces, so that one does not block the event loop."""
LONGEST_HEAD_BYTES = 64 * 1024
"""The limit of the status line and the headers of an answer, with those of the interim answers before it."""
LONGEST_ANSWER_BYTES = 1024 * 1024 * 1024
"""The limit of a whole answer. API servers may answer with a list that has as many objects as etcd can store."""

Headers = Mapping[bytes, bytes]
"""Values by name in lower case."""


class Answer(NamedTuple):
    status: int
    headers: Headers
    body: bytes


def allow() -> None: ...
def _ignore(headers: Headers) -> None: ...


class Request(NamedTuple):
    """A request as it is sent. ``head`` ends with an empty line and has the length of ``body``."""

    head: bytes
    body: bytes = b""
    check: Callable[[], object] = allow
    """Called right before bytes are sent; nothing more is sent if it raises."""
    on_headers: Callable[[Headers], None] = _ignore
    """Called when the headers of the answer have arrived."""
    is_repeatable: bool = False
    """Whether the server may receive it twice."""
    is_connect: bool = False
    """Whether the method is CONNECT: the answer ends with its headers, and what follows is no HTTP."""


class HttpConnection(asyncio.Protocol):
    """The protocol of one connection."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._parser = HttpResponseParser(self)
        self._drained: asyncio.Future[None] | None = None
        """Set while the transport's buffer is full."""
        self._answer: asyncio.Future[Answer] | None = None
        """That of the current request."""
        self._request = Request(b"")
        self._headers: dict[bytes, bytes] = {}
        self._body: list[bytes] = []
        self._received_bytes = 0
        self._has_head = False
        self._is_sent = False
        self._is_reusable = True
        self.transport: asyncio.Transport | None = None
        """None until it is connected. Transports of uvloop only look like an ``asyncio.Transport``."""
        self.closed: asyncio.Future[None] = self._loop.create_future()
        """Done when the connection is closed."""

    @property
    def is_usable(self) -> bool:
        """Return whether another request can be sent."""
        return bool(self._is_reusable and self.transport and not self.transport.is_closing())

    @property
    def is_silent(self) -> bool:
        """Return whether no byte of an answer to the last request has arrived."""
        return not self._received_bytes

    def abort(self) -> None:
        """Close the connection at once; the server notices."""
        self._is_reusable = False
        if self.transport:
            self.transport.abort()

    async def send(self, request: Request) -> Answer:
        """Send a request and return its answer. The connection is aborted if that fails, also by cancellation.

        An answer may arrive before the body is sent: then the rest is not sent, and the connection is closed.

        Raises:
            aiohttp.ClientError: there is no complete answer.
            Exception: ``check`` raised it.
        """
        answer: asyncio.Future[Answer] = self._loop.create_future()
        self._answer = answer
        self._request = request
        self._received_bytes, self._has_head, self._is_sent = 0, False, False
        transport = self.transport if self.is_usable else None
        self._is_reusable = False
        try:
            if transport is None:
                raise aiohttp.ServerDisconnectedError
            if len(request.body) <= PIECE_BYTES:
                request.check()
                self._is_sent = True
                transport.write(request.head + request.body)
            else:
                await self._send_pieces(transport, request, answer)
            return await answer
        finally:
            self._answer = None
            self._body, self._request = [], Request(b"")  # A connection may be idle for long.
            if not self._is_reusable:
                self.abort()

    async def _send_pieces(
        self, transport: asyncio.Transport, request: Request, answer: asyncio.Future[Answer]
    ) -> None:
        head, body = request.head, memoryview(request.body)
        for start in range(0, len(body), PIECE_BYTES):
            if self._drained:
                await asyncio.wait((self._drained, answer), return_when=asyncio.FIRST_COMPLETED)
            else:
                await asyncio.sleep(0)
            if answer.done():
                return
            request.check()
            transport.write(head + body[start : start + PIECE_BYTES])
            head = b""
        self._is_sent = True

    # What the event loop calls.

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    @override
    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            self.abort()  # These bytes answer nothing.
            return
        self._received_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._fail(aiohttp.ClientPayloadError(f"the answer is not valid HTTP/1.1: {error}"))
        else:
            if not self._has_head and self._received_bytes > LONGEST_HEAD_BYTES:
                self._fail(
                    aiohttp.ClientPayloadError(f"the answer has more than {LONGEST_HEAD_BYTES} B of headers")
                )
            elif self._received_bytes > LONGEST_ANSWER_BYTES:
                self._fail(aiohttp.ClientPayloadError(f"the answer has more than {LONGEST_ANSWER_BYTES} B"))

    @override
    def eof_received(self) -> None:
        self._end(None)
        self.abort()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc)
        if not self.closed.done():
            self.closed.set_result(None)

    @override
    def pause_writing(self) -> None:
        self._drained = self._loop.create_future()

    @override
    def resume_writing(self) -> None:
        if self._drained and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None

    # What the parser calls. It turns exceptions into its own.

    def on_message_begin(self) -> None:
        if self._answer is None or self._answer.done():
            raise HttpParserError("bytes after the answer")
        self._headers, self._body = {}, []

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._has_head:  # Trailers are ignored.
            self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status == 101:
            raise HttpParserError("a switch of protocols that the client did not request")
        if status < 200:
            return
        self._has_head = True
        self._request.on_headers(self._headers)
        if self._request.is_connect:
            self._complete(is_reusable=True)

    def on_body(self, body: bytes) -> None:
        if self._request.is_connect:
            raise HttpParserError("bytes after the answer to CONNECT")
        self._body.append(body)

    def on_message_complete(self) -> None:
        if self._has_head:
            is_sent = self._is_sent and self.transport and not self.transport.get_write_buffer_size()
            self._complete(is_reusable=bool(is_sent and self._parser.should_keep_alive()))

    def _complete(self, *, is_reusable: bool) -> None:
        if self._answer and not self._answer.done():
            self._is_reusable = is_reusable
            answer = Answer(self._parser.get_status_code(), self._headers, b"".join(self._body))
            self._answer.set_result(answer)

    def _end(self, error: Exception | None) -> None:
        """The server sends nothing more. That ends an answer without a length and without chunks."""
        self._is_reusable = False
        if error is None and self._has_head and not _FRAMING & self._headers.keys():
            self._complete(is_reusable=False)
        elif isinstance(error, OSError):
            self._fail(aiohttp.ClientOSError(*error.args), error)
        elif self._received_bytes:
            self._fail(
                aiohttp.ClientPayloadError("the connection was closed in the middle of the answer"), error
            )
        else:
            self._fail(aiohttp.ServerDisconnectedError(), error)

    def _fail(self, error: Exception, cause: Exception | None = None) -> None:
        self._is_reusable = False
        if self._answer and not self._answer.done():
            error.__cause__ = cause
            self._answer.set_exception(error)


_FRAMING = {b"content-length", b"transfer-encoding"}
