"""``bench recovery``: how long a job takes to run again as a whole after the failure of one pod, beside its fresh start."""

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

import orjson
from rich.console import Console

from api.meta import PODS
from bench import record
from bench.controlplane.audit import Calls
from bench.controlplane.observer import Observer
from bench.controlplane.scenario import Jobs, container_status, manifest
from bench.controlplane.testbed import (
    NAMESPACE,
    Testbed,
    clear,
    control_plane,
    controller,
    open_testbed,
)
from bench.figures import table
from bench.subparsers import Subparsers
from rallypoint.testing.controlplane import ControlPlane, ProcessFailed

SIZES = (8, 64, 256)
SECONDS_PER_RUN = 60.0
"""A run times out after this time and a second per pod."""
POLICY = {"failurePolicy": {"rules": [{"action": "RestartJob"}]}}
LABELS = {
    "start_ms": "create → all pods run, and Running in status, ms",
    "recovery_ms": "failure → the same again, ms",
    "ratio": "recovery ÷ start",
    "to_restarting_ms": "failure → Restarting in status, ms",
    "to_last_gone_ms": "failure → last old pod is gone, ms",
    "to_first_pod_ms": "failure → first new pod, ms",
    "to_last_pod_ms": "failure → last new pod, ms",
    "start_calls": "API calls of the controller, start",
    "recovery_calls": "API calls of the controller, recovery",
    "recovery_status_writes": "status writes among them",
}


@dataclass(frozen=True, slots=True)
class Phase:
    """A start or a recovery: when it began, on the monotonic clock, and the controller's calls."""

    since: float
    calls: Calls

    def ms(self, moments: Iterable[float]) -> float:
        """Return the time until the last of these moments."""
        return (max(moments) - self.since) * 1000


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("recovery", help="fail one pod of jobs that restart as a whole")
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=SIZES, help="pods of the jobs; default: 8 64 256"
    )
    parser.add_argument("--runs", type=int, default=3, help="runs of each size; default: 3")
    parser.add_argument("--no-record", action="store_true", help="show the figures without recording them")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Return the exit status: 0, or 1 if the measurement failed."""
    console, load_before = Console(stderr=True, highlight=False), record.load_average()
    try:
        with control_plane() as plane:
            version = plane.request("GET", "/version")["gitVersion"]
            results = asyncio.run(measure(plane, args.sizes, args.runs, console))
    except (ProcessFailed, TimeoutError) as error:
        console.print(f"not measured: {error}", style="red", markup=False)
        return 1
    Console(file=sys.stdout, width=140).print(table("one pod of a job fails", LABELS, results))
    if not args.no_record:
        result = record.document(load_before, version, recovery=results)
        console.print(f"recorded in {record.save('recovery', result)}")
    return 0


async def measure(
    plane: ControlPlane, sizes: list[int], runs: int, console: Console
) -> dict[str, list[dict[str, float]]]:
    """Measure each size, after one run that is not counted, so that connections are open and code is warm."""
    results: dict[str, list[dict[str, float]]] = {f"{size} pods": [] for size in sizes}
    async with open_testbed(plane) as testbed, controller(testbed, ()):
        await run(testbed, 8, "warm")
        for number in range(runs):
            for size in sizes:
                results[f"{size} pods"].append(await run(testbed, size, f"run-{number}"))
                console.print(f"{size} pods {number}: {results[f'{size} pods'][-1]}")
    return results


async def run(testbed: Testbed, size: int, name: str) -> dict[str, float]:
    """Start one job, fail its last worker, and wait until all its pods run again.

    Raises:
        TimeoutError: they do not.
    """
    scenario, observer = Jobs(1, size), testbed.observer
    job = scenario.job_names(name)[0]
    body = manifest(scenario, job)
    body["spec"]["runPolicy"] = POLICY
    async with asyncio.timeout(SECONDS_PER_RUN + size):
        start = await _phase(testbed, size, lambda: _submit(testbed, scenario, job, body))
        start_ms = start.ms([*observer.services.values(), *_running(observer, job)])
        observer.reset()
        failed = f"{job}-worker-{size - 2}"
        recovery = await _phase(testbed, size, lambda: _fail(testbed, failed))
        figures = {
            "start_ms": start_ms,
            "recovery_ms": recovery.ms(_running(observer, job)),
            "to_restarting_ms": recovery.ms([observer.with_condition("Restarting")[job]]),
            "to_last_gone_ms": recovery.ms(observer.pods_gone.values()),
            "to_first_pod_ms": recovery.ms(
                [min(moment for pod, moment in observer.pods.items() if pod != failed)]
            ),
            "to_last_pod_ms": recovery.ms(observer.pods.values()),
            "start_calls": start.calls.total,
            "recovery_calls": recovery.calls.total,
            "recovery_status_writes": recovery.calls.by_kind.get("patch pytorchjobs/status", 0),
        }
    await _end(testbed, f"{job}-master-0")
    await observer.wait_until(lambda: job in observer.with_condition("Succeeded"))
    await testbed.audit.wait_until_idle()
    await clear(testbed)
    return {**figures, "ratio": figures["recovery_ms"] / figures["start_ms"]}


async def _phase(testbed: Testbed, size: int, begin: Callable[[], Awaitable[None]]) -> Phase:
    """Begin, and wait until all pods run, the job is Running, and the controller is idle."""
    observer, offset = testbed.observer, testbed.audit.size_bytes()
    since = time.monotonic()
    await begin()
    await observer.wait_until(
        lambda: len(observer.pods_running) == size and len(observer.with_condition("Running")) == 1
    )
    await testbed.audit.wait_until_idle()
    return Phase(since, testbed.audit.calls_since(offset))


def _running(observer: Observer, job: str) -> list[float]:
    """Return when each pod ran, and when the status said Running."""
    return [*observer.pods_running.values(), observer.with_condition("Running")[job]]


async def _submit(testbed: Testbed, scenario: Jobs, job: str, body: dict[str, Any]) -> None:
    await testbed.client.create(scenario.job_kind(job).resource, NAMESPACE, orjson.dumps(body))


async def _fail(testbed: Testbed, pod: str) -> None:
    await _set_ended(testbed, pod, "Failed", {"exitCode": 1, "reason": "Error"})


async def _end(testbed: Testbed, pod: str) -> None:
    await _set_ended(testbed, pod, "Succeeded", {"exitCode": 0, "reason": "Completed"})


async def _set_ended(testbed: Testbed, pod: str, phase: str, end: dict[str, Any]) -> None:
    status = {"phase": phase, "containerStatuses": [container_status("pytorch", {"terminated": end})]}
    await testbed.client.patch(PODS, NAMESPACE, pod, orjson.dumps({"status": status}), subresource="status")
