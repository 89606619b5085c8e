"""When a container is probed, and what is said of it: on loop time, with answers that the test gives."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from rallypoint.local.node.pods.handlers import Handlers, Outcome, ProbeResult
from rallypoint.local.node.pods.prober import Prober
from rallypoint.local.node.pods.probes import Health, KillCause, Kind, Probe

YES, NO = ProbeResult(Outcome.SUCCESS), ProbeResult(Outcome.FAILURE, "no")
EXEC: dict[str, Any] = {"exec": {"command": ["ask"]}}


class Scripted:
    """Handlers that answer what they are told to, and note when they were asked."""

    def __init__(self) -> None:
        self.answers: dict[Kind, list[ProbeResult]] = {}
        self.probed: list[tuple[str, float]] = []
        self.takes_seconds = 0.0
        self.problem = ""

    async def probe(self, container: Any, probe: Probe) -> ProbeResult:
        self.probed.append((probe.kind.name, asyncio.get_running_loop().time()))
        await asyncio.sleep(self.takes_seconds)
        answers = self.answers.get(probe.kind) or [YES]
        return answers.pop(0) if len(answers) > 1 else answers[0]

    async def hook(self, container: Any, hook: Any) -> str:
        self.probed.append(("hook", asyncio.get_running_loop().time()))
        await asyncio.sleep(hook["sleep"]["seconds"])
        return self.problem

    def times(self, kind: Kind) -> list[int]:
        return [round(at) for name, at in self.probed if name == kind.name]


@pytest.fixture
def handlers() -> Scripted:
    return Scripted()


class Seen:
    def __init__(self) -> None:
        self.health: list[tuple[int, Health]] = []
        self.events: list[tuple[str, str]] = []

    def see(self, health: Health) -> None:
        self.health.append((round(asyncio.get_running_loop().time()), health))

    def record_event(self, reason: str, message: str) -> None:
        self.events.append((reason, message))


@asynccontextmanager
async def attending(handlers: Scripted, **container: Any) -> AsyncGenerator[tuple[Prober, Seen]]:
    seen = Seen()
    prober = Prober(container, cast("Handlers", handlers), seen.see, seen.record_event)
    task = asyncio.create_task(prober.run())
    yield prober, seen
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled() or task.exception() is None


async def test_a_probe_looks_every_period_after_its_delay(handlers: Scripted) -> None:
    probe = {**EXEC, "initialDelaySeconds": 4, "periodSeconds": 3}
    async with attending(handlers, livenessProbe=probe):
        await asyncio.sleep(14)

    assert handlers.times(Kind.LIVENESS) == [4, 7, 10, 13]


async def test_a_look_that_takes_longer_than_the_period_is_followed_at_once(handlers: Scripted) -> None:
    handlers.takes_seconds = 5
    async with attending(handlers, livenessProbe={**EXEC, "periodSeconds": 3}):
        await asyncio.sleep(11)

    assert handlers.times(Kind.LIVENESS) == [0, 5, 10]


async def test_the_startup_probe_gates_the_others(handlers: Scripted) -> None:
    handlers.answers[Kind.STARTUP] = [NO, NO, YES]
    every = {**EXEC, "periodSeconds": 10}
    async with attending(handlers, startupProbe=every, readinessProbe=every, livenessProbe=every) as (
        _,
        seen,
    ):
        await asyncio.sleep(35)

    assert handlers.times(Kind.STARTUP) == [0, 10, 20]
    assert handlers.times(Kind.READINESS) == handlers.times(Kind.LIVENESS) == [20, 30]
    assert seen.health == [(20, Health(ready=False)), (20, Health())]
    assert seen.events == [("Unhealthy", "Startup probe failed: no")] * 2


async def test_a_condemned_container_is_left_alone(handlers: Scripted) -> None:
    handlers.answers[Kind.LIVENESS] = [NO]
    async with attending(handlers, livenessProbe={**EXEC, "periodSeconds": 1}) as (_, seen):
        await asyncio.sleep(10)

    assert handlers.times(Kind.LIVENESS) == [0, 1, 2]
    assert seen.health == [(2, Health(kill_cause=KillCause.LIVENESS))]


async def test_a_look_that_could_not_be_made_counts_for_nothing(handlers: Scripted) -> None:
    error = ProbeResult(Outcome.ERROR, "no such program")
    handlers.answers[Kind.LIVENESS] = [NO, NO, error, error, YES]
    async with attending(handlers, livenessProbe={**EXEC, "periodSeconds": 1}) as (_, seen):
        await asyncio.sleep(10)

    assert seen.health == []
    assert ("Unhealthy", "Liveness probe errored: no such program") in seen.events


async def test_a_redirect_to_elsewhere_is_a_success_to_look_at(handlers: Scripted) -> None:
    handlers.answers[Kind.READINESS] = [ProbeResult(Outcome.WARNING, "gone")]
    async with attending(handlers, readinessProbe=EXEC) as (_, seen):
        await asyncio.sleep(1)

    assert seen.health == [(0, Health())]
    assert seen.events == [("ProbeWarning", "Readiness probe warning: gone")]


async def test_only_readiness_is_of_interest_when_a_container_is_to_end(handlers: Scripted) -> None:
    handlers.answers = {Kind.READINESS: [YES, NO], Kind.LIVENESS: [YES, NO]}
    probe = {**EXEC, "periodSeconds": 1, "failureThreshold": 1}
    async with attending(handlers, readinessProbe=probe, livenessProbe=probe) as (prober, seen):
        await asyncio.sleep(0.5)
        prober.stop()
        await asyncio.sleep(3)

    assert handlers.times(Kind.LIVENESS) == [0]
    assert seen.health == [(0, Health()), (1, Health(ready=False))]


async def test_nothing_is_probed_before_the_hook_is_over(handlers: Scripted) -> None:
    lifecycle = {"postStart": {"sleep": {"seconds": 5}}}
    async with attending(handlers, lifecycle=lifecycle, readinessProbe=EXEC) as (_, seen):
        await asyncio.sleep(6)

    assert handlers.probed == [("hook", 0.0), ("READINESS", 5.0)]
    assert seen.health == [(5, Health(ready=False)), (5, Health())]


async def test_a_hook_that_fails_condemns_the_container(handlers: Scripted) -> None:
    handlers.problem = "exit 1"
    lifecycle = {"postStart": {"sleep": {"seconds": 1}}}
    async with attending(handlers, lifecycle=lifecycle, livenessProbe=EXEC) as (_, seen):
        await asyncio.sleep(30)

    assert [name for name, _ in handlers.probed] == ["hook"]
    assert seen.health == [(1, Health(has_post_start_finished=False, kill_cause=KillCause.POST_START))]
    assert seen.events == [("FailedPostStartHook", "PostStartHook failed")]
