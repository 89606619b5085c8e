"""Connections that stay open between requests."""

import asyncio
import ssl
from collections.abc import Callable

import aiohttp
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from controller.kube.http1 import Answer, HttpConnection, Request
from controller.kube.pool import CONNECT_TIMEOUT_SECONDS, KEEPALIVE_SECONDS, ConnectionPool
from tests.support.wire import Wire

FINE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
GET = Request(b"GET / HTTP/1.1\r\n\r\n", is_repeatable=True)
POST = Request(b"POST / HTTP/1.1\r\n\r\n", b"{}")


class Network:
    """Connections that a pool opens; ``pool`` has at most ``limit`` of them."""

    def __init__(self, limit: int = 4, open_seconds: float = 0.0) -> None:
        self.wires: list[Wire] = []
        self.contexts: list[ssl.SSLContext | None] = []
        self.open_seconds = open_seconds
        self.pool = ConnectionPool(self._dial, limit)

    async def begin(self, request: Request = GET, tls: ssl.SSLContext | None = None) -> asyncio.Task[Answer]:
        """Return the task of a request that is sent, or waits."""
        task = asyncio.create_task(self.pool.send(request, tls))
        await settle()
        return task

    async def call(self, tls: ssl.SSLContext | None = None, wire: int = -1) -> None:
        """Send a request whose answer comes over this connection."""
        task = await self.begin(GET, tls)
        self.wires[wire].answer(FINE)
        await task

    @property
    def open(self) -> list[bool]:
        return [not wire.is_closed for wire in self.wires]

    async def _dial(self, tls: ssl.SSLContext | None) -> HttpConnection:
        await asyncio.sleep(self.open_seconds)
        wire = Wire()
        self.wires.append(wire)
        self.contexts.append(tls)
        return wire.connection


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_a_connection_is_used_again() -> None:
    network = Network()
    for _ in range(3):
        await network.call()

    assert [len(wire.writes) for wire in network.wires] == [3]
    await network.pool.close()
    assert network.open == [False]


async def test_requests_at_the_same_time_use_one_connection_each_up_to_the_limit_and_wait_in_order() -> None:
    network = Network(limit=2)
    tasks = [await network.begin(Request(f"GET /{number} HTTP/1.1\r\n\r\n".encode())) for number in range(6)]
    for wire in (0, 1, 1, 0, 1, 0):
        network.wires[wire].answer(FINE)
        await settle()

    await asyncio.gather(*tasks)
    sent = [b"".join(wire.writes).replace(b" HTTP/1.1\r\n\r\n", b"") for wire in network.wires]
    assert sent == [b"GET /0GET /2GET /5", b"GET /1GET /3GET /4"]
    await network.pool.close()


async def test_a_canceled_request_leaves_its_place_to_the_next() -> None:
    network = Network(limit=1)
    first, second, third = [await network.begin() for _ in range(3)]

    for task in (second, first):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await settle()
    network.wires[-1].answer(FINE)

    assert (await third).status == 200
    assert network.open == [False, True]
    await network.pool.close()


async def test_connections_close_when_they_have_been_idle_for_long() -> None:
    network = Network()
    started = now()
    both = [await network.begin(), await network.begin()]
    for wire in network.wires:
        wire.answer(FINE)
    await asyncio.gather(*both)

    for _ in range(3):
        await asyncio.sleep(KEEPALIVE_SECONDS / 3)
        await network.call(wire=1)
    await settle()
    assert now() - started == KEEPALIVE_SECONDS
    assert network.open == [False, True], "the one that was used last is used again"

    await asyncio.sleep(KEEPALIVE_SECONDS)
    await settle()
    assert network.open == [False, False]
    await network.pool.close()


@given(delay=st.floats(0, 100))
@example(delay=0.1)
async def test_a_connection_closes_at_any_time(delay: float) -> None:
    """Sums of times are not exact."""
    network = Network()
    await asyncio.sleep(delay)
    await network.call()
    await asyncio.sleep(KEEPALIVE_SECONDS + 0.01)

    assert network.open == [False]
    await network.pool.close()


