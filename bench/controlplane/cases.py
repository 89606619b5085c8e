"""What is done for one case: runs, each beside its floor, or starts; then one to time callbacks and, on demand, one to profile."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.controlplane import baseline, callbacks, start
from bench.controlplane.job_run import Life, begin, live
from bench.controlplane.profile import profiled
from bench.controlplane.scenario import Case, Jobs, Start
from bench.controlplane.testbed import Rig, clear, controller
from rallypoint.testing.service import IN_CLUSTER, Service

WARM_UP = Jobs(jobs=1, replicas=8, quick=True)
"""Run by each controller before what is measured, so that connections are open and code is warm; MPIJobs have one of theirs."""


@dataclass(frozen=True, slots=True)
class Wish:
    """How cases are measured."""

    runs: int
    flags: Sequence[str]
    """Of the controller, after those of the case."""
    profile: bool
    say: Callable[[str], None]


async def measure(rig: Rig, case: Case, wish: Wish) -> dict[str, Any]:
    """The result of one case.

    Raises:
        TimeoutError: jobs do not get where they should.
        ProcessFailed: a controller does not come up.
        NoProfiler: there is to be a profile, and there is no py-spy, or it may not look.
    """
    flags = (f"--events={case.events}", *wish.flags)
    result: dict[str, Any] = {"case": case.name}
    with TemporaryDirectory() as folder:
        if isinstance(case.scenario, Start):
            result |= await start.measure(rig, case.scenario, wish.runs, flags)
        else:
            result |= await _runs(rig, case, case.scenario, flags, wish)
        if case.timed:
            result["callbacks"] = await _timed(rig, case, flags, Path(folder) / "callbacks.json")
        if wish.profile and isinstance(case.scenario, Jobs):
            result["profile"] = await _profiled(rig, case.scenario, flags, Path(folder))
    return result


async def _runs(rig: Rig, case: Case, scenario: Jobs, flags: Sequence[str], wish: Wish) -> dict[str, Any]:
    """Each run by a controller of its own, which is gone when the floor is created."""
    lives: list[dict[str, Any]] = []
    floors: list[dict[str, float]] = []
    for number in range(1, wish.runs + 1):
        run = _name(scenario, f"r{number:02}")
        async with _warm(rig, flags, scenario) as running:
            lives.append(flat(await live(rig, scenario, run, running.process.pid), scenario))
        if case.floor:
            again = f"f{run[1:]}"
            objects = [
                (kind, baseline.renamed(body, run, again))
                for kind, body in await baseline.bodies(rig, scenario)
            ]
            await clear(rig)
            floors.append(await baseline.load(rig, scenario, objects))
        await clear(rig)
        wish.say(_line(number, lives[-1], floors))
    return {"runs": lives, "floor": floors}


async def _timed(rig: Rig, case: Case, flags: Sequence[str], file: Path) -> Any:
    """The longest callbacks of one more run or start."""
    launcher = callbacks.launcher(file)
    if isinstance(case.scenario, Start):
        await start.start(rig, "timed", flags, launcher)
    else:
        async with _warm(rig, flags, case.scenario, launcher) as running:
            await live(rig, case.scenario, _name(case.scenario, "timed"), running.process.pid)
        await clear(rig)
    return callbacks.read(file)


async def _profiled(rig: Rig, scenario: Jobs, flags: Sequence[str], folder: Path) -> dict[str, Any]:
    """Where the time of one more run goes."""
    async with _warm(rig, flags, scenario) as running, profiled(running.process.pid, folder) as profile:
        await live(rig, scenario, _name(scenario, "seen"), running.process.pid)
    await clear(rig)
    return asdict(profile)


@asynccontextmanager
async def _warm(
    rig: Rig, flags: Sequence[str], scenario: Jobs, launcher: Sequence[str] = IN_CLUSTER
) -> AsyncGenerator[Service]:
    """A controller that has run a job of the kind, and has nothing to do."""
    first = replace(WARM_UP, mpi=scenario.mpi)
    async with controller(rig, flags, launcher=launcher) as running:
        async with asyncio.timeout(start.START_SECONDS):
            await begin(rig, first, first.job_names("warm"))
        await rig.audit.quiet()  # the last events are about to be sent
        await clear(rig)
        yield running


def flat(life: Life, scenario: Jobs) -> dict[str, Any]:
    """One mapping of all figures."""
    return {
        **life.figures,
        "calls": life.calls.total,
        "calls_by_kind": life.calls.by_kind,
        "refused": life.calls.refused,
        "calls_per_job": life.calls.total / scenario.jobs,
        **asdict(life.told),
        "events_missing": life.told.events_missing,
    }


def _name(scenario: Jobs, run: str) -> str:
    """The beginning of the names of a run's jobs; a job's name begins with a letter."""
    return f"j{scenario.name}-{run}"


def _line(number: int, life: dict[str, Any], floors: list[dict[str, float]]) -> str:
    """What is said of a run when it is over."""
    if "create_to_running_ms" not in life or not floors:
        return f"  {number}: {life['calls']} calls, {life['controller_cpu_per_pod_ms']:.2f} ms CPU per pod"
    running, ground = life["create_to_running_ms"], floors[-1]["create_to_pods_running_ms"]
    return f"  {number}: Running after {running:.0f} ms, floor {ground:.0f} ms, × {running / ground:.2f}"
