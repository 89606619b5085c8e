"""The cost of a coroutine, by a clock that only its own steps advance."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from controller.runtime.cost import Cost


class Cpu:
    """A clock of CPU time."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


async def test_only_the_steps_count_and_not_the_time_between() -> None:
    cpu = Cpu()
    cost = Cost(cpu)

    async def work() -> str:
        cpu.seconds += 1
        await asyncio.sleep(60)
        cpu.seconds += 2
        await asyncio.sleep(60)
        cpu.seconds += 4
        return "done"

    async def others() -> None:
        for _ in range(10):
            await asyncio.sleep(11)
            cpu.seconds += 100

    other = asyncio.create_task(others())
    assert await cost.measured(work()) == "done"
    assert cost.busy_seconds == 7
    await other


async def test_an_error_passes_through_and_its_step_counts() -> None:
    cpu = Cpu()
    cost = Cost(cpu)

    async def work() -> None:
        await asyncio.sleep(0)
        cpu.seconds += 3
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await cost.measured(work())
    assert cost.busy_seconds == 3


async def test_a_canceled_coroutine_cleans_up_and_that_counts() -> None:
    cpu = Cpu()
    cost = Cost(cpu)

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            cpu.seconds += 5
            await asyncio.sleep(1)
            cpu.seconds += 6

    task = asyncio.ensure_future(_run(cost, work()))
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cost.busy_seconds == 11


async def test_a_timeout_reaches_the_coroutine() -> None:
    cost = Cost(Cpu())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5):
            await cost.measured(asyncio.sleep(60))


async def _run(cost: Cost, work: Coroutine[Any, Any, None]) -> None:
    await cost.measured(work)
