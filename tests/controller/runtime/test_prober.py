"""Asking at an address whether a server is up: real sockets, on real time."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from controller.runtime import prober
from controller.runtime.prober import ProbeTarget, TCPProber, until_answered

pytestmark = pytest.mark.looptime(False)
HERE = "127.0.0.1"


@asynccontextmanager
async def saying(text: bytes, silent: bool = False) -> AsyncIterator[int]:
    """The port of a server that greets with that, or keeps the connection and says nothing."""
    done = asyncio.Event()

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(text)
        if silent:
            await done.wait()
        writer.close()

    server = await asyncio.start_server(greet, HERE, 0)
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


def door(*ports: int, name: str = "pod") -> ProbeTarget:
    return ProbeTarget(name, HERE, ports, b"SSH-")


async def test_a_server_that_greets_is_up() -> None:
    async with saying(b"SSH-2.0-OpenSSH_9\r\n") as port:
        assert await until_answered(door(port))


async def test_one_of_several_ports_will_do() -> None:
    async with unused() as closed, saying(b"SSH-2.0-x\r\n") as port:
        assert await until_answered(door(closed, port))


async def test_one_that_comes_up_meanwhile() -> None:
    async with unused() as port:
        asking = asyncio.create_task(until_answered(door(port)))
        await asyncio.sleep(0.1)

        async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"SSH-2.0-x\r\n")
            writer.close()

        async with await asyncio.start_server(greet, HERE, port):
            assert await asking


@pytest.mark.parametrize(
    ("make", "why"),
    [
        pytest.param(unused, "refused", id="nobody listens"),
        pytest.param(lambda: saying(b"HTTP/1.1 400\r\n"), "other", id="somebody else does"),
        pytest.param(lambda: saying(b"SS"), "short", id="one that hangs up"),
        pytest.param(lambda: saying(b"", silent=True), "silent", id="one that says nothing"),
    ],
)
async def test_nobody_is_asked_for_ever(
    make: Callable[[], AbstractAsyncContextManager[int]], why: str
) -> None:
    async with make() as port:
        assert not await until_answered(door(port)), why


async def test_an_address_that_leads_nowhere() -> None:
    """Where no route leads, twice is enough."""
    assert not await until_answered(ProbeTarget("pod", "192.0.2.1", (22,), b"SSH-"))


async def test_each_is_asked_once_and_remembered() -> None:
    told: list[str] = []
    async with saying(b"SSH-2.0-x\r\n") as port:
        asker = TCPProber()
        running = asyncio.create_task(asker.run())
        over = asyncio.Event()

        def heard() -> None:
            told.append("pod")
            over.set()

        for _ in range(3):
            asker.probe(door(port), heard)
        await over.wait()
        asker.probe(door(port), lambda: told.append("again"))
        await asyncio.sleep(0.05)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    assert told == ["pod"]
    assert "pod" in asker.answered


async def test_no_more_are_remembered_than_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prober, "REMEMBERED", 2)
    asker, over = TCPProber(), asyncio.Queue[None]()
    async with saying(b"SSH-2.0-x\r\n") as port:
        running = asyncio.create_task(asker.run())
        for name in ("a", "b", "c"):
            asker.probe(door(port, name=name), lambda: over.put_nowait(None))
            await over.get()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    assert [name for name in ("a", "b", "c") if name in asker.answered] == ["b", "c"]
