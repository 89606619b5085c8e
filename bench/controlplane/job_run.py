"""One run with the controller: jobs are submitted, run, end, and are looked at until the controller has nothing left to do."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from api.meta import PODS
from bench.controlplane.audit import Calls
from bench.controlplane.event_audit import Told, told
from bench.controlplane.observer import Observer
from bench.controlplane.processes import cpu_ms, forget_peak, peak_rss_mib, rss_mib
from bench.controlplane.scenario import Jobs, manifest
from bench.controlplane.testbed import NAMESPACE, Rig
from bench.figures import percentile

SLOWEST_SECONDS_PER_POD = 1.0
"""A run that takes longer than a minute and this per pod is given up."""


@dataclass(frozen=True, slots=True)
class Life:
    """What one run took; see ``bench/README.md`` for the definitions."""

    figures: Mapping[str, float]
    calls: Calls
    told: Told


async def live(rig: Rig, scenario: Jobs, run: str, controller_pid: int) -> Life:
    """Submit the scenario's jobs and let them run and end. TimeoutError: they do not get there."""
    names = scenario.job_names(run)
    mark = rig.audit.mark()
    forget_peak(controller_pid)
    idle = rss_mib(controller_pid)
    async with asyncio.timeout(60 + SLOWEST_SECONDS_PER_POD * scenario.pods):
        controller_cpu, server_cpu = cpu_ms(controller_pid), cpu_ms(rig.server_pid)
        submitted = await begin(rig, scenario, names)
        controller_cpu = cpu_ms(controller_pid) - controller_cpu
        server_cpu = cpu_ms(rig.server_pid) - server_cpu
        await rig.audit.quiet()
        ended = None
        if not scenario.quick:
            ended = time.monotonic()
            await _end_leaders(rig, scenario, names)
            await rig.observer.until(lambda: len(rig.observer.with_condition("Succeeded")) == scenario.jobs)
            await rig.audit.quiet()
    figures = times(rig.observer, submitted, ended) | {
        "controller_cpu_ms": controller_cpu,
        "controller_cpu_per_pod_ms": controller_cpu / scenario.pods,
        "server_cpu_ms": server_cpu,
        "controller_rss_before_mib": idle,
        "controller_rss_peak_mib": peak_rss_mib(controller_pid),
    }
    return Life(figures, rig.audit.since(mark), await told(rig, scenario))


async def begin(rig: Rig, scenario: Jobs, names: list[str]) -> dict[str, float]:
    """Submit the jobs and return when they have begun: all jobs say that they run, all pods do, and all Services are there.

    Quick jobs have begun when all of them have succeeded.
    """
    submitted = await submit(rig, scenario, names)
    await rig.observer.until(lambda: _have_begun(rig.observer, scenario))
    return submitted


async def submit(rig: Rig, scenario: Jobs, names: list[str]) -> dict[str, float]:
    """When each job's request was handed to the client, all at once; return when the last is answered."""
    sent: dict[str, float] = {}

    async def one(name: str) -> None:
        body = orjson.dumps(manifest(scenario, name))
        sent[name] = time.monotonic()
        await rig.client.create(scenario.form(name).resource, NAMESPACE, body)

    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(one(name))
    return sent


def _have_begun(seen: Observer, scenario: Jobs) -> bool:
    if scenario.quick:
        return len(seen.with_condition("Succeeded")) == scenario.jobs
    return (
        len(seen.with_condition("Running")) == scenario.jobs
        and len(seen.pods_running) == scenario.pods
        and len(seen.services) == scenario.services
    )


async def _end_leaders(rig: Rig, scenario: Jobs, names: list[str]) -> None:
    async with asyncio.TaskGroup() as group:
        for name in names:
            form = scenario.form(name)
            body = _ended(form.container)
            for pod in form.deciding(name, scenario.replicas, rig.observer.pods):
                group.create_task(rig.client.patch(PODS, NAMESPACE, pod, body, subresource="status"))


def _ended(name: str) -> bytes:
    container: dict[str, Any] = {"name": name, "image": "train:1", "ready": False, "restartCount": 0}
    container |= {"imageID": "", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
    return orjson.dumps({"status": {"phase": "Succeeded", "containerStatuses": [container]}})


def times(seen: Observer, submitted: Mapping[str, float], ended: float | None) -> dict[str, float]:
    """Milliseconds until the last of each; and, with many jobs, percentiles of what each took from its own submission on.

    Args:
        submitted: when each job's request was sent.
        ended: when the leaders were about to be ended; None if the jobs ended by themselves.
    """
    start = min(submitted.values())
    running, succeeded = seen.with_condition("Running"), seen.with_condition("Succeeded")
    spans = {
        "create_to_last_pod_ms": (start, seen.pods),
        "create_to_last_service_ms": (start, seen.services),
        "create_to_pods_running_ms": (start, seen.pods_running),
        "create_to_running_ms": (start, running),
        **(
            {"create_to_succeeded_ms": (start, succeeded)}
            if ended is None
            else {"exit_to_succeeded_ms": (ended, succeeded)}
        ),
    }
    figures = {"create_to_first_pod_ms": (min(seen.pods.values()) - start) * 1000}
    figures |= {name: (max(at.values()) - since) * 1000 for name, (since, at) in spans.items() if at}
    for name, reached in (("pods", _last_by_job(seen.pods)), ("running", running)):
        if len(submitted) > 1 and reached:
            took = [(at - submitted[job]) * 1000 for job, at in reached.items()]
            figures |= {f"job_create_to_{name}_p{share}_ms": percentile(took, share) for share in (50, 99)}
    return figures


def _last_by_job(pods: Mapping[str, float]) -> dict[str, float]:
    """When the last pod of each job was seen; a pod's name is its job's, its role and its index."""
    last: dict[str, float] = {}
    for pod, at in pods.items():
        job = pod.rsplit("-", 2)[0]
        last[job] = max(at, last.get(job, at))
    return last
