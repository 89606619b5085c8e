"""Leader election with several candidates: who leads, when, and which calls it takes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import orjson
import pytest
from structlog.testing import capture_logs

from api.meta import LEASES
from controller.kube.client import Client
from controller.kube.errors import NotLeading
from controller.runtime.leader import Election, new_identity
from tests.support.faults import Cut, Delay, Refuse, Reset, Rule
from tests.support.harness import NAMESPACE, Harness, start_harness

FIRST = (NAMESPACE, "first")
SECOND = (NAMESPACE, "second")
AT_ONCE = 0.1
LEASE_SECONDS, DEADLINE_SECONDS, RETRY_SECONDS = 15.0, 10.0, 2.0


class RecordingObserver:
    """An observer that records its calls."""

    def __init__(self) -> None:
        self.leading_now: dict[str, bool] = {}
        self.slow: list[str] = []

    def leading(self, name: str, is_leading: bool) -> None:
        self.leading_now[name] = is_leading

    def slow_path(self, name: str) -> None:
        self.slow.append(name)


@dataclass(frozen=True, slots=True)
class Candidate:
    election: Election
    task: "asyncio.Task[None]"
    observer: RecordingObserver

    @property
    def leads(self) -> bool:
        return self.election.won.is_set()

    async def dies(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def stops(self) -> None:
        await self.dies()
        await self.election.release()


@asynccontextmanager
async def candidate(harness: Harness, identity: str, *leases: tuple[str, str]) -> AsyncIterator[Candidate]:
    """Run a candidate until the block ends, then kill it."""
    loop = asyncio.get_running_loop()
    async with Client(harness.connection, user_agent=identity) as client:
        observer = RecordingObserver()
        election = Election(
            client,
            leases or (FIRST,),
            identity,
            time=loop.time,
            chance=lambda: 0.5,
            observer=observer,
        )
        running = Candidate(election, asyncio.create_task(election.run()), observer)
        try:
            yield running
        finally:
            await running.dies()


async def spec(harness: Harness, name: str = "first") -> dict[str, Any]:
    found: dict[str, Any] = (await harness.get(LEASES, name))["spec"]
    return found


def calls(harness: Harness, identity: str, *verbs: str) -> list[str]:
    return [call.verb for call in harness.calls if call.user_agent == identity and call.verb in verbs]


async def seconds_until(holds: Callable[[], bool], limit: float = 60) -> float:
    loop = asyncio.get_running_loop()
    started = loop.time()
    while not holds():
        assert loop.time() - started < limit
        await asyncio.sleep(0.01)
    return loop.time() - started


async def test_a_single_candidate_leads_at_once() -> None:
    async with start_harness() as harness, candidate(harness, "a") as a:
        assert not a.leads
        assert a.observer.leading_now == {"first": False}
        await harness.settle(AT_ONCE)

        assert a.leads
        assert a.observer.leading_now == {"first": True}
        assert a.election.permit() == pytest.approx(DEADLINE_SECONDS, abs=AT_ONCE)
        held = await spec(harness)
        assert (held["holderIdentity"], held["leaseDurationSeconds"], held["leaseTransitions"]) == (
            "a",
            15,
            0,
        )


async def test_a_renewal_is_a_single_call() -> None:
    async with start_harness() as harness, candidate(harness, "a") as a:
        await harness.settle(AT_ONCE)
        harness.faults.calls.clear()
        await harness.settle(20 * RETRY_SECONDS)

        assert 19 <= len(calls(harness, "a", "update")) <= 20
        assert calls(harness, "a", "get", "list", "create", "watch") == []
        assert a.observer.slow == []
        assert a.election.permit() > DEADLINE_SECONDS - RETRY_SECONDS - AT_ONCE


async def test_a_waiting_candidate_makes_no_calls_while_it_observes_renewals() -> None:
    async with start_harness() as harness, candidate(harness, "a"):
        await harness.settle(AT_ONCE)
        async with candidate(harness, "b") as b:
            await harness.settle(1)
            harness.faults.calls.clear()
            await harness.settle(100)

            assert not b.leads
            assert b.election.permit() <= 0
            assert calls(harness, "b", "get", "list", "create", "update") == []


async def test_a_released_lease_is_acquired_at_once() -> None:
    async with start_harness() as harness, candidate(harness, "a") as a:
        await harness.settle(AT_ONCE)
        async with candidate(harness, "b") as b:
            await harness.settle(30)
            await a.stops()

            assert a.observer.leading_now == {"first": False}
            assert a.election.permit() <= 0
            assert await seconds_until(lambda: b.leads) < AT_ONCE
            held = await spec(harness)
            assert (held["holderIdentity"], held["leaseTransitions"]) == ("b", 1)


async def test_a_released_lease_has_no_holder() -> None:
    async with start_harness() as harness, candidate(harness, "a") as a:
        await harness.settle(AT_ONCE)
        await a.stops()

        held = await spec(harness)
        assert (held["holderIdentity"], held["leaseDurationSeconds"]) == ("", 1)


async def test_the_lease_of_a_dead_holder_is_waited_for() -> None:
    async with start_harness() as harness, candidate(harness, "a") as a, candidate(harness, "b") as b:
        await harness.settle(30)
        assert [a.leads, b.leads] == [True, False]
        await a.dies()

        waited = await seconds_until(lambda: b.leads)
        assert LEASE_SECONDS - RETRY_SECONDS - AT_ONCE <= waited <= LEASE_SECONDS + AT_ONCE


async def test_times_in_the_lease_are_ignored() -> None:
    """One that is long over by its own account may have been written by a clock that is slow."""
    long_ago = "2001-01-01T00:00:00.000000Z"
    async with start_harness() as harness:
        body = {
            "metadata": {"name": "first"},
            "spec": {"holderIdentity": "x", "leaseDurationSeconds": 15, "renewTime": long_ago},
        }
        await harness.create(LEASES, {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **body})
        async with candidate(harness, "a") as a:
            waited = await seconds_until(lambda: a.leads)

            assert waited == pytest.approx(LEASE_SECONDS, abs=AT_ONCE)


async def test_the_duration_of_the_holder_counts() -> None:
    async with start_harness() as harness:
        body = {"metadata": {"name": "first"}, "spec": {"holderIdentity": "x", "leaseDurationSeconds": 40}}
        await harness.create(LEASES, {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **body})
        async with candidate(harness, "a") as a:
            waited = await seconds_until(lambda: a.leads)

            assert waited == pytest.approx(40, abs=AT_ONCE)


async def test_without_a_watch_the_lease_is_read_periodically() -> None:
    async with (
        start_harness(
            Rule(Refuse(403, "Forbidden"), verb="watch"), Rule(Refuse(403), verb="list")
        ) as harness,
        candidate(harness, "a") as a,
    ):
        await harness.settle(AT_ONCE)
        async with candidate(harness, "b") as b:
            await harness.settle(100)
            assert 100 / 5 <= len(calls(harness, "b", "get")) <= 100 / 2
            await a.stops()

            assert await seconds_until(lambda: b.leads) < 2.2 * RETRY_SECONDS


async def test_a_silent_watch_is_not_trusted() -> None:
    """A connection that is gone without a word: no event comes any more, and no error either."""
    async with start_harness() as harness, candidate(harness, "a") as a, candidate(harness, "b") as b:
        await harness.settle(1)
        harness.faults.rules.append(Rule(Delay(1000), verb="watch"))
        harness.faults.rules.append(Rule(Cut(), plural="leases", times=2))
        await harness.settle(30)
        assert not b.leads
        await a.stops()

        assert await seconds_until(lambda: b.leads) < 2.2 * RETRY_SECONDS


async def test_a_leader_that_cannot_renew_stops_before_another_starts() -> None:
    async with start_harness() as harness, candidate(harness, "a") as a, candidate(harness, "b") as b:
        await harness.settle(10 * RETRY_SECONDS + 0.5)
        last = asyncio.get_running_loop().time() - 0.5
        harness.faults.rules.append(Rule(Reset(), verb="update", containing=b'"a"'))
        a_ended = await seconds_until(lambda: not a.leads) + 0.5
        b_began = await seconds_until(lambda: b.leads) + a_ended

        assert last > 0
        assert a_ended == pytest.approx(DEADLINE_SECONDS, abs=2 * AT_ONCE)
        assert b_began == pytest.approx(LEASE_SECONDS, abs=2 * AT_ONCE)
        with pytest.raises(ExceptionGroup) as raised:
            await a.task
        assert raised.group_contains(NotLeading, match="Lease first: not renewed in time")


async def test_a_call_without_a_response_ends_by_the_deadline() -> None:
    async with start_harness() as harness, candidate(harness, "a") as a:
        await harness.settle(AT_ONCE)
        harness.faults.rules.append(Rule(Delay(1000), verb="update"))

        assert await seconds_until(lambda: a.task.done()) <= DEADLINE_SECONDS
        assert a.election.permit() <= 0


async def test_a_paused_process_notices_its_missed_deadline_before_it_sends_anything() -> None:
    """This happens when a process is paused and resumes: its clock has advanced."""
    async with start_harness() as harness:
        loop = asyncio.get_running_loop()
        asleep = 0.0
        async with Client(harness.connection, user_agent="a") as client:
            election = Election(client, [FIRST], "a", time=lambda: loop.time() + asleep)
            task = asyncio.create_task(election.run())
            await harness.settle(1)
            harness.faults.calls.clear()
            asleep = 11.0

            assert election.permit() <= 0
            await asyncio.wait([task])
            assert calls(harness, "a", "update", "get", "create") == []
            assert isinstance(task.exception(), ExceptionGroup)


@pytest.mark.parametrize(
    ("fault", "slow"),
    [
        pytest.param(Reset(committed=True), 0, id="the response is lost, and the watch reports the renewal"),
        pytest.param(
            Delay(20, committed=True), 0, id="the response is late, and the watch reports the renewal"
        ),
        pytest.param(Reset(), 1, id="the request is lost"),
        pytest.param(Refuse(500), 1, id="the server returns an internal error"),
        pytest.param(Refuse(409, "Conflict"), 1, id="the server returns a conflict"),
        pytest.param(Refuse(429, retry_after_seconds=1), 0, id="the server is overloaded"),
    ],
)
async def test_a_single_failed_renewal_changes_nothing(fault: Any, slow: int) -> None:
    async with start_harness() as harness, candidate(harness, "a") as a, candidate(harness, "b") as b:
        await harness.settle(5)
        # aiohttp itself repeats a PUT once when the connection breaks
        harness.faults.rules.append(Rule(fault, verb="update", times=2 if isinstance(fault, Reset) else 1))
        for _ in range(600):
            await harness.settle(AT_ONCE)
            assert [a.leads, b.leads] == [True, False]

        assert len(a.observer.slow) == slow


async def test_a_deleted_lease_is_created_again_by_its_holder() -> None:
    async with start_harness() as harness, candidate(harness, "a") as a, candidate(harness, "b") as b:
        await harness.settle(5)
        await harness.delete(LEASES, "first")
        await harness.settle(1)

        assert (await spec(harness))["holderIdentity"] == "a"
        for _ in range(300):
            await harness.settle(AT_ONCE)
            assert [a.leads, b.leads] == [True, False]


async def test_a_deleted_lease_is_not_acquired_before_it_would_have_expired() -> None:
    async with start_harness() as harness, candidate(harness, "a") as a, candidate(harness, "b") as b:
        await harness.settle(5)
        await a.dies()
        await harness.delete(LEASES, "first")

        waited = await seconds_until(lambda: b.leads)
        assert waited > LEASE_SECONDS - RETRY_SECONDS - AT_ONCE


async def test_a_leader_stops_when_another_process_takes_its_lease() -> None:
    async with start_harness() as harness, candidate(harness, "a") as a:
        await harness.settle(5)
        await harness.change(LEASES, "first", {"spec": {"holderIdentity": "x"}})

        assert await seconds_until(lambda: a.task.done()) < AT_ONCE
        assert not a.leads


async def test_a_stop_during_acquisition_releases_the_acquired_lease() -> None:
    async with (
        start_harness(Rule(Delay(3, committed=True), verb="create", plural="leases")) as harness,
        candidate(harness, "a") as a,
    ):
        await harness.settle(1)
        assert not a.leads
        await a.stops()

        assert (await spec(harness))["holderIdentity"] == ""


async def test_a_candidate_that_never_led_releases_nothing() -> None:
    async with start_harness() as harness, candidate(harness, "a") as a, candidate(harness, "b") as b:
        await harness.settle(5)
        harness.faults.calls.clear()
        await b.stops()

        assert calls(harness, "b", "get", "update", "create") == []
        assert a.leads


async def test_a_release_does_not_wait_long() -> None:
    async with start_harness() as harness, candidate(harness, "a") as a:
        await harness.settle(1)
        harness.faults.rules.append(Rule(Delay(1000), verb="update"))
        loop = asyncio.get_running_loop()
        started = loop.time()
        await a.stops()

        assert loop.time() - started == pytest.approx(5, abs=AT_ONCE)


async def test_a_lease_is_released_after_a_renewal_with_a_lost_response() -> None:
    async with start_harness() as harness, candidate(harness, "a") as a:
        await harness.settle(RETRY_SECONDS - AT_ONCE)
        harness.faults.rules.append(Rule(Delay(3, committed=True), verb="update", times=1))
        await harness.settle(1)
        await a.stops()

        assert (await spec(harness))["holderIdentity"] == ""


async def test_leading_needs_all_leases() -> None:
    """Neither of two others may work beside who serves the kinds of both."""
    async with start_harness() as harness, candidate(harness, "x", SECOND) as x:
        await harness.settle(1)
        async with candidate(harness, "a", FIRST, SECOND) as a:
            await harness.settle(30)
            assert not a.leads
            assert (await spec(harness))["holderIdentity"] == "a"
            assert a.observer.leading_now == {"first": False, "second": False}
            await x.stops()

            assert await seconds_until(lambda: a.leads) < AT_ONCE
            await harness.settle(100)
            assert a.leads
            assert a.observer.leading_now == {"first": True, "second": True}
            await a.stops()
            assert [(await spec(harness, name))["holderIdentity"] for name in ("first", "second")] == ["", ""]


async def test_a_single_lost_lease_ends_leadership() -> None:
    async with start_harness() as harness, candidate(harness, "a", FIRST, SECOND) as a:
        await harness.settle(1)
        harness.faults.rules.append(Rule(Reset(), verb="update", name="second"))

        assert await seconds_until(lambda: a.task.done()) <= DEADLINE_SECONDS
        with pytest.raises(ExceptionGroup) as raised:
            await a.task
        assert raised.group_contains(NotLeading, match="^Lease second: ")


async def test_candidates_for_the_same_leases_do_not_block_each_other() -> None:
    async with (
        start_harness() as harness,
        candidate(harness, "a", FIRST, SECOND) as a,
        candidate(harness, "b", FIRST, SECOND) as b,
        candidate(harness, "c", FIRST, SECOND) as c,
    ):
        await harness.settle(5)
        for _ in range(2):
            (leader,) = [contender for contender in (a, b, c) if contender.leads]
            await leader.stops()
            await harness.settle(1)

        assert sum(contender.leads for contender in (a, b, c)) == 1


async def test_calls_to_an_unreachable_server_are_limited() -> None:
    async with start_harness(Rule(Reset(), plural="leases")) as harness, candidate(harness, "a") as a:
        await harness.settle(100)

        assert len(calls(harness, "a", "get")) <= 2 * 100 / RETRY_SECONDS
        harness.faults.rules.clear()
        assert await seconds_until(lambda: a.leads) <= 3 * RETRY_SECONDS


async def test_failing_calls_are_a_line_a_minute_until_one_succeeds() -> None:
    async with start_harness(Rule(Reset(), plural="leases")) as harness:
        with capture_logs() as logs:
            async with candidate(harness, "a"):
                await harness.settle(70)

    lines = [line.get("repeats", 0) for line in logs if line["event"] == "lease request failed"]
    assert len(lines) == 2
    assert lines[0] == 0
    assert lines[1] > 10


async def test_a_single_candidate_of_several_wins() -> None:
    async with start_harness() as harness, candidate(harness, "a") as a:
        await harness.settle(1)
        async with candidate(harness, "b") as b, candidate(harness, "c") as c, candidate(harness, "d") as d:
            await harness.settle(5)
            await a.stops()
            for _ in range(300):
                await harness.settle(AT_ONCE)
                assert sum(contender.leads for contender in (b, c, d)) == 1
                assert not any(contender.task.done() for contender in (b, c, d))


def test_identities_differ() -> None:
    identity, other = new_identity(), new_identity()

    assert identity != other
    assert identity.split("_")[0] == other.split("_")[0] != ""
    assert orjson.dumps(identity)


@pytest.mark.parametrize("is_whole", [True, False], ids=["both Leases", "one of two Leases"])
async def test_the_next_holder_learns_what_the_last_one_knew(is_whole: bool) -> None:
    """Only from all Leases: another operator may have worked with one that was not handed over."""
    async with start_harness() as harness:
        async with candidate(harness, "a", FIRST, SECOND) as a:
            await seconds_until(lambda: a.leads)
            await a.dies()
            await a.election.release({"pods": 7, "services": 3})
        if not is_whole:
            await harness.change(LEASES, "second", {"metadata": {"annotations": None}})
        async with candidate(harness, "b", FIRST, SECOND) as b:
            await seconds_until(lambda: b.leads)

            assert b.election.handover() == ({"pods": 7, "services": 3} if is_whole else {})


async def test_a_lease_that_expired_hands_nothing_over() -> None:
    async with start_harness() as harness, candidate(harness, "a") as a, candidate(harness, "b") as b:
        await seconds_until(lambda: a.leads)
        await a.dies()
        await seconds_until(lambda: b.leads)

        assert b.election.handover() == {}
