"""The harness: its controller ends when the block ends, in every case."""

import asyncio

import pytest

from tests.support.faults import Refuse, Rule
from tests.support.harness import running_controller, start_harness


async def test_a_controller_that_never_worked_is_ended_too() -> None:
    async with start_harness(Rule(Refuse(503))) as harness:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5), running_controller(harness):
                pytest.fail("it works without an API server")
        harness.faults.calls.clear()
        await harness.settle(300)

        assert harness.calls == []
