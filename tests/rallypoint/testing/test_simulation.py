"""Made-up time: clocks at their own rates, stalls, and messages that are late or lost."""

import asyncio
from collections.abc import Iterator

import pytest

from controller.kube.errors import Conflict, NotFound
from rallypoint.testing.simulation import Island, Line, Server, World


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


def ticks(island: Island, seconds: float) -> list[float]:
    """The true times at which a process of that island wakes up, as they come."""
    seen: list[float] = []

    async def tick() -> None:
        while True:
            await asyncio.sleep(seconds)
            seen.append(round(island.time(), 3))

    _ = island.create_task(tick())
    return seen


def test_clocks_go_at_their_own_rates(world: World) -> None:
    slow, fast = (ticks(Island(world, rate), 1) for rate in (0.5, 2.0))

    world.advance(2.1)

    assert (slow, fast) == ([1], [1, 2, 3, 4])


def test_whoever_is_stalled_does_nothing_while_its_clock_goes_on(world: World) -> None:
    island = Island(world, 1.0)
    seen = ticks(island, 1)
    world.advance(1.5)
    island.stalled_until = 10.0
    world.advance(8)
    assert seen == [1]

    world.advance(1)
    assert seen == [1, 10]


def asked(island: Island, line: Line) -> "asyncio.Task[bytes]":
    return island.create_task(line.as_client().get(None, "default", "lock"))  # type: ignore[arg-type]


def test_messages_take_their_time(world: World) -> None:
    island = Island(world, 1.0)
    world.latency = 0.5
    answer = asked(island, Line(world, island, Server()))
    world.advance(0.9)
    assert not answer.done()

    world.advance(0.2)
    assert isinstance(answer.exception(), NotFound)


@pytest.mark.parametrize("lost", ["hears", "is_heard"])
def test_messages_get_lost(world: World, lost: str) -> None:
    island = Island(world, 1.0)
    line = Line(world, island, Server())
    setattr(line, lost, False)
    answer = asked(island, line)

    world.advance(100)

    assert not answer.done()


def test_what_was_sent_arrives_though_its_sender_is_stalled(world: World) -> None:
    island, arrived = Island(world, 1.0), list[float]()

    def arrive() -> bytes:
        arrived.append(world.now)
        return b""

    _ = island.create_task(Line(world, island, Server()).call(arrive))
    world.advance(0)
    island.stalled_until = 50.0
    world.advance(1)

    assert arrived == [world.latency]


def test_the_server_refuses_what_rests_on_an_old_version() -> None:
    server = Server()
    made = server.write("default", "", b'{"metadata": {"name": "lock"}}', is_new=True)
    server.write("default", "lock", made, is_new=False)

    with pytest.raises(Conflict):
        server.write("default", "lock", made, is_new=False)
