"""The controller is killed at any of its calls, before it or after it: the job's life ends as if nothing had been.

Each life is cut once, at another call each time, until there is none left to cut at. tests/integration/test_kill.py does the same to a
process on a real API server.
"""

import itertools

import looptime
import orjson
import pytest
from structlog.testing import capture_logs

from api.meta import EVENTS
from rallypoint.testing.crash_injection import Cut, Killer, Moment, undying
from rallypoint.testing.harness import UNWARMED, daytime, stage
from rallypoint.testing.history import History, recorded
from rallypoint.testing.scenarios import ELASTIC, EXHAUSTED, PAUSED, WHOLE, Actors, Ending, Play

JOB = "train"
PLAYS = [
    pytest.param(WHOLE, id="whole"),
    pytest.param(PAUSED, id="paused"),
    pytest.param(ELASTIC, id="elastic"),
    pytest.param(EXHAUSTED, id="exhausted"),
]


async def live(play: Play, killer: Killer) -> tuple[History, set[str]]:
    """One whole life of a job; what was owed to its readers when the controller was killed."""
    owed: set[str] = set()
    with daytime() as clock:
        async with stage(faults=killer, clock=clock) as on, recorded(on.client, on.namespace) as history:
            actors = Actors(on, history)

            async def look() -> None:
                unsent = {
                    orjson.loads(call.body)["reason"]
                    for call in killer.killed_at
                    if (call.verb, call.plural) == ("create", EVENTS.plural)
                }
                owed.update(unsent, await actors.owed(JOB))

            async with undying(on, killer, UNWARMED, between=look):
                await actors.perform(play, JOB)
                await on.settled(20)
    return history, owed


def ended(play: Play, killer: Killer) -> tuple[History, set[str]]:
    loop = looptime.new_event_loop(start=0)
    try:
        return loop.run_until_complete(live(play, killer))
    finally:
        loop.close()


@pytest.mark.parametrize("play", PLAYS)
def test_undisturbed(play: Play) -> None:
    history, _ = ended(play, Killer())

    assert Ending.of(JOB, history) == play.ending
    assert play.told <= history.told().keys()


@pytest.mark.parametrize("moment", Moment)
@pytest.mark.parametrize("play", PLAYS)
def test_killed_at_any_call(play: Play, moment: Moment) -> None:
    """What a condition says is told, too, unless the controller dies between the status and its event."""
    for number in itertools.count(1):
        killer = Killer(Cut(number, moment))
        try:
            with capture_logs() as logs:
                history, owed = ended(play, killer)
            if killer.reached < number:
                break
            assert Ending.of(JOB, history) == play.ending
            assert play.told - history.told().keys() <= owed
            assert not [line for line in logs if "exc_info" in line]
        except BaseException as error:
            error.add_note(f"killed {moment} call {number}: {killer.killed_at}")
            raise
