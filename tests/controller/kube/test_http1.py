"""One HTTP connection of a client, byte by byte."""

import asyncio
import contextlib
import gc
import itertools
import weakref
from dataclasses import dataclass

import aiohttp
import pytest
from httptools import HttpParserError, HttpResponseParser
from hypothesis import assume, given
from hypothesis import strategies as st

from controller.kube import errors, http1
from controller.kube.http1 import LONGEST_HEAD_BYTES, PIECE_BYTES, Answer, Headers, Request
from tests.support.wire import Wire

FINE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
GET = Request(b"GET / HTTP/1.1\r\n\r\n")


async def sending(wire: Wire, request: Request = GET) -> asyncio.Task[Answer]:
    """Return the task of a request whose first bytes are written."""
    task = asyncio.create_task(wire.connection.send(request))
    for _ in range(3):
        await asyncio.sleep(0)
    return task


@dataclass(frozen=True)
class Sent:
    """An answer as a server sends it."""

    status: int
    headers: dict[bytes, bytes]
    """Without those that say where the body ends."""
    body: bytes
    data: bytes
    is_kept_alive: bool
    ends_by_close: bool = False


names = st.from_regex(rb"[A-Za-z][A-Za-z0-9-]{0,20}", fullmatch=True)
values = st.from_regex(rb"([!-~]([ -~]{0,30}[!-~])?)?", fullmatch=True)
RESERVED = {
    *(b"connection", b"content-length", b"keep-alive", b"proxy-connection", b"te", b"trailer"),
    *(b"transfer-encoding", b"upgrade"),
}


