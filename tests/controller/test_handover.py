"""A controller takes over while its watches lag: it creates no pod twice and counts no failure twice.

Each run ends the first controller after another one of its writes, by a kill or by a handover. Until then the second one hears nothing of
what the first one does.
"""

import asyncio
import itertools
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from typing_extensions import override

from controller import app
from controller.runtime.leader import DEFAULTS
from rallypoint.local.apiserver.serving.interceptor import Call
from tests.support import fake_time
from tests.support.faults import Faults
from tests.support.harness import (
    NAMESPACE,
    TEST_SETTINGS,
    TEST_USER_AGENT,
    Harness,
    fake_clock,
    running_controller,
    start_harness,
)
from tests.support.history import History, record_history
from tests.support.scenarios import EXHAUSTED, RESTARTED, Outcome, Scenario, ScenarioRunner

JOB = "train"
LEADING = replace(TEST_SETTINGS, leader_elect=True, leader_election_namespace=NAMESPACE)
LAG_SECONDS = 2 * DEFAULTS.lease
"""Longer than a Lease without a holder lasts: the second controller leads before it hears of the first one's writes."""

STEP = 3
"""Every third write, because a run takes a second."""


class Lagging(Faults):
    """Delays the events of the watches whose calls are in ``lagging``, and sets ``reached`` after so many writes."""

    def __init__(self, write: int) -> None:
        super().__init__(spared=TEST_USER_AGENT)
        self.lagging: set[int] = set()
        """Calls by ``id``: those of different controllers are equal."""
        self.reached = asyncio.Event()
        self.writes = 0
        self._write = write

    @override
    async def after(self, call: Call) -> None:
        if call.user_agent != self.spared and call.plural != "leases" and call.method != "GET":
            self.writes += 1
            if self.writes == self._write:
                self.reached.set()
        await super().after(call)

    @override
    async def passes(self, call: Call, frame: bytes) -> bool:
        if id(call) in self.lagging:
            await asyncio.sleep(LAG_SECONDS)
        return await super().passes(call, frame)


@asynccontextmanager
async def standby(harness: Harness, faults: Lagging) -> AsyncGenerator[None]:
    """Run a second controller, whose watches lag once its caches are filled."""
    ready, before = asyncio.Event(), len(faults.calls)
    time = asyncio.get_running_loop().time
    task = asyncio.create_task(app.run(LEADING, harness.connection, time=time, on_ready=ready.set))
    try:
        await ready.wait()
        faults.lagging.update(
            id(call) for call in faults.calls[before:] if call.verb == "watch" and call.plural != "leases"
        )
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def hand_over(scenario: Scenario, faults: Lagging, *, is_killed: bool) -> History:
    with fake_clock() as clock:
        async with (
            start_harness(faults=faults, clock=clock) as harness,
            record_history(harness.client, harness.namespace) as history,
        ):
            stop = asyncio.Event()
            async with running_controller(harness, LEADING, stop=stop) as first, standby(harness, faults):
                job = asyncio.create_task(ScenarioRunner(harness, history).run_scenario(scenario, JOB))
                reached = asyncio.create_task(faults.reached.wait())
                await asyncio.wait([job, reached], return_when=asyncio.FIRST_COMPLETED)
                reached.cancel()
                if is_killed:
                    first.cancel()
                else:
                    stop.set()
                await job
                await harness.settle(2 * LAG_SECONDS)
    return history


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "stopped"])
@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(EXHAUSTED, id="exhausted"),
        pytest.param(RESTARTED, id="restarted"),
    ],
)
def test_a_job_reaches_the_same_end_if_another_controller_takes_over(
    scenario: Scenario, is_killed: bool
) -> None:
    for number in itertools.count(1, STEP):
        faults = Lagging(number)
        loop = fake_time.new_event_loop()
        try:
            history = loop.run_until_complete(hand_over(scenario, faults, is_killed=is_killed))
            assert Outcome.of(JOB, history) == scenario.outcome
        except BaseException as error:
            error.add_note(f"the first controller ended after write {number}")
            raise
        finally:
            loop.close()
        if not faults.reached.is_set():
            break
