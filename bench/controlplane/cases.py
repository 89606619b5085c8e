"""One case: runs with their baselines or starts, then one run to time callbacks and, on demand, one to profile."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.controlplane import baseline, callbacks, large, start
from bench.controlplane.job_run import JobRun, run_jobs, submit_and_wait
from bench.controlplane.profile import profile_process
from bench.controlplane.scenario import FEWER_SERVICES, Case, Jobs, Large, Start
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


async def measure(
    testbed: Testbed, cases: Sequence[Case], options: MeasurementOptions
) -> list[dict[str, Any]]:
    """Measure cases that take turns, and return a result for each.

    Raises:
        TimeoutError: jobs do not reach the expected state.
        ProcessFailed: a controller does not start.
        ProfilerUnavailable: py-spy is missing or may not trace.
    """
    jobs = [(case, case.scenario) for case in cases if isinstance(case.scenario, Jobs)]
    starts = [(case, case.scenario) for case in cases if isinstance(case.scenario, Start)]
    larges = [(case, case.scenario) for case in cases if isinstance(case.scenario, Large)]
    results = [
        {"case": case.name} | await start.measure(testbed, scenario, options.runs, _flags(case, options))
        for case, scenario in starts
    ]
    results += [
        {"case": case.name} | await large.measure(testbed, scenario, options.runs, _flags(case, options))
        for case, scenario in larges
    ]
    if jobs:
        results += await _runs(testbed, jobs, options)
    for (case, scenario), result in zip([*starts, *larges, *jobs], results, strict=True):
        flags = _flags(case, options)
        with TemporaryDirectory() as folder:
            if case.should_time_callbacks:
                result["callbacks"] = await _callback_run(
                    testbed, case, flags, Path(folder) / "callbacks.json"
                )
            if options.profile and isinstance(scenario, Jobs):
                result["profile"] = await _profile_run(testbed, scenario, flags, Path(folder))
    return results


def _flags(case: Case, options: MeasurementOptions) -> list[str]:
    """Return the controller's flags. The default of ``--services`` is left out, because earlier controllers lack the flag."""
    flags = [f"--events={case.events}"]
    if isinstance(case.scenario, Jobs) and case.scenario.service_mode in FEWER_SERVICES:
        flags.append(f"--services={case.scenario.service_mode}")
    return [*flags, *options.flags]


async def _runs(
    testbed: Testbed, cases: Sequence[tuple[Case, Jobs]], options: MeasurementOptions
) -> list[dict[str, Any]]:
    """Measure a run of each case and a baseline, which creates the objects of the first case, then the same again.

    Each run has a controller of its own, which has stopped when the next run or the baseline starts.
    """
    job_runs: list[list[dict[str, Any]]] = [[] for _ in cases]
    baselines: list[dict[str, float]] = []
    first, first_scenario = cases[0]
    for number in range(1, options.runs + 1):
        objects: list[baseline.Body] = []
        for (case, scenario), runs in zip(cases, job_runs, strict=True):
            run = _name(scenario, f"r{number:02}")
            async with _warm(testbed, _flags(case, options), scenario) as running:
                runs.append(flatten(await run_jobs(testbed, scenario, run, running.process.pid), scenario))
            if case is first and case.baseline:
                again = f"f{run[1:]}"
                objects = [
                    (kind, baseline.renamed(body, run, again))
                    for kind, body in await baseline.object_bodies(testbed, scenario)
                ]
            await clear(testbed)
        if objects:
            baselines.append(await baseline.measure(testbed, first_scenario, objects))
            await clear(testbed)
        for (case, _), runs in zip(cases, job_runs, strict=True):
            options.say(_progress_line(number, case, runs[-1], baselines))
    return [
        {"case": case.name, "runs": runs, "baseline": baselines}
        for (case, _), runs in zip(cases, job_runs, strict=True)
    ]


async def _callback_run(testbed: Testbed, case: Case, flags: Sequence[str], file: Path) -> Any:
    """Return the longest callbacks of one more run or start."""
    launcher = callbacks.launcher(file)
    if isinstance(case.scenario, Start):
        await start.start(testbed, "timed", flags, launcher)
    elif isinstance(case.scenario, Jobs):
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
        "status_writes_per_job": job_run.calls.status_writes / scenario.jobs,
        **asdict(job_run.events),
        "events_missing": job_run.events.events_missing,
    }


def _name(scenario: Jobs, run: str) -> str:
    """Return the prefix of a run's job names; a job name starts with a letter."""
    return f"j{scenario.name}-{run}"


def _progress_line(
    number: int, case: Case, job_run: dict[str, Any], baselines: list[dict[str, float]]
) -> str:
    """Return the line to print after a run."""
    line = f"  {case.name}, {number}: "
    if "create_to_running_ms" not in job_run or not baselines:
        return line + f"{job_run['calls']} calls, {job_run['controller_cpu_per_pod_ms']:.2f} ms CPU per pod"
    running, baseline_ms = job_run["create_to_running_ms"], baselines[-1]["create_to_pods_running_ms"]
    return (
        line + f"Running after {running:.0f} ms, baseline {baseline_ms:.0f} ms, × {running / baseline_ms:.2f}"
    )
