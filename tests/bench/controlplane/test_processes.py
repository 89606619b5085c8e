"""CPU time and memory of the test process."""

import asyncio
import os

import pytest

from bench.controlplane.processes import (
    IDLE_SECONDS,
    cpu_ms,
    peak_rss_mib,
    reset_peak_rss,
    rss_mib,
    wait_until_idle,
)


def test_work_takes_cpu_time() -> None:
    before = cpu_ms(os.getpid())
    sum(range(10_000_000))

    assert cpu_ms(os.getpid()) > before


def test_the_peak_is_at_least_the_resident_memory() -> None:
    reset_peak_rss(os.getpid())

    assert peak_rss_mib(os.getpid()) >= 0.9 * rss_mib(os.getpid()) > 1


async def test_a_process_is_idle_when_it_has_taken_little_time_for_a_while() -> None:
    loop = asyncio.get_running_loop()
    started, busy = loop.time(), IDLE_SECONDS / 2
    loop.call_later(busy, lambda: sum(range(20_000_000)))

    since = await wait_until_idle(os.getpid())

    assert started + busy <= since
    assert loop.time() - since == pytest.approx(IDLE_SECONDS)