async def test_another_tls_context_opens_another_connection() -> None:
    old, new = (ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) for _ in range(2))
    network = Network()
    await network.call(old)
    await network.call(old)
    running = await network.begin(GET, old)
    idle = await network.begin(GET, old)
    network.wires[1].answer(FINE)
    await idle

    await network.call(new)
    assert network.contexts == [old, old, new]
    assert network.open == [True, False, True], "requests that are sent end where they began"

    network.wires[0].answer(FINE)
    assert (await running).status == 200
    await network.call(new)
    assert network.open == [False, False, True]
    await network.pool.close()


def end(wire: Wire) -> None:
    wire.end()


def reset(wire: Wire) -> None:
    wire.reset()


@pytest.mark.parametrize("break_it", [end, reset])
async def test_a_read_is_sent_again_if_its_old_connection_ends_without_an_answer(
    break_it: Callable[[Wire], None],
) -> None:
    network = Network()
    await network.call()
    task = await network.begin()
    break_it(network.wires[0])
    await settle()
    network.wires[1].answer(FINE)

    assert (await task).body == b"{}"
    assert [len(wire.writes) for wire in network.wires] == [2, 1]
    await network.pool.close()


async def test_a_read_is_sent_again_over_a_new_connection_and_only_once() -> None:
    network = Network()
    tasks = [await network.begin() for _ in range(3)]
    for wire in network.wires:
        wire.answer(FINE)
    await asyncio.gather(*tasks)
    task = await network.begin()
    (busy,) = [wire for wire in network.wires if len(wire.writes) == 2]
    busy.end()
    await settle()
    assert len(network.wires) == 4, "the other idle ones may have ended, too"
    network.wires[3].end()

    with pytest.raises(aiohttp.ServerDisconnectedError):
        await task
    assert len(network.wires) == 4
    await network.pool.close()


@pytest.mark.parametrize("break_it", [end, reset])
@pytest.mark.parametrize(
    ("request_", "is_first", "before"),
    [
        pytest.param(POST, False, b"", id="a write"),
        pytest.param(GET, True, b"", id="a read over a new connection"),
        pytest.param(GET, False, b"H", id="a read whose answer had begun"),
    ],
)
async def test_what_is_not_sent_again(
    request_: Request, is_first: bool, before: bytes, break_it: Callable[[Wire], None]
) -> None:
    network = Network()
    if not is_first:
        await network.call()
    task = await network.begin(request_)
    network.wires[0].answer(before)
    break_it(network.wires[0])

    with pytest.raises(aiohttp.ClientError):
        await task
    assert len(network.wires) == 1
    await network.pool.close()


async def test_a_connection_that_the_server_has_closed_is_not_used() -> None:
    network = Network()
    await network.call()
    network.wires[0].end()
    task = await network.begin(POST)
    network.wires[1].answer(FINE)

    assert (await task).status == 200
    assert len(network.wires[0].writes) == 1
    await network.pool.close()


async def test_a_server_that_closes_after_each_answer() -> None:
    network = Network()
    for _ in range(2):
        task = await network.begin()
        network.wires[-1].answer(FINE.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        await task

    assert network.open == [False, False]
    await network.pool.close()


async def test_the_time_to_connect_is_limited() -> None:
    network = Network(limit=1, open_seconds=1e6)
    started = now()
    with pytest.raises(aiohttp.ConnectionTimeoutError, match="within 10 s"):
        await network.pool.send(GET)
    assert now() - started == CONNECT_TIMEOUT_SECONDS

    network.open_seconds = CONNECT_TIMEOUT_SECONDS - 1
    task = asyncio.create_task(network.pool.send(GET))
    await asyncio.sleep(CONNECT_TIMEOUT_SECONDS)
    network.wires[0].answer(FINE)
    assert (await task).status == 200
    await network.pool.close()


async def test_a_closed_pool_ends_requests_and_sends_no_more() -> None:
    network = Network(limit=2)
    await network.call()
    sent = await network.begin()
    network.open_seconds = 1.0
    connecting, waiting = await network.begin(), await network.begin()
    await network.pool.close()

    for task in (sent, connecting, waiting):
        with pytest.raises(aiohttp.ClientConnectionError):
            await task
    with pytest.raises(aiohttp.ClientConnectionError, match="closed"):
        await network.pool.send(GET)
    await settle()
    assert not any(network.open)
