"""Simulated time: clocks with different rates, stalled processes, and messages that are late or lost."""

import asyncio
from collections.abc import Iterator

import pytest

from controller.kube.errors import Conflict, NotFound
from tests.support.simulation import SimulatedClient, SimulatedLoop, SimulatedServer, Simulation


@pytest.fixture
def simulation() -> Iterator[Simulation]:
    made = Simulation()
    yield made
    made.close()


def ticks(loop: SimulatedLoop, seconds: float) -> list[float]:
    """The true times at which the process of that loop wakes up."""
    wake_ups: list[float] = []

    async def tick() -> None:
        while True:
            await asyncio.sleep(seconds)
            wake_ups.append(round(loop.time(), 3))

    _ = loop.create_task(tick())
    return wake_ups


def test_clocks_run_at_their_own_rates(simulation: Simulation) -> None:
    slow, fast = (ticks(SimulatedLoop(simulation, rate), 1) for rate in (0.5, 2.0))

    simulation.advance(2.1)

    assert (slow, fast) == ([1], [1, 2, 3, 4])


def test_a_stalled_process_does_nothing_while_its_clock_runs(simulation: Simulation) -> None:
    loop = SimulatedLoop(simulation, 1.0)
    wake_ups = ticks(loop, 1)
    simulation.advance(1.5)
    loop.paused_until = 10.0
    simulation.advance(8)
    assert wake_ups == [1]

    simulation.advance(1)
    assert wake_ups == [1, 10]


def request_lock(loop: SimulatedLoop, client: SimulatedClient) -> "asyncio.Task[bytes]":
    return loop.create_task(client.as_client().get(None, "default", "lock"))  # type: ignore[arg-type]


def test_messages_are_delayed(simulation: Simulation) -> None:
    loop = SimulatedLoop(simulation, 1.0)
    simulation.latency = 0.5
    answer = request_lock(loop, SimulatedClient(simulation, loop, SimulatedServer()))
    simulation.advance(0.9)
    assert not answer.done()

    simulation.advance(0.2)
    assert isinstance(answer.exception(), NotFound)


@pytest.mark.parametrize("lost", ["receives", "sends"])
def test_messages_are_lost(simulation: Simulation, lost: str) -> None:
    loop = SimulatedLoop(simulation, 1.0)
    client = SimulatedClient(simulation, loop, SimulatedServer())
    setattr(client, lost, False)
    answer = request_lock(loop, client)

    simulation.advance(100)

    assert not answer.done()


def test_a_message_arrives_though_its_sender_is_stalled(simulation: Simulation) -> None:
    loop, arrived = SimulatedLoop(simulation, 1.0), list[float]()

    def arrive() -> bytes:
        arrived.append(simulation.now)
        return b""

    _ = loop.create_task(SimulatedClient(simulation, loop, SimulatedServer()).call(arrive))
    simulation.advance(0)
    loop.paused_until = 50.0
    simulation.advance(1)

    assert arrived == [simulation.latency]


def test_the_server_rejects_a_write_with_an_old_version() -> None:
    server = SimulatedServer()
    made = server.write("default", "", b'{"metadata": {"name": "lock"}}', is_new=True)
    server.write("default", "lock", made, is_new=False)

    with pytest.raises(Conflict):
        server.write("default", "lock", made, is_new=False)
