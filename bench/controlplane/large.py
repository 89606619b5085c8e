"""One large job with one Service, and small jobs that are submitted alone and while the pods of the large one are created.

The controller runs with its callbacks timed, so its CPU time is higher than otherwise.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from api.meta import PODS
from api.names import child_name
from bench.controlplane import callbacks
from bench.controlplane.job_run import run_jobs, submit
from bench.controlplane.observer import Observer
from bench.controlplane.processes import peak_rss_mib, reset_peak_rss, rss_mib
from bench.controlplane.scenario import Jobs, Large
from bench.controlplane.testbed import IN_FLIGHT, NAMESPACE, Testbed, clear, controller
from controller.kube.errors import NotFound

WARM_UP = Jobs(jobs=1, replicas=8, quick=True)
SMALL = Jobs(jobs=1, replicas=2)
SMALL_JOBS = 5
"""The small jobs that run alone, and at most those that run beside the large one."""
FLAGS = ("--services=per-job",)
TIMEOUT_SECONDS_PER_POD = 0.2


class _SmallJob(NamedTuple):
    """The times of one small job in milliseconds. Between the first two its pods start, which the simulated nodes do one after another."""

    create_to_pods_ms: float
    pods_running_to_running_ms: float
    create_to_running_ms: float


async def measure(testbed: Testbed, scenario: Large, runs: int, flags: Sequence[str]) -> dict[str, Any]:
    """Return a result with the figures of each run, and the longest callbacks of the last one.

    Raises:
        TimeoutError: a job does not run.
    """
    large: list[dict[str, float]] = []
    found: Any = None
    for number in range(runs):
        with TemporaryDirectory() as folder:
            file = Path(folder) / "callbacks.json"
            launcher = callbacks.launcher(file)
            async with controller(testbed, [*FLAGS, *flags], launcher=launcher) as running:
                await run_jobs(testbed, WARM_UP, f"w{number}", running.process.pid)
                await clear(testbed)
                large.append(await _run(testbed, scenario, f"r{number}", running.process.pid))
            found = callbacks.read(file)
        await _delete_pods(testbed)
        await clear(testbed)
    return {"large": large, "callbacks": found}


async def _run(testbed: Testbed, scenario: Large, run: str, pid: int) -> dict[str, float]:
    observer, job = testbed.observer, scenario.job
    alone = [await _small_job(testbed, f"{run}-alone-{number}") for number in range(SMALL_JOBS)]
    await testbed.audit.wait_until_idle()
    offset, before = testbed.audit.size_bytes(), rss_mib(pid)
    reset_peak_rss(pid)
    names = job.job_names(f"{run}-large")
    sent = (await submit(testbed, job, names))[names[0]]
    beside: list[_SmallJob] = []
    async with asyncio.timeout(60 + TIMEOUT_SECONDS_PER_POD * scenario.pods):
        for number in range(SMALL_JOBS):
            others = (len(alone) + len(beside)) * SMALL.pods
            await _until_pods(observer, others + (number + 1) * scenario.pods // (SMALL_JOBS + 1))
            beside.append(await _small_job(testbed, f"{run}-beside-{number}"))
        pods = scenario.pods + (len(alone) + len(beside)) * SMALL.pods
        await observer.wait_until(
            lambda: len(observer.pods_running) == pods and names[0] in observer.with_condition("Running")
        )
        running_ms = (max(observer.pods_running.values()) - sent) * 1000
        await testbed.audit.wait_until_idle()
    calls = testbed.audit.calls_since(offset)
    return {
        "create_to_pods_running_ms": running_ms,
        "calls_per_pod": calls.total / (scenario.pods + len(beside) * SMALL.pods),
        "status_writes": calls.status_writes,
        "controller_rss_before_mib": before,
        "controller_rss_peak_mib": peak_rss_mib(pid),
        **{f"alone_{name}": ms for name, ms in _medians(alone).items()},
        **{f"beside_{name}": ms for name, ms in _medians(beside).items()},
    }


def _medians(jobs: Sequence[_SmallJob]) -> dict[str, float]:
    return {
        name: median(times) for name, times in zip(_SmallJob._fields, zip(*jobs, strict=True), strict=True)
    }


async def _delete_pods(testbed: Testbed) -> None:
    """Delete all pods one by one: to delete them all by one request takes longer than a request may."""
    names = list(testbed.observer.pods)

    async def work() -> None:
        while names:
            with contextlib.suppress(NotFound):
                await testbed.client.delete(PODS, NAMESPACE, names.pop(), grace_period_seconds=0)

    async with asyncio.TaskGroup() as group:
        for _ in range(IN_FLIGHT):
            group.create_task(work())


async def _until_pods(observer: Observer, count: int) -> None:
    await observer.wait_until(lambda: len(observer.pods) >= count)


async def _small_job(testbed: Testbed, name: str) -> _SmallJob:
    """Submit a small job and wait until its status is Running."""
    (job,), observer = SMALL.job_names(name), testbed.observer
    sent = (await submit(testbed, SMALL, [job]))[job]
    names = [child_name(job, role, 0) for role in ("master", "worker")]
    await observer.wait_until(
        lambda: job in observer.with_condition("Running") and observer.pods_running.keys() >= {*names}
    )
    created, running = (max(pods[name] for name in names) for pods in (observer.pods, observer.pods_running))
    status = observer.with_condition("Running")[job]
    return _SmallJob(*(seconds * 1000 for seconds in (created - sent, status - running, status - sent)))
