"""The stage: a controller that is put on it is gone when its block is left, however that comes."""

import asyncio

import pytest

from rallypoint.testing.faults import Refuse, Rule
from rallypoint.testing.harness import controlling, stage


async def test_a_controller_that_never_came_to_work_is_gone_all_the_same() -> None:
    async with stage(Rule(Refuse(503))) as on:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5), controlling(on):
                pytest.fail("it works without an API server")
        on.faults.calls.clear()
        await on.settled(300)

        assert on.calls == []
