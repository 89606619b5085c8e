"""Probes of servers at an address, with real sockets and real time."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from controller.runtime import prober
from controller.runtime.prober import ProbeTarget, TCPProber, until_answered

pytestmark = pytest.mark.looptime(False)
LOCALHOST = "127.0.0.1"


@asynccontextmanager
async def saying(text: bytes, silent: bool = False) -> AsyncIterator[int]:
    """The port of a server that greets with that, or keeps the connection and says nothing."""
    done = asyncio.Event()

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(text)
        if silent:
            await done.wait()
        writer.close()

    server = await asyncio.start_server(greet, LOCALHOST, 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
        done.set()


@asynccontextmanager
async def unused() -> AsyncIterator[int]:
    """A port that refuses connections."""
    async with saying(b"") as port:
        pass
    yield port


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("TRY_SECONDS", 0.2), ("PAUSE_SECONDS", 0.02), ("LONGEST_SECONDS", 0.5)):
        monkeypatch.setattr(prober, name, seconds)


def target(*ports: int, name: str = "pod") -> ProbeTarget:
    return ProbeTarget(name, LOCALHOST, ports, b"SSH-")


async def test_a_server_that_sends_its_banner_is_up() -> None:
    async with saying(b"SSH-2.0-OpenSSH_9\r\n") as port:
        assert await until_answered(target(port))


async def test_a_single_answering_port_is_enough() -> None:
    async with unused() as closed, saying(b"SSH-2.0-x\r\n") as port:
        assert await until_answered(target(closed, port))


async def test_a_server_that_starts_during_the_probe_is_up() -> None:
    async with unused() as port:
        asking = asyncio.create_task(until_answered(target(port)))
        await asyncio.sleep(0.1)

        async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"SSH-2.0-x\r\n")
            writer.close()

        async with await asyncio.start_server(greet, LOCALHOST, port):
            assert await asking


@pytest.mark.parametrize(
    ("make", "why"),
    [
        pytest.param(unused, "refused", id="nothing listens"),
        pytest.param(lambda: saying(b"HTTP/1.1 400\r\n"), "other", id="another server listens"),
        pytest.param(lambda: saying(b"SS"), "short", id="the server hangs up"),
        pytest.param(lambda: saying(b"", silent=True), "silent", id="the server stays silent"),
    ],
)
async def test_a_probe_ends_without_an_answer(
    make: Callable[[], AbstractAsyncContextManager[int]], why: str
) -> None:
    async with make() as port:
        assert not await until_answered(target(port)), why


async def test_an_unreachable_address_is_given_up() -> None:
    """Where no route leads, twice is enough."""
    assert not await until_answered(ProbeTarget("pod", "192.0.2.1", (22,), b"SSH-"))


async def test_each_target_is_probed_once_and_remembered() -> None:
    answers: list[str] = []
    async with saying(b"SSH-2.0-x\r\n") as port:
        tcp_prober = TCPProber()
        running = asyncio.create_task(tcp_prober.run())
        over = asyncio.Event()

        def heard() -> None:
            answers.append("pod")
            over.set()

        for _ in range(3):
            tcp_prober.probe(target(port), heard)
        await over.wait()
        tcp_prober.probe(target(port), lambda: answers.append("again"))
        await asyncio.sleep(0.05)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    assert answers == ["pod"]
    assert "pod" in tcp_prober.answered


async def test_the_number_of_remembered_answers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prober, "REMEMBERED", 2)
    tcp_prober, over = TCPProber(), asyncio.Queue[None]()
    async with saying(b"SSH-2.0-x\r\n") as port:
        running = asyncio.create_task(tcp_prober.run())
        for name in ("a", "b", "c"):
            tcp_prober.probe(target(port, name=name), lambda: over.put_nowait(None))
            await over.get()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    assert [name for name in ("a", "b", "c") if name in tcp_prober.answered] == ["b", "c"]
