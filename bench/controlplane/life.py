"""One run with the controller: jobs are submitted, run, end, and are looked at until the controller has nothing left to do."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from api.meta import PODS
from bench.controlplane.audit import Calls
from bench.controlplane.processes import cpu_ms, forget_peak, peak_rss_mib, rss_mib
from bench.controlplane.rig import NAMESPACE, NODES, Rig
from bench.controlplane.scenario import LEADER, RESOURCE, Scenario, manifest

SLOWEST_SECONDS_PER_POD = 1.0
"""A run that takes longer than a minute and this per pod is given up."""


@dataclass(frozen=True, slots=True)
class Life:
    """What one run took; see ``bench/README.md`` for the definitions."""

    figures: Mapping[str, float]
    calls: Calls


async def live(rig: Rig, scenario: Scenario, run: str, controller_pid: int) -> Life:
    """Submit the scenario's jobs, let them run, end them. TimeoutError: they do not get there."""
    names = scenario.job_names(run)
    mark = rig.audit.mark()
    forget_peak(controller_pid)
    idle = rss_mib(controller_pid)
    async with asyncio.timeout(60 + SLOWEST_SECONDS_PER_POD * scenario.pods):
        controller_cpu, server_cpu = cpu_ms(controller_pid), cpu_ms(rig.server_pid)
        submitted = time.monotonic()
        await _submit(rig, scenario, names)
        await _running(rig, scenario)
        controller_cpu, server_cpu = (
            cpu_ms(controller_pid) - controller_cpu,
            cpu_ms(rig.server_pid) - server_cpu,
        )
        await rig.audit.quiet()
        ended = time.monotonic()
        await _end_masters(rig, names)
        await rig.observer.until(lambda: len(rig.observer.with_condition("Succeeded")) == scenario.jobs)
        await rig.audit.quiet()
    figures = _times(rig, submitted) | {
        "exit_to_succeeded_ms": _since(ended, rig.observer.with_condition("Succeeded")),
        "controller_cpu_to_running_ms": controller_cpu,
        "server_cpu_to_running_ms": server_cpu,
        "controller_rss_before_mib": idle,
        "controller_rss_peak_mib": peak_rss_mib(controller_pid),
    }
    return Life(figures, rig.audit.since(mark))


async def _submit(rig: Rig, scenario: Scenario, names: list[str]) -> None:
    async with asyncio.TaskGroup() as group:
        for name in names:
            body = orjson.dumps(manifest(scenario, name, NODES))
            group.create_task(rig.client.create(RESOURCE, NAMESPACE, body))


async def _running(rig: Rig, scenario: Scenario) -> None:
    """All jobs say that they run, all pods do, and each has its Service."""
    seen = rig.observer
    await seen.until(
        lambda: (
            len(seen.with_condition("Running")) == scenario.jobs
            and len(seen.pods_running) == scenario.pods
            and len(seen.services) == scenario.pods
        )
    )


async def _end_masters(rig: Rig, names: list[str]) -> None:
    container: dict[str, Any] = {"name": "pytorch", "image": "train:1", "ready": False, "restartCount": 0}
    container |= {"imageID": "", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
    body = orjson.dumps({"status": {"phase": "Succeeded", "containerStatuses": [container]}})
    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(
                rig.client.patch(PODS, NAMESPACE, f"{name}-{LEADER}", body, subresource="status")
            )


def _times(rig: Rig, submitted: float) -> dict[str, float]:
    seen = rig.observer
    return {
        "create_to_first_pod_ms": (min(seen.pods.values()) - submitted) * 1000,
        "create_to_last_pod_ms": _since(submitted, seen.pods),
        "create_to_last_service_ms": _since(submitted, seen.services),
        "create_to_pods_running_ms": _since(submitted, seen.pods_running),
        "create_to_running_ms": _since(submitted, seen.with_condition("Running")),
    }


def _since(start: float, seen: Mapping[str, float]) -> float:
    """Milliseconds until the last of what was seen."""
    return (max(seen.values()) - start) * 1000
