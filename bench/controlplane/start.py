"""How a controller starts where a lot lies around: a job has waited for it. And what memory all of it takes."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import orjson

from api.meta import PODS, SERVICES
from bench.controlplane import baseline
from bench.controlplane.job_run import submit
from bench.controlplane.processes import cpu_ms, peak_rss_mib, reset_peak_rss, rss_mib
from bench.controlplane.scenario import Jobs, Preexisting, Start
from bench.controlplane.testbed import FOREIGN_NAMESPACE, NAMESPACE, Testbed, controller
from rallypoint.testing.service import IN_CLUSTER

REPLICAS = 250
"""Of the jobs that own many pods."""
ENV_VARIABLES = 40
"""Environment variables of a foreign pod, which make it about 6 KiB of JSON."""
START_SECONDS = 120.0
TIMEOUT_SECONDS_PER_OBJECT = 0.1
"""Surroundings that take longer than a minute and this per object are given up."""

SINGLE_JOB = Jobs(1, 1)
"""What waits for each start."""

Figures = dict[str, float]


async def measure(testbed: Testbed, scenario: Start, runs: int, flags: Sequence[str]) -> dict[str, Any]:
    """Starts without the surroundings, a controller that sees them arise, and starts with them. TimeoutError: a job stays waiting."""
    without = [await start(testbed, f"before-{number}", flags) for number in range(runs)]
    async with controller(testbed, flags) as running:
        grown = await _measure_growth(testbed, scenario, running.process.pid)
    with_them = [await start(testbed, f"after-{number}", flags) for number in range(runs)]
    return {"without": without, "grown": grown, "with": with_them}


async def start(
    testbed: Testbed, name: str, flags: Sequence[str], launcher: Sequence[str] = IN_CLUSTER
) -> Figures:
    """A job is created while no controller runs; then one starts. It and its children are removed again."""
    await submit(testbed, SINGLE_JOB, [name])
    (leader,) = SINGLE_JOB.job_kind(name).deciding_pods(name, 1, ())
    async with controller(testbed, flags, launcher=launcher) as running, asyncio.timeout(START_SECONDS):
        process = running.process
        await testbed.observer.wait_until(lambda: leader in testbed.observer.pods)
        await testbed.audit.wait_until_idle()
        figures = {
            "start_to_first_pod_ms": (testbed.observer.pods[leader] - process.started_at) * 1000,
            "cpu_until_idle_ms": cpu_ms(process.pid),
            "rss_mib": rss_mib(process.pid),
            "rss_peak_mib": peak_rss_mib(process.pid),
        }
    for resource, named in ((SINGLE_JOB.job_kind(name).resource, name), (PODS, leader), (SERVICES, leader)):
        await testbed.client.delete(resource, NAMESPACE, named, grace_period_seconds=0)
    return figures


async def _measure_growth(testbed: Testbed, scenario: Start, pid: int) -> Figures:
    """Let the surroundings arise while a controller looks on or makes them; memory before, at most, and in the end."""
    await testbed.audit.wait_until_idle()
    before, cpu, began = rss_mib(pid), cpu_ms(pid), time.monotonic()
    reset_peak_rss(pid)
    async with asyncio.timeout(60 + TIMEOUT_SECONDS_PER_OBJECT * scenario.count):
        if scenario.preexisting is Preexisting.FOREIGN:
            await baseline.create(
                testbed, FOREIGN_NAMESPACE, [(PODS, foreign_pod(index)) for index in range(scenario.count)]
            )
        else:
            await _run_preexisting_jobs(testbed, scenario)
    await testbed.audit.wait_until_idle()
    return {
        "seconds": time.monotonic() - began,
        "cpu_ms": cpu_ms(pid) - cpu,
        "rss_before_mib": before,
        "rss_peak_mib": peak_rss_mib(pid),
        "rss_after_mib": rss_mib(pid),
    }


async def _run_preexisting_jobs(testbed: Testbed, scenario: Start) -> None:
    """Return when the jobs have ended, or all of their pods run."""
    observer, jobs = testbed.observer, preexisting_jobs(scenario)
    observer.reset()  # the pods of the starts before
    await submit(testbed, jobs, jobs.job_names(scenario.preexisting))
    await observer.wait_until(
        lambda: (
            len(observer.with_condition("Succeeded")) == jobs.jobs
            if jobs.quick
            else len(observer.pods_running) == len(observer.services) == jobs.pods
        )
    )


def preexisting_jobs(scenario: Start) -> Jobs:
    """The jobs that leave behind, or have, so much of it."""
    if scenario.preexisting is Preexisting.FINISHED:
        return Jobs(scenario.count, 1, quick=True)
    replicas = min(REPLICAS, scenario.count)
    return Jobs(-(-scenario.count // replicas), replicas)


def foreign_pod(index: int) -> bytes:
    """A pod of somebody else. It has no node, so that nobody runs it."""
    variables = [{"name": f"VARIABLE_{number}", "value": f"{number:064}"} for number in range(ENV_VARIABLES)]
    container = {"name": "main", "image": "other:1", "env": variables}
    metadata = {"name": f"pod-{index:05}", "labels": {"app": "other"}}
    return orjson.dumps({"metadata": metadata, "spec": {"containers": [container]}})
