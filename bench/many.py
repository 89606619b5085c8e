"""``bench many``: start, memory, new jobs and a handover of the controller among many running jobs."""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
from rich.console import Console

from api.names import child_name
from bench import handover, record
from bench.controlplane import callbacks, start
from bench.controlplane.job_run import submit
from bench.controlplane.large import SMALL, SMALL_JOBS
from bench.controlplane.processes import wait_until_idle
from bench.controlplane.testbed import (
    Testbed,
    clear,
    control_plane,
    controller,
    open_testbed,
)
from bench.copies import NAMESPACE_PREFIX, create_copies
from bench.figures import table
from bench.subparsers import Subparsers
from rallypoint.testing.audit import Call, read
from rallypoint.testing.controlplane import ControlPlane, ProcessFailed, Unavailable
from rallypoint.testing.controlplane.plane import ADMIN
from rallypoint.testing.service import Service

NEW_JOBS_SECONDS = 120.0
LABELS = {
    "start_to_first_pod_ms": "start → first pod of a waiting job, ms",
    "start_to_idle_ms": "start → idle, ms",
    "cpu_until_idle_ms": "CPU until idle, ms",
    "rss_mib": "RSS, MiB",
    "rss_peak_mib": "RSS peak, MiB",
    "create_to_first_pod_ms": "a new job of 2: create → its first pod, ms",
    "create_to_last_pod_ms": "a new job of 2: create → both pods, ms",
    "sigterm_end_to_last_write_ms": "SIGTERM → last write of the first, ms",
    "sigterm_end_to_first_write_ms": "SIGTERM → first write of the second, ms",
    "sigterm_longest_wait_ms": "SIGTERM, a job: create → its first pod, the longest, ms",
    "sigkill_end_to_first_write_ms": "SIGKILL → first write of the second, ms",
    "sigkill_longest_wait_ms": "SIGKILL, a job: create → its first pod, the longest, ms",
    "writes_to_copies": "writes to the copies",
}

Figures = dict[str, float]


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("many", help="start and take over among 10,000 jobs and 100,000 pods")
    parser.add_argument("--jobs", type=int, default=10_000, help="number of running jobs; default: 10000")
    parser.add_argument("--replicas", type=int, default=10, help="pods of each job; default: 10")
    parser.add_argument("--namespaces", type=int, default=100, help="their namespaces; default: 100")
    parser.add_argument("--services", help="the controller's flag --services; default as shipped")
    parser.add_argument("--runs", type=int, default=3, help="runs without and with the jobs; default: 3")
    parser.add_argument("--no-record", action="store_true", help="show the figures without recording them")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Return the exit status: 0, or 1 if the measurement failed."""
    console, load_before, began = (
        Console(stderr=True, highlight=False),
        record.load_average(),
        time.monotonic(),
    )
    try:
        with control_plane(users=(*handover.USERS, ADMIN), nodes=0) as plane:
            version = plane.request("GET", "/version")["gitVersion"]
            measured = _measure(plane, args, console.print)
    except (ProcessFailed, Unavailable, TimeoutError, aiohttp.ClientError) as error:
        console.print(f"not measured: {error!r}", style="red", markup=False)
        return 1
    title = f"{args.jobs} jobs of {args.replicas}"
    Console(file=sys.stdout, width=140).print(table(title, LABELS, measured["runs"]))
    if not args.no_record:
        sizes = {name: getattr(args, name) for name in ("jobs", "replicas", "namespaces", "services")}
        took = {"took_seconds": round(time.monotonic() - began)}
        result = record.document(load_before, version, **took, **sizes, **measured)
        console.print(f"recorded in {record.save('many', result)}")
    return 0


def _measure(plane: ControlPlane, args: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    """Measure without the jobs, create them, and measure with them."""
    flags = [f"--services={args.services}"] if args.services else []
    runs: dict[str, list[Figures]] = {"without": [], "with": []}
    facts: dict[str, Any] = {}
    for name, results in runs.items():
        if name == "with":
            facts = asyncio.run(create_copies(plane, args.jobs, args.replicas, args.namespaces, flags))
            say(f"{facts}")
        for number in range(args.runs):
            results.append(_run(plane, f"{name}-{number}", flags))
            say(f"{name} {number}: {results[-1]}")
    longest = asyncio.run(_callbacks(plane, flags))
    say(f"longest callbacks of one more start, CPU ms: {longest['cpu_ms']}")
    return {**facts, "runs": runs, "callbacks": longest}


def _run(plane: ControlPlane, name: str, flags: Sequence[str]) -> Figures:
    log = plane.audit_log
    assert log is not None
    offset = log.stat().st_size
    figures = asyncio.run(_start_and_new_jobs(plane, name, flags))
    for signal_name, end in handover.SIGNALS.items():
        prefix = signal_name.lower()
        found = handover.run(plane, f"{name}-{prefix}", end, condition="Created", flags=flags)
        figures |= {f"{prefix}_{key}": value for key, value in found.items()}
    return figures | {"writes_to_copies": len(writes_to_copies(read(log, offset)[0]))}


def writes_to_copies(calls: Iterable[Call]) -> list[Call]:
    """Return the writes of controllers in the namespaces of the copies."""
    return [
        call
        for call in calls
        if call.is_write and call.namespace.startswith(NAMESPACE_PREFIX) and call.user != ADMIN
    ]


async def _start_and_new_jobs(plane: ControlPlane, name: str, flags: Sequence[str]) -> Figures:
    """Start a controller, and submit small jobs to another one, one after the other: a figure is their median."""
    async with open_testbed(plane) as testbed:
        figures = await start.start(testbed, name, flags)
        async with _idle_controller(testbed, flags), asyncio.timeout(NEW_JOBS_SECONDS):
            times = [await _new_job(testbed, f"{name}-{number}") for number in range(SMALL_JOBS)]
        await clear(testbed)
    return figures | {key: statistics.median(found[key] for found in times) for key in times[0]}


async def _new_job(testbed: Testbed, name: str) -> Figures:
    pods = testbed.observer.pods
    names = [child_name(name, role, 0) for role in ("master", "worker")]
    sent = (await submit(testbed, SMALL, [name]))[name]
    await testbed.observer.wait_until(lambda: pods.keys() >= {*names})
    arrived = sorted(pods[pod] for pod in names)
    await testbed.audit.wait_until_idle()
    return {
        "create_to_first_pod_ms": (arrived[0] - sent) * 1000,
        "create_to_last_pod_ms": (arrived[-1] - sent) * 1000,
    }


async def _callbacks(plane: ControlPlane, flags: Sequence[str]) -> Any:
    """Return the longest callbacks of one more start."""
    async with open_testbed(plane) as testbed:
        with TemporaryDirectory() as folder:
            file = Path(folder) / "callbacks.json"
            await start.start(testbed, "timed", flags, callbacks.launcher(file))
            return callbacks.read(file)


@asynccontextmanager
async def _idle_controller(testbed: Testbed, flags: Sequence[str]) -> AsyncGenerator[Service]:
    async with controller(testbed, flags) as running:
        await wait_until_idle(running.process.pid)
        yield running
