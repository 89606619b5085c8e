"""When a container is probed, and the reported health: on loop time, with scripted results."""

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
    """Handlers that return scripted results and record the times of their calls."""

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


class Recorder:
    def __init__(self) -> None:
        self.health: list[tuple[int, Health]] = []
        self.events: list[tuple[str, str]] = []

    def record_health(self, health: Health) -> None:
        self.health.append((round(asyncio.get_running_loop().time()), health))

    def record_event(self, reason: str, message: str) -> None:
        self.events.append((reason, message))


@asynccontextmanager
async def running_prober(handlers: Scripted, **container: Any) -> AsyncGenerator[tuple[Prober, Recorder]]:
    recorder = Recorder()
    prober = Prober(container, cast("Handlers", handlers), recorder.record_health, recorder.record_event)
    task = asyncio.create_task(prober.run())
    yield prober, recorder
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled() or task.exception() is None


async def test_a_probe_runs_every_period_after_its_delay(handlers: Scripted) -> None:
    probe = {**EXEC, "initialDelaySeconds": 4, "periodSeconds": 3}
    async with running_prober(handlers, livenessProbe=probe):
        await asyncio.sleep(14)

    assert handlers.times(Kind.LIVENESS) == [4, 7, 10, 13]


async def test_a_slow_probe_is_repeated_at_once(handlers: Scripted) -> None:
    handlers.takes_seconds = 5
    async with running_prober(handlers, livenessProbe={**EXEC, "periodSeconds": 3}):
        await asyncio.sleep(11)

    assert handlers.times(Kind.LIVENESS) == [0, 5, 10]


async def test_the_startup_probe_delays_the_others(handlers: Scripted) -> None:
    handlers.answers[Kind.STARTUP] = [NO, NO, YES]
    every = {**EXEC, "periodSeconds": 10}
    async with running_prober(handlers, startupProbe=every, readinessProbe=every, livenessProbe=every) as (
        _,
        recorder,
    ):
        await asyncio.sleep(35)

    assert handlers.times(Kind.STARTUP) == [0, 10, 20]
    assert handlers.times(Kind.READINESS) == handlers.times(Kind.LIVENESS) == [20, 30]
    assert recorder.health == [(20, Health(ready=False)), (20, Health())]
    assert recorder.events == [("Unhealthy", "Startup probe failed: no")] * 2


async def test_a_container_with_a_kill_cause_is_not_probed(handlers: Scripted) -> None:
    handlers.answers[Kind.LIVENESS] = [NO]
    async with running_prober(handlers, livenessProbe={**EXEC, "periodSeconds": 1}) as (_, recorder):
        await asyncio.sleep(10)

    assert handlers.times(Kind.LIVENESS) == [0, 1, 2]
    assert recorder.health == [(2, Health(kill_cause=KillCause.LIVENESS))]


async def test_a_probe_error_does_not_count(handlers: Scripted) -> None:
    error = ProbeResult(Outcome.ERROR, "no such program")
    handlers.answers[Kind.LIVENESS] = [NO, NO, error, error, YES]
    async with running_prober(handlers, livenessProbe={**EXEC, "periodSeconds": 1}) as (_, recorder):
        await asyncio.sleep(10)

    assert recorder.health == []
    assert ("Unhealthy", "Liveness probe errored: no such program") in recorder.events


async def test_a_probe_warning_is_a_success_with_an_event(handlers: Scripted) -> None:
    handlers.answers[Kind.READINESS] = [ProbeResult(Outcome.WARNING, "gone")]
    async with running_prober(handlers, readinessProbe=EXEC) as (_, recorder):
        await asyncio.sleep(1)

    assert recorder.health == [(0, Health())]
    assert recorder.events == [("ProbeWarning", "Readiness probe warning: gone")]


async def test_only_readiness_is_probed_during_termination(handlers: Scripted) -> None:
    handlers.answers = {Kind.READINESS: [YES, NO], Kind.LIVENESS: [YES, NO]}
    probe = {**EXEC, "periodSeconds": 1, "failureThreshold": 1}
    async with running_prober(handlers, readinessProbe=probe, livenessProbe=probe) as (prober, recorder):
        await asyncio.sleep(0.5)
        prober.stop()
        await asyncio.sleep(3)

    assert handlers.times(Kind.LIVENESS) == [0]
    assert recorder.health == [(0, Health()), (1, Health(ready=False))]


async def test_nothing_is_probed_before_the_post_start_hook_ends(handlers: Scripted) -> None:
    lifecycle = {"postStart": {"sleep": {"seconds": 5}}}
    async with running_prober(handlers, lifecycle=lifecycle, readinessProbe=EXEC) as (_, recorder):
        await asyncio.sleep(6)

    assert handlers.probed == [("hook", 0.0), ("READINESS", 5.0)]
    assert recorder.health == [(5, Health(ready=False)), (5, Health())]


async def test_a_failed_post_start_hook_is_a_kill_cause(handlers: Scripted) -> None:
    handlers.problem = "exit 1"
    lifecycle = {"postStart": {"sleep": {"seconds": 1}}}
    async with running_prober(handlers, lifecycle=lifecycle, livenessProbe=EXEC) as (_, recorder):
        await asyncio.sleep(30)

    assert [name for name, _ in handlers.probed] == ["hook"]
    assert recorder.health == [(1, Health(has_post_start_finished=False, kill_cause=KillCause.POST_START))]
    assert recorder.events == [("FailedPostStartHook", "PostStartHook failed")]
