"""One case: runs with their baselines or starts, then one run to time callbacks and, on demand, one to profile."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.controlplane import baseline, callbacks, start
from bench.controlplane.job_run import JobRun, run_jobs, submit_and_wait
from bench.controlplane.profile import profile_process
from bench.controlplane.scenario import Case, Jobs, Start
from bench.controlplane.testbed import Testbed, clear, controller
from rallypoint.testing.service import IN_CLUSTER, Service

WARM_UP = Jobs(jobs=1, replicas=8, quick=True)
"""Each controller runs this job before the measurement, to open connections and warm up; for MPIJobs, one MPIJob."""


@dataclass(frozen=True, slots=True)
class MeasurementOptions:
    """How to measure cases."""

    runs: int
    flags: Sequence[str]
    """Controller flags, after those of the case."""
    profile: bool
    say: Callable[[str], None]


async def measure(testbed: Testbed, case: Case, options: MeasurementOptions) -> dict[str, Any]:
    """Measure one case.

    Raises:
        TimeoutError: jobs do not reach the expected state.
        ProcessFailed: a controller does not start.
        ProfilerUnavailable: py-spy is missing or may not trace.
    """
    flags = (f"--events={case.events}", *options.flags)
    result: dict[str, Any] = {"case": case.name}
    with TemporaryDirectory() as folder:
        if isinstance(case.scenario, Start):
            result |= await start.measure(testbed, case.scenario, options.runs, flags)
        else:
            result |= await _runs(testbed, case, case.scenario, flags, options)
        if case.should_time_callbacks:
            result["callbacks"] = await _callback_run(testbed, case, flags, Path(folder) / "callbacks.json")
        if options.profile and isinstance(case.scenario, Jobs):
            result["profile"] = await _profile_run(testbed, case.scenario, flags, Path(folder))
    return result


async def _runs(
    testbed: Testbed, case: Case, scenario: Jobs, flags: Sequence[str], options: MeasurementOptions
) -> dict[str, Any]:
    """Measure each run with a controller of its own, which has stopped when the baseline starts."""
    job_runs: list[dict[str, Any]] = []
    baselines: list[dict[str, float]] = []
    for number in range(1, options.runs + 1):
        run = _name(scenario, f"r{number:02}")
        async with _warm(testbed, flags, scenario) as running:
            job_runs.append(flatten(await run_jobs(testbed, scenario, run, running.process.pid), scenario))
        if case.baseline:
            again = f"f{run[1:]}"
            objects = [
                (kind, baseline.renamed(body, run, again))
                for kind, body in await baseline.object_bodies(testbed, scenario)
            ]
            await clear(testbed)
            baselines.append(await baseline.measure(testbed, scenario, objects))
        await clear(testbed)
        options.say(_progress_line(number, job_runs[-1], baselines))
    return {"runs": job_runs, "baseline": baselines}


async def _callback_run(testbed: Testbed, case: Case, flags: Sequence[str], file: Path) -> Any:
    """Return the longest callbacks of one more run or start."""
    launcher = callbacks.launcher(file)
    if isinstance(case.scenario, Start):
        await start.start(testbed, "timed", flags, launcher)
    else:
        async with _warm(testbed, flags, case.scenario, launcher) as running:
            await run_jobs(testbed, case.scenario, _name(case.scenario, "timed"), running.process.pid)
        await clear(testbed)
    return callbacks.read(file)


async def _profile_run(
    testbed: Testbed, scenario: Jobs, flags: Sequence[str], folder: Path
) -> dict[str, Any]:
    """Profile one more run."""
    async with (
        _warm(testbed, flags, scenario) as running,
        profile_process(running.process.pid, folder) as profile,
    ):
        await run_jobs(testbed, scenario, _name(scenario, "profiled"), running.process.pid)
    await clear(testbed)
    return asdict(profile)


@asynccontextmanager
async def _warm(
    testbed: Testbed, flags: Sequence[str], scenario: Jobs, launcher: Sequence[str] = IN_CLUSTER
) -> AsyncGenerator[Service]:
    """Start a controller that has run one job of the kind and is idle."""
    first = replace(WARM_UP, mpi=scenario.mpi)
    async with controller(testbed, flags, launcher=launcher) as running:
        async with asyncio.timeout(start.START_SECONDS):
            await submit_and_wait(testbed, first, first.job_names("warm"))
        await testbed.audit.wait_until_idle()  # The last events may still be on their way.
        await clear(testbed)
        yield running


def flatten(job_run: JobRun, scenario: Jobs) -> dict[str, Any]:
    """Return all figures as one mapping."""
    return {
        **job_run.figures,
        "calls": job_run.calls.total,
        "calls_by_kind": job_run.calls.by_kind,
        "refused": job_run.calls.refused,
        "calls_per_job": job_run.calls.total / scenario.jobs,
        **asdict(job_run.events),
        "events_missing": job_run.events.events_missing,
    }


def _name(scenario: Jobs, run: str) -> str:
    """Return the prefix of a run's job names; a job name starts with a letter."""
    return f"j{scenario.name}-{run}"


def _progress_line(number: int, job_run: dict[str, Any], baselines: list[dict[str, float]]) -> str:
    """Return the line to print after a run."""
    if "create_to_running_ms" not in job_run or not baselines:
        return (
            f"  {number}: {job_run['calls']} calls, {job_run['controller_cpu_per_pod_ms']:.2f} ms CPU per pod"
        )
    running, baseline_ms = job_run["create_to_running_ms"], baselines[-1]["create_to_pods_running_ms"]
    return f"  {number}: Running after {running:.0f} ms, baseline {baseline_ms:.0f} ms, × {running / baseline_ms:.2f}"
