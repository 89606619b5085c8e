"""Start of a controller in a cluster with many objects while a job waits for it, and the memory that it takes."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import orjson

from api.meta import PODS, SERVICES
from bench.controlplane import baseline
from bench.controlplane.job_run import submit
from bench.controlplane.processes import cpu_ms, peak_rss_mib, reset_peak_rss, rss_mib, wait_until_idle
from bench.controlplane.scenario import Jobs, Preexisting, Start
from bench.controlplane.testbed import FOREIGN_NAMESPACE, NAMESPACE, Testbed, controller
from rallypoint.testing.service import IN_CLUSTER

REPLICAS = 250
"""Replicas of a job that owns many pods."""
ENV_VARIABLES = 40
"""Environment variables of a foreign pod, which make it about 6 KiB of JSON."""
START_SECONDS = 120.0
TIMEOUT_SECONDS_PER_OBJECT = 0.1
"""Creating the existing objects times out after a minute and this time per object."""

SINGLE_JOB = Jobs(1, 1)
"""The job that waits for each start."""

Figures = dict[str, float]


async def measure(testbed: Testbed, scenario: Start, runs: int, flags: Sequence[str]) -> dict[str, Any]:
    """Start controllers without the objects, run one while they arrive, start with them. Raises TimeoutError if a job waits forever."""
    without = [await start(testbed, f"before-{number}", flags) for number in range(runs)]
    async with controller(testbed, flags) as running:
        grown = await _measure_growth(testbed, scenario, running.process.pid)
    with_them = [await start(testbed, f"after-{number}", flags) for number in range(runs)]
    return {"without": without, "grown": grown, "with": with_them}


async def start(
    testbed: Testbed, name: str, flags: Sequence[str], launcher: Sequence[str] = IN_CLUSTER
) -> Figures:
    """Create a job without a controller, start one, and delete the job and its children."""
    await submit(testbed, SINGLE_JOB, [name])
    (leader,) = SINGLE_JOB.job_kind(name).deciding_pods(name, 1, ())
    async with controller(testbed, flags, launcher=launcher) as running, asyncio.timeout(START_SECONDS):
        process = running.process
        await testbed.observer.wait_until(lambda: leader in testbed.observer.pods)
        idle_since, _ = await asyncio.gather(wait_until_idle(process.pid), testbed.audit.wait_until_idle())
        figures = {
            "start_to_first_pod_ms": (testbed.observer.pods[leader] - process.started_at) * 1000,
            "start_to_idle_ms": (idle_since - process.started_at) * 1000,
            "cpu_until_idle_ms": cpu_ms(process.pid),
            "rss_mib": rss_mib(process.pid),
            "rss_peak_mib": peak_rss_mib(process.pid),
        }
    for resource, named in ((SINGLE_JOB.job_kind(name).resource, name), (PODS, leader), (SERVICES, leader)):
        await testbed.client.delete(resource, NAMESPACE, named, grace_period_seconds=0)
    return figures


async def _measure_growth(testbed: Testbed, scenario: Start, pid: int) -> Figures:
    """Create the objects under a running controller; return its memory before, at the peak and after."""
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
    """Return when the jobs have ended, or all their pods run."""
    observer, jobs = testbed.observer, preexisting_jobs(scenario)
    observer.reset()  # the pods of earlier starts
    await submit(testbed, jobs, jobs.job_names(scenario.preexisting))
    await observer.wait_until(
        lambda: (
            len(observer.with_condition("Succeeded")) == jobs.jobs
            if jobs.quick
            else len(observer.pods_running) == len(observer.services) == jobs.pods
        )
    )


def preexisting_jobs(scenario: Start) -> Jobs:
    """Return the jobs that leave behind, or own, the objects."""
    if scenario.preexisting is Preexisting.FINISHED:
        return Jobs(scenario.count, 1, quick=True)
    replicas = min(REPLICAS, scenario.count)
    return Jobs(-(-scenario.count // replicas), replicas)


def foreign_pod(index: int) -> bytes:
    """Return a pod of another owner. It names no node, so that it stays pending."""
    variables = [{"name": f"VARIABLE_{number}", "value": f"{number:064}"} for number in range(ENV_VARIABLES)]
    container = {"name": "main", "image": "other:1", "env": variables}
    metadata = {"name": f"pod-{index:05}", "labels": {"app": "other"}}
    return orjson.dumps({"metadata": metadata, "spec": {"containers": [container]}})
