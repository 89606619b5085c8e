"""The controller is killed before or after any of its calls; the job reaches the same end.

Each run kills the controller once, at another call each time, until no call is left. tests/integration/test_kill.py does the same to a
process on a real API server.
"""

import itertools

import orjson
import pytest
from structlog.testing import capture_logs

from api.meta import EVENTS
from tests.support import fake_time
from tests.support.crash_injection import (
    CrashInjector,
    CrashPoint,
    Moment,
    crash_every,
    restarting_controller,
)
from tests.support.harness import UNLIMITED_SETTINGS, fake_clock, start_harness
from tests.support.history import History, record_history
from tests.support.scenarios import (
    ELASTIC,
    EXHAUSTED,
    LOST,
    PAUSED,
    RESTARTED,
    RESTARTED_IN_PLACE,
    SHARED,
    WHOLE,
    Outcome,
    Scenario,
    ScenarioRunner,
)

JOB = "train"
SCENARIOS = [
    pytest.param(WHOLE, id="whole"),
    pytest.param(SHARED, id="with one Service"),
    pytest.param(PAUSED, id="paused"),
    pytest.param(ELASTIC, id="elastic"),
    pytest.param(EXHAUSTED, id="exhausted"),
    pytest.param(RESTARTED, id="restarted"),
    pytest.param(LOST, id="lost"),
    pytest.param(RESTARTED_IN_PLACE, id="restarted in place"),
]


async def live(scenario: Scenario, injector: CrashInjector) -> tuple[History, set[str]]:
    """Run a job to its end; return its history and the event reasons that the killed controller could not record."""
    owed: set[str] = set()
    with fake_clock() as clock:
        async with (
            start_harness(faults=injector, clock=clock) as harness,
            record_history(harness.client, harness.namespace) as history,
        ):
            runner = ScenarioRunner(harness, history)

            async def observe() -> None:
                unsent = {
                    orjson.loads(call.body)["reason"]
                    for call in injector.crashed_calls
                    if (call.verb, call.plural) == ("create", EVENTS.plural)
                }
                owed.update(unsent, await runner.unrecorded_reasons(JOB))

            async with restarting_controller(harness, injector, UNLIMITED_SETTINGS, between=observe):
                await runner.run_scenario(scenario, JOB)
                await harness.settle(20)
    return history, owed


def ended(scenario: Scenario, injector: CrashInjector) -> tuple[History, set[str]]:
    loop = fake_time.new_event_loop()
    try:
        return loop.run_until_complete(live(scenario, injector))
    finally:
        loop.close()


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_an_undisturbed_job_reaches_its_end(scenario: Scenario) -> None:
    history, _ = ended(scenario, CrashInjector())

    assert Outcome.of(JOB, history) == scenario.outcome
    assert scenario.event_reasons <= history.event_counts().keys()


@crash_every(6, full=1)
@pytest.mark.parametrize("moment", Moment)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_controller_killed_at_any_call_reaches_the_same_end(
    scenario: Scenario, moment: Moment, every: int
) -> None:
    """Each condition has its event, too, unless the controller dies between the status and the event."""
    for number in itertools.count(1, every):
        injector = CrashInjector(CrashPoint(number, moment))
        try:
            with capture_logs() as logs:
                history, owed = ended(scenario, injector)
            if injector.call_count < number:
                break
            assert Outcome.of(JOB, history) == scenario.outcome
            assert scenario.event_reasons - history.event_counts().keys() <= owed
            assert not [line for line in logs if "exc_info" in line]
        except BaseException as error:
            error.add_note(f"killed {moment} call {number}: {injector.crashed_calls}")
            raise
