"""One run with the controller: submit jobs, let them run and end, and wait until the controller is idle."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from api.meta import PODS
from bench.controlplane.audit import Calls
from bench.controlplane.event_audit import EventAudit, audit_events
from bench.controlplane.observer import Observer
from bench.controlplane.processes import cpu_ms, peak_rss_mib, reset_peak_rss, rss_mib
from bench.controlplane.scenario import Jobs, container_status, manifest
from bench.controlplane.testbed import NAMESPACE, Testbed
from bench.figures import percentile

TIMEOUT_SECONDS_PER_POD = 1.0
"""A run times out after a minute and this time per pod."""


@dataclass(frozen=True, slots=True)
class JobRun:
    """The figures of one run; ``bench/README.md`` defines them."""

    figures: Mapping[str, float]
    calls: Calls
    events: EventAudit


async def run_jobs(testbed: Testbed, scenario: Jobs, run: str, controller_pid: int) -> JobRun:
    """Submit the scenario's jobs and let them run and end. Raises TimeoutError if they do not."""
    names = scenario.job_names(run)
    offset = testbed.audit.size_bytes()
    reset_peak_rss(controller_pid)
    idle = rss_mib(controller_pid)
    async with asyncio.timeout(60 + TIMEOUT_SECONDS_PER_POD * scenario.pods):
        controller_cpu, server_cpu = cpu_ms(controller_pid), cpu_ms(testbed.server_pid)
        submitted = await submit_and_wait(testbed, scenario, names)
        controller_cpu = cpu_ms(controller_pid) - controller_cpu
        server_cpu = cpu_ms(testbed.server_pid) - server_cpu
        await testbed.audit.wait_until_idle()
        ended = None
        if not scenario.quick:
            ended = time.monotonic()
            await _end_leader_pods(testbed, scenario, names)
            await testbed.observer.wait_until(
                lambda: len(testbed.observer.with_condition("Succeeded")) == scenario.jobs
            )
            await testbed.audit.wait_until_idle()
    figures = times(testbed.observer, submitted, ended) | {
        "controller_cpu_ms": controller_cpu,
        "controller_cpu_per_pod_ms": controller_cpu / scenario.pods,
        "server_cpu_ms": server_cpu,
        "controller_rss_before_mib": idle,
        "controller_rss_peak_mib": peak_rss_mib(controller_pid),
    }
    return JobRun(figures, testbed.audit.calls_since(offset), await audit_events(testbed, scenario))


async def submit_and_wait(testbed: Testbed, scenario: Jobs, names: list[str]) -> dict[str, float]:
    """Submit the jobs and wait until all have started: jobs and pods are Running and all Services exist.

    Quick jobs have started when all have succeeded.
    """
    submitted = await submit(testbed, scenario, names)
    await testbed.observer.wait_until(lambda: _have_started(testbed.observer, scenario))
    return submitted


async def submit(testbed: Testbed, scenario: Jobs, names: list[str]) -> dict[str, float]:
    """Submit all jobs at once and return when each request was sent; return after the last answer."""
    sent: dict[str, float] = {}

    async def create(name: str) -> None:
        body = orjson.dumps(manifest(scenario, name))
        sent[name] = time.monotonic()
        await testbed.client.create(scenario.job_kind(name).resource, NAMESPACE, body)

    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(create(name))
    return sent


def _have_started(observer: Observer, scenario: Jobs) -> bool:
    if scenario.quick:
        return len(observer.with_condition("Succeeded")) == scenario.jobs
    return (
        len(observer.with_condition("Running")) == scenario.jobs
        and len(observer.pods_running) == scenario.pods
        and len(observer.services) == scenario.services
    )


async def _end_leader_pods(testbed: Testbed, scenario: Jobs, names: list[str]) -> None:
    async with asyncio.TaskGroup() as group:
        for name in names:
            job_kind = scenario.job_kind(name)
            status = container_status(
                job_kind.container, {"terminated": {"exitCode": 0, "reason": "Completed"}}
            )
            body = orjson.dumps({"status": {"phase": "Succeeded", "containerStatuses": [status]}})
            for pod in job_kind.deciding_pods(name, scenario.replicas, testbed.observer.pods):
                group.create_task(testbed.client.patch(PODS, NAMESPACE, pod, body, subresource="status"))


def times(observer: Observer, submitted: Mapping[str, float], ended: float | None) -> dict[str, float]:
    """Return milliseconds until the last object of each sort, and with many jobs percentiles of the time per job.

    Args:
        submitted: when each job's request was sent.
        ended: when the leaders were about to end; None if the jobs ended by themselves.
    """
    start = min(submitted.values())
    running, succeeded = observer.with_condition("Running"), observer.with_condition("Succeeded")
    spans = {
        "create_to_last_pod_ms": (start, observer.pods),
        "create_to_last_service_ms": (start, observer.services),
        "create_to_pods_running_ms": (start, observer.pods_running),
        "create_to_running_ms": (start, running),
        **(
            {"create_to_succeeded_ms": (start, succeeded)}
            if ended is None
            else {"exit_to_succeeded_ms": (ended, succeeded)}
        ),
    }
    figures = {"create_to_first_pod_ms": (min(observer.pods.values()) - start) * 1000}
    figures |= {name: (max(at.values()) - since) * 1000 for name, (since, at) in spans.items() if at}
    for name, reached in (("pods", _last_by_job(observer.pods)), ("running", running)):
        if len(submitted) > 1 and reached:
            durations = [(at - submitted[job]) * 1000 for job, at in reached.items()]
            figures |= {
                f"job_create_to_{name}_p{share}_ms": percentile(durations, share) for share in (50, 99)
            }
    return figures


def _last_by_job(pods: Mapping[str, float]) -> dict[str, float]:
    """Return when the last pod of each job arrived; a pod's name is its job's, its role and its index."""
    last: dict[str, float] = {}
    for pod, at in pods.items():
        job = pod.rsplit("-", 2)[0]
        last[job] = max(at, last.get(job, at))
    return last