@st.composite
def answers(draw: st.DrawFn) -> Sent:
    status = draw(st.sampled_from([200, 201, 204, 302, 304, 404, 409, 429, 500, 599]))
    body = b"" if status in {204, 304} else draw(st.binary(max_size=200))
    headers = {
        name: value
        for name, value in draw(st.dictionaries(names, values, max_size=5)).items()
        if name.lower() not in RESERVED
    }
    assume(len({name.lower() for name in headers}) == len(headers))
    interim = b"".join(
        draw(
            st.lists(
                st.sampled_from([b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Hints\r\nLink: a\r\n\r\n"]),
                max_size=2,
            )
        )
    )
    framing = "none" if status in {204, 304} else draw(st.sampled_from(["length", "chunks", "close"]))
    is_kept_alive = framing != "close" and draw(st.booleans())
    lines = [name + b": " + value for name, value in headers.items()]
    if not is_kept_alive:
        lines.append(b"Connection: close")
    data = body
    if framing == "length":
        lines.append(b"Content-Length: %d" % len(body))
    elif framing == "chunks":
        lines.append(b"Transfer-Encoding: chunked")
        cuts = sorted({0, len(body), *draw(st.lists(st.integers(0, len(body)), max_size=5))})
        extension = draw(st.sampled_from([b"", b";a=b"]))
        trailer = draw(st.sampled_from([b"", b"Retry-After: 7\r\n"]))
        pieces = [body[start:end] for start, end in itertools.pairwise(cuts)]
        encoded = b"".join(b"%x%b\r\n%b\r\n" % (len(piece), extension, piece) for piece in pieces)
        data = encoded + b"0\r\n" + trailer + b"\r\n"
    head = b"\r\n".join([b"HTTP/1.1 %d Because" % status, *lines, b"", b""])
    return Sent(
        status,
        {name.lower(): value for name, value in headers.items()},
        body,
        interim + head + data,
        is_kept_alive,
        framing == "close",
    )


positions = st.lists(st.integers(0, 1000), max_size=20)


@given(sent=answers(), cuts=positions | st.just(list(range(1000))))
async def test_an_answer_arrives_whole_wherever_it_is_cut(sent: Sent, cuts: list[int]) -> None:
    wire = Wire()
    task = await sending(wire)

    wire.answer(sent.data, cuts=[cut for cut in cuts if cut < len(sent.data)])
    if sent.ends_by_close:
        assert not task.done()
        wire.end()
    answer = await task

    others = {name: value for name, value in answer.headers.items() if name not in RESERVED}
    assert (answer.status, others, answer.body) == (sent.status, sent.headers, sent.body)
    assert wire.connection.is_usable is sent.is_kept_alive
    assert wire.is_closed is not sent.is_kept_alive


@given(
    sent=answers().filter(lambda sent: not sent.ends_by_close),
    part=st.floats(0, 1, exclude_max=True),
    breaks=st.booleans(),
)
async def test_an_answer_that_ends_early_is_an_error(sent: Sent, part: float, breaks: bool) -> None:
    wire = Wire()
    task = await sending(wire)

    wire.answer(sent.data[: int(len(sent.data) * part)])
    assert not task.done()
    wire.reset() if breaks else wire.end()

    with pytest.raises(aiohttp.ClientError):
        await task
    assert wire.connection.is_silent is (int(len(sent.data) * part) == 0)
    assert not wire.connection.is_usable


@given(
    data=st.binary(max_size=300) | st.binary(max_size=100).map(lambda data: FINE[:-10] + data), cuts=positions
)
async def test_bytes_of_anything_else_are_an_answer_or_an_error(data: bytes, cuts: list[int]) -> None:
    wire = Wire()
    task = await sending(wire)

    wire.answer(data, cuts=[cut for cut in cuts if cut < len(data)])
    wire.end()

    with contextlib.suppress(aiohttp.ClientError):
        assert isinstance(await task, Answer)
    assert wire.is_closed


@given(sent=st.lists(answers().filter(lambda sent: sent.is_kept_alive), min_size=2, max_size=4))
async def test_requests_follow_each_other(sent: list[Sent]) -> None:
    wire = Wire()

    for each in sent:
        task = await sending(wire)
        wire.answer(each.data)
        assert (await task).body == each.body

    assert wire.writes == [GET.head] * len(sent)


async def test_a_request_is_one_write() -> None:
    wire = Wire()
    task = await sending(wire, Request(b"POST / HTTP/1.1\r\n\r\n", b"body"))
    wire.answer(FINE)

    assert await task == Answer(200, {b"content-length": b"2"}, b"{}")
    assert wire.writes == [b"POST / HTTP/1.1\r\n\r\nbody"]


async def test_headers_are_reported_before_the_body_arrives() -> None:
    wire = Wire()
    reported = list[Headers]()
    task = await sending(wire, GET._replace(on_headers=reported.append))

    wire.answer(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nDATE: now\r\nContent-Length: 2\r\n\r\n")
    assert reported == [{b"date": b"now", b"content-length": b"2"}]

    wire.answer(b"{}")
    assert (await task).headers[b"date"] == b"now"


@pytest.mark.parametrize(
    ("data", "match"),
    [
        pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n", "not valid HTTP", id="another protocol"),
        pytest.param(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: spdy/3.1\r\n\r\n",
            "not valid HTTP",
            id="a switch of protocols",
        ),
        pytest.param(b"HTTP/1.1 101 Switching Protocols\r\n\r\n", "not valid HTTP", id="a switch to nothing"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "not valid HTTP",
            id="two ends",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{} ",
            "not valid HTTP",
            id="two lengths",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nA: " + b"a" * LONGEST_HEAD_BYTES, "headers", id="an endless header"
        ),
        pytest.param(b"HTTP/1.1 103 A\r\n\r\n" * 5000, "headers", id="interim answers without end"),
    ],
)
async def test_what_a_server_must_not_send(data: bytes, match: str) -> None:
    wire = Wire()
    task = await sending(wire)
    wire.answer(data, cuts=range(0, len(data), 1000))

    with pytest.raises(aiohttp.ClientPayloadError, match=match):
        await task
    assert wire.is_closed


async def test_the_size_of_an_answer_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1, "LONGEST_ANSWER_BYTES", 1000)
    wire = Wire()
    task = await sending(wire)
    wire.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n" + b"x" * 2000, cuts=[500, 1500])

    with pytest.raises(aiohttp.ClientPayloadError, match="more than 1000 B"):
        await task


@pytest.mark.parametrize(
    "late",
    [
        pytest.param(False, id="with the answer"),
        pytest.param(True, id="while the connection is idle"),
    ],
)
async def test_bytes_that_answer_nothing_close_the_connection(late: bool) -> None:
    wire = Wire()
    task = await sending(wire)

    wire.answer(FINE + (b"" if late else FINE))
    assert (await task).body == b"{}"
    if late:
        wire.answer(FINE)

    assert not wire.connection.is_usable
    assert wire.is_closed


async def test_a_server_that_ends_an_idle_connection() -> None:
    wire = Wire()
    task = await sending(wire)
    wire.answer(FINE)
    await task

    wire.end()

    assert not wire.connection.is_usable
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await wire.connection.send(GET)
    assert len(wire.writes) == 1


async def test_a_broken_connection_is_an_error_of_the_system() -> None:
    wire = Wire()
    task = await sending(wire)
    wire.reset()

    with pytest.raises(aiohttp.ClientOSError, match="reset"):
        await task


async def test_only_an_orderly_end_ends_an_answer_without_a_length() -> None:
    wire = Wire()
    task = await sending(wire)
    wire.answer(b"HTTP/1.1 200 OK\r\n\r\nhalf")
    wire.reset()

    with pytest.raises(aiohttp.ClientOSError, match="reset"):
        await task


async def test_cancellation_closes_the_connection() -> None:
    wire = Wire()
    task = await sending(wire)
    wire.answer(FINE[:-1])
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert wire.is_closed


async def test_an_answer_before_the_body_is_sent() -> None:
    """A server refuses a body that is too large without reading it."""
    wire = Wire()
    task = await sending(wire, Request(b"POST / HTTP/1.1\r\n\r\n", b"x" * 10 * PIECE_BYTES))
    wire.connection.pause_writing()
    for _ in range(20):
        await asyncio.sleep(0)
    written = len(wire.writes)
    assert written < 10
    wire.answer(FINE)

    assert (await task).body == b"{}"
    assert len(wire.writes) == written
    assert wire.is_closed, "the server would read the rest of the body as the next request"


async def test_an_idle_connection_keeps_neither_request_nor_answer() -> None:
    def check() -> None: ...

    request = weakref.ref(check)
    wire = Wire()
    task = await sending(wire, Request(b"POST / HTTP/1.1\r\n\r\n", b"{}", check=check))
    wire.answer(FINE)
    assert (await task).body == b"{}"
    del task, check
    gc.collect()

    assert wire.connection.is_usable
    assert request() is None


async def test_an_answer_before_the_kernel_has_taken_the_body() -> None:
    wire = Wire()
    task = await sending(wire, Request(b"POST / HTTP/1.1\r\n\r\n", b"x" * PIECE_BYTES))
    wire.unsent_bytes = 1
    wire.answer(FINE)

    assert (await task).body == b"{}"
    assert wire.is_closed


async def test_a_large_body_is_sent_in_pieces_as_fast_as_the_server_reads() -> None:
    body = bytes(range(256)) * 4096 + b"end"
    wire = Wire()
    task = await sending(wire, Request(b"POST / HTTP/1.1\r\n\r\n", body))
    while len(b"".join(wire.writes)) < len(body):
        before = len(wire.writes)
        wire.connection.pause_writing()
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(wire.writes) - before <= 1
        wire.connection.resume_writing()
        for _ in range(5):
            await asyncio.sleep(0)
    wire.answer(FINE)

    assert (await task).body == b"{}"
    assert b"".join(wire.writes) == b"POST / HTTP/1.1\r\n\r\n" + body
    assert max(map(len, wire.writes)) < 2 * PIECE_BYTES
    assert wire.connection.is_usable


@pytest.mark.parametrize(
    ("size", "allowed", "written"),
    [
        pytest.param(10, 0, 0, id="a small body is not sent"),
        pytest.param(5 * PIECE_BYTES, 0, 0, id="a large body is not sent"),
        pytest.param(5 * PIECE_BYTES, 3, 3, id="a large body is not sent to its end"),
    ],
)
async def test_the_check_precedes_each_write(size: int, allowed: int, written: int) -> None:
    left = allowed

    def check() -> None:
        nonlocal left
        if not left:
            raise errors.NotLeading("no")
        left -= 1

    wire = Wire()
    task = asyncio.create_task(wire.connection.send(Request(b"POST / HTTP/1.1\r\n\r\n", b"x" * size, check)))

    with pytest.raises(errors.NotLeading):
        await task
    assert len(wire.writes) == written
    assert wire.is_closed


@pytest.mark.parametrize(
    ("data", "usable"),
    [
        pytest.param(b"HTTP/1.1 200 Connection established\r\n\r\n", True, id="without a length"),
        pytest.param(
            b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n", True, id="with a length, which means nothing"
        ),
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\nx", False, id="with bytes that nobody requested"),
    ],
)
async def test_a_tunnel_begins_after_the_headers(data: bytes, usable: bool) -> None:
    wire = Wire()
    task = await sending(wire, Request(b"CONNECT a:1 HTTP/1.1\r\n\r\n", is_connect=True))
    wire.answer(data)

    assert (await task).status == 200
    assert wire.connection.is_usable is usable


def test_no_option_is_lenient() -> None:
    """Requests smuggled past a proxy use what parsers tolerate."""
    parser = HttpResponseParser(object())
    with pytest.raises(HttpParserError):
        parser.feed_data(b"HTTP/1.1 200 OK\nContent-Length: 0\n\n")
