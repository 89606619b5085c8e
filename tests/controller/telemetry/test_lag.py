"""The lag of the event loop: late timers count, early timers do not, and the maximum expires."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from controller.telemetry.lag import PERIOD_SECONDS, WINDOW_SECONDS, Lag


class Clock:
    """The loop's time, and what callbacks have used of it besides."""

    used = 0.0

    def __call__(self) -> float:
        return asyncio.get_running_loop().time() + self.used


@asynccontextmanager
async def measuring(observe: Callable[[float], None], clock: Clock) -> AsyncIterator[Lag]:
    lag = Lag(observe, clock)
    task = asyncio.create_task(lag.run())
    await asyncio.sleep(0)
    try:
        yield lag
    finally:
        task.cancel()


async def test_an_idle_loop_is_on_time() -> None:
    lags: list[float] = []
    async with measuring(lags.append, Clock()) as lag:
        await asyncio.sleep(10.25)

        assert len(lags) == 10.25 // PERIOD_SECONDS
        assert max(lags) < 1e-6
        assert lag.longest_seconds() < 1e-6


async def test_a_stall_is_reported_once() -> None:
    lags: list[float] = []
    clock = Clock()
    async with measuring(lags.append, clock):
        await asyncio.sleep(1.25)
        clock.used += 0.3
        await asyncio.sleep(1)

    assert [round(seconds, 6) for seconds in lags] == [0, 0, 0.3, 0]


async def test_the_longest_lag_is_reported_for_60_to_120_seconds() -> None:
    clock = Clock()
    async with measuring(lambda late: None, clock) as lag:
        await asyncio.sleep(1.25)
        clock.used += 0.3
        await asyncio.sleep(1)
        clock.used += 0.1
        await asyncio.sleep(WINDOW_SECONDS)
        assert round(lag.longest_seconds(), 6) == 0.3
        await asyncio.sleep(WINDOW_SECONDS + 1)
        assert lag.longest_seconds() < 1e-6


async def test_a_timer_that_comes_early_is_on_time() -> None:
    lags: list[float] = []
    clock = Clock()
    async with measuring(lags.append, clock):
        await asyncio.sleep(0.25)
        clock.used -= 0.001
        await asyncio.sleep(0.5)

    assert lags == [0]
