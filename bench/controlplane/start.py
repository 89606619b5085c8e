"""How a controller starts where a lot lies around: a job has waited for it. And what memory all of it takes."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import orjson

from api.meta import PODS, SERVICES
from bench.controlplane import baseline
from bench.controlplane.job_run import submit
from bench.controlplane.processes import cpu_ms, forget_peak, peak_rss_mib, rss_mib
from bench.controlplane.scenario import Around, Jobs, Start
from bench.controlplane.testbed import ELSEWHERE, NAMESPACE, Rig, controller
from rallypoint.testing.service import IN_CLUSTER

REPLICAS = 250
"""Of the jobs that own many pods."""
VARIABLES = 40
"""Environment variables of a foreign pod, which make it about 6 KiB of JSON."""
START_SECONDS = 120.0
SECONDS_PER_OBJECT = 0.1
"""Surroundings that take longer than a minute and this per object are given up."""

ONE = Jobs(1, 1)
"""What waits for each start."""

Figures = dict[str, float]


async def measure(rig: Rig, scenario: Start, runs: int, flags: Sequence[str]) -> dict[str, Any]:
    """Starts without the surroundings, a controller that sees them arise, and starts with them. TimeoutError: a job stays waiting."""
    without = [await start(rig, f"before-{number}", flags) for number in range(runs)]
    async with controller(rig, flags) as running:
        grown = await _grow(rig, scenario, running.process.pid)
    with_them = [await start(rig, f"after-{number}", flags) for number in range(runs)]
    return {"without": without, "grown": grown, "with": with_them}


async def start(rig: Rig, name: str, flags: Sequence[str], launcher: Sequence[str] = IN_CLUSTER) -> Figures:
    """A job is created while no controller runs; then one starts. It and its children are removed again."""
    await submit(rig, ONE, [name])
    (leader,) = ONE.form(name).deciding(name, 1, ())
    async with controller(rig, flags, launcher=launcher) as running, asyncio.timeout(START_SECONDS):
        process = running.process
        await rig.observer.until(lambda: leader in rig.observer.pods)
        await rig.audit.quiet()
        figures = {
            "start_to_first_pod_ms": (rig.observer.pods[leader] - process.started_at) * 1000,
            "cpu_until_quiet_ms": cpu_ms(process.pid),
            "rss_mib": rss_mib(process.pid),
            "rss_peak_mib": peak_rss_mib(process.pid),
        }
    for resource, named in ((ONE.form(name).resource, name), (PODS, leader), (SERVICES, leader)):
        await rig.client.delete(resource, NAMESPACE, named, grace_period_seconds=0)
    return figures


async def _grow(rig: Rig, scenario: Start, pid: int) -> Figures:
    """Let the surroundings arise while a controller looks on or makes them; memory before, at most, and in the end."""
    await rig.audit.quiet()
    before, cpu, began = rss_mib(pid), cpu_ms(pid), time.monotonic()
    forget_peak(pid)
    async with asyncio.timeout(60 + SECONDS_PER_OBJECT * scenario.count):
        if scenario.around is Around.FOREIGN:
            await baseline.create(rig, ELSEWHERE, [(PODS, foreign(index)) for index in range(scenario.count)])
        else:
            await _run_jobs(rig, scenario)
    await rig.audit.quiet()
    return {
        "seconds": time.monotonic() - began,
        "cpu_ms": cpu_ms(pid) - cpu,
        "rss_before_mib": before,
        "rss_peak_mib": peak_rss_mib(pid),
        "rss_after_mib": rss_mib(pid),
    }


async def _run_jobs(rig: Rig, scenario: Start) -> None:
    """Return when the jobs have ended, or all of their pods run."""
    seen, jobs = rig.observer, surrounding_jobs(scenario)
    seen.forget()  # the pods of the starts before
    await submit(rig, jobs, jobs.job_names(scenario.around))
    await seen.until(
        lambda: (
            len(seen.with_condition("Succeeded")) == jobs.jobs
            if jobs.quick
            else len(seen.pods_running) == len(seen.services) == jobs.pods
        )
    )


def surrounding_jobs(scenario: Start) -> Jobs:
    """The jobs that leave behind, or have, so much of it."""
    if scenario.around is Around.FINISHED:
        return Jobs(scenario.count, 1, quick=True)
    replicas = min(REPLICAS, scenario.count)
    return Jobs(-(-scenario.count // replicas), replicas)


def foreign(index: int) -> bytes:
    """A pod of somebody else. It has no node, so that nobody runs it."""
    variables = [{"name": f"VARIABLE_{number}", "value": f"{number:064}"} for number in range(VARIABLES)]
    container = {"name": "main", "image": "other:1", "env": variables}
    metadata = {"name": f"pod-{index:05}", "labels": {"app": "other"}}
    return orjson.dumps({"metadata": metadata, "spec": {"containers": [container]}})
