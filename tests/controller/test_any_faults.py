"""Any mixture of faults that ends at some time: each job comes to its end as if there had been none."""

import asyncio
import contextlib

import looptime
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api.meta import EVENTS, PODS, SERVICES
from api.v1.pytorchjob import RESOURCE
from controller.testing.faults import Cut, Delay, Refuse, Reset, Rule
from controller.testing.stage import Stage, controlling, owned_by, stage

SUCCEEDED = "Created T, Running F, Succeeded T"
PLURALS = st.sampled_from(["pods", "services", RESOURCE.plural, "events"])
TIMES = st.integers(1, 4)
LOST = st.sampled_from([Reset(), Reset(committed=True), Delay(40, committed=True), Delay(3)])
REFUSED = st.sampled_from(
    [
        Refuse(429, "TooManyRequests", retry_after_seconds=1),
        Refuse(500, "InternalError"),
        Refuse(503, "ServiceUnavailable"),
        Refuse(403, "Forbidden", "exceeded quota"),
    ]
)
RULES = st.one_of(
    st.builds(Rule, LOST, verb=st.sampled_from(["create", "patch"]), plural=PLURALS, times=TIMES),
    st.builds(
        Rule, REFUSED, verb=st.just("create"), plural=st.sampled_from(["pods", "services"]), times=TIMES
    ),
    st.builds(Rule, REFUSED, verb=st.just("patch"), plural=st.just(RESOURCE.plural), times=TIMES),
    st.builds(Rule, st.just(Cut()), verb=st.just("watch"), plural=PLURALS, times=TIMES),
    st.builds(Rule, st.just(Refuse(410, "Expired")), verb=st.just("watch"), plural=PLURALS, times=TIMES),
    st.builds(Rule, st.just(Refuse(503)), verb=st.sampled_from(["list", "watch"]), times=TIMES),
)
LIVES = st.lists(st.sampled_from([0.0, 0.1, 1.0, 30.0]), max_size=2)
"""How long controllers work, in seconds, that are killed before the one that stays."""


async def train(on: Stage, phase: str, code: int | None = None) -> None:
    """Play the kubelet, once all pods are there."""
    for _ in range(400):
        if len(await on.names(PODS)) == 5:
            break
        await asyncio.sleep(5)
    await on.become(phase, code=code)
    await asyncio.sleep(120)


async def live(rules: list[Rule], lives: list[float]) -> None:
    async with stage(*rules) as on:
        jobs = [await on.submit("one", workers=2), await on.submit("two", workers=1)]
        for seconds in lives:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(300), controlling(on):
                    await asyncio.sleep(seconds)
        async with controlling(on):
            await train(on, "Running")
            await train(on, "Succeeded", code=0)
            await asyncio.sleep(300)

            assert [await on.conditions(name) for name in ("one", "two")] == [SUCCEEDED] * 2
            for resource in (PODS, SERVICES):
                found = await on.items(resource)
                assert [sum(map(owned_by(job), found)) for job in jobs] == [3, 2]
                assert len(found) == 5
            assert on.faults.count("delete") == 0, "so nothing was made twice"
            ends = [one for one in await on.items(EVENTS) if one["reason"] == "PyTorchJobSucceeded"]
            assert [one["count"] for one in ends] == [1, 1], "the end is told once"
            on.faults.calls.clear()
            await asyncio.sleep(60)
            assert [one for one in on.calls if one.verb != "watch"] == [], "and then all is quiet"


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rules=st.lists(RULES, max_size=5), lives=LIVES)
def test_any_faults(rules: list[Rule], lives: list[float]) -> None:
    loop = looptime.new_event_loop(start=0)
    try:
        loop.run_until_complete(live(rules, lives))
    finally:
        loop.close()
