"""``bench local``: many small jobs at once on a local cluster, and what the cluster itself costs."""

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, get_args

import psutil
from rich.console import Console

from bench import record
from bench.controlplane.processes import cpu_ms, peak_rss_mib
from bench.figures import table
from bench.subparsers import Subparsers
from rallypoint.local.node.sandbox.selection import IsolationMode
from rallypoint.testing.http_trace import RawClient, Step
from rallypoint.testing.up import COMMAND, Up, up

JOBS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
MODES = ("single-process", "without-page", "separate-controller")
"""``single-process`` is ``rallypoint up``, ``without-page`` the same with ``--no-ui``; ``separate-controller`` runs the controller in a
process of its own, also without a page.
"""
IN_FLIGHT = 32
TIMEOUT_SECONDS = 300.0
CLUSTER_COMMAND = [sys.executable, "-m", "bench.local_cluster"]
CONTROLLER_COMMAND = [sys.executable, "-m", "controller", "--leader-elect=false"]
NO_PORTS_FLAGS = ["--metrics-bind-address=0", "--health-probe-bind-address=0"]
LABELS = {
    "seconds": "first POST → all jobs Succeeded, s",
    "peak_rss_mib": "RSS of rallypoint, peak, MiB",
    "sandbox_daemon_peak_rss_mib": "RSS of the sandbox daemon, peak, MiB",
    "cpu_ms_per_pod": "CPU of rallypoint per pod, ms",
    "controller_cpu_ms_per_pod": "of which the controller, ms",
    "cluster_cpu_ms_per_pod": "of which API server, scheduler and node, ms",
    "sandbox_daemon_cpu_ms_per_pod": "CPU of the sandbox daemon per pod, ms",
}


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("local", help="run many jobs at once in local mode")
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--pods", type=int, default=4, help="pods of each job; default: 4")
    parser.add_argument("--runs", type=int, default=3, help="runs of each mode; default: 3")
    parser.add_argument("--isolation", choices=get_args(IsolationMode), default="auto")
    parser.add_argument("--no-record", action="store_true", help="show the figures without recording them")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Return the exit status: 0, or 1 if a job did not succeed."""
    console, load_before = Console(stderr=True, highlight=False), record.load_average()
    results: dict[str, list[dict[str, float]]] = {mode: [] for mode in MODES}
    try:
        for number in range(args.runs):
            for mode in MODES:
                results[mode].append(asyncio.run(run(mode, args.jobs, args.pods, args.isolation)))
                console.print(f"{mode} {number}: {results[mode][-1]}")
    except (TimeoutError, JobFailed) as error:
        console.print(
            f"not measured: {str(error) or 'the jobs did not end in time'}", style="red", markup=False
        )
        return 1
    title = f"{args.jobs} jobs of {args.pods} pods at once, isolation {args.isolation}"
    Console(file=sys.stdout, width=120).print(table(title, LABELS, results))
    if not args.no_record:
        parameters = {"jobs": args.jobs, "pods": args.pods, "isolation": args.isolation}
        result = record.document(load_before, local=parameters | results)
        console.print(f"recorded in {record.save('local', result)}")
    return 0


class JobFailed(Exception):
    """A job failed."""


async def run(mode: str, jobs: int, pods: int, isolation: str) -> dict[str, float]:
    """Start a local cluster, run the jobs, stop it; return its costs from the first job on.

    Raises:
        JobFailed: a job failed.
        TimeoutError: not all jobs ended.
    """
    with tempfile.TemporaryDirectory() as folder:
        async with _start_cluster(mode, Path(folder), isolation) as (cluster, controller):
            measured = {
                "cluster": [cluster.process.pid],
                "sandbox_daemon": _sandbox_daemons(cluster.process.pid),
            }
            measured |= {"controller": [controller.pid]} if controller else {}
            before = {name: sum(map(cpu_ms, pids)) for name, pids in measured.items()}
            since = time.perf_counter()
            await _submit(cluster.client, jobs, pods)
            await _all_succeeded(cluster.client, jobs)
            seconds = time.perf_counter() - since
            cpu_ms_spent = {name: sum(map(cpu_ms, pids)) - before[name] for name, pids in measured.items()}
            peak = {name: sum(map(peak_rss_mib, pids)) for name, pids in measured.items()}
    cpu = {name: value / (jobs * pods) for name, value in cpu_ms_spent.items()}
    sandbox = {
        "sandbox_daemon_peak_rss_mib": peak["sandbox_daemon"],
        "sandbox_daemon_cpu_ms_per_pod": cpu["sandbox_daemon"],
    }
    if not controller:
        return {
            "seconds": seconds,
            "peak_rss_mib": peak["cluster"],
            "cpu_ms_per_pod": cpu["cluster"],
            **sandbox,
        }
    separate = {"controller_cpu_ms_per_pod": cpu["controller"], "cluster_cpu_ms_per_pod": cpu["cluster"]}
    return {"seconds": seconds, "cpu_ms_per_pod": cpu["cluster"] + cpu["controller"], **separate, **sandbox}


def job(number: int, pods: int) -> dict[str, Any]:
    """Return a PyTorchJob whose pods end at once."""
    container = {"name": "pytorch", "image": "none", "command": ["true"]}
    template = {"spec": {"containers": [container]}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": f"job-{number}"},
        "spec": {
            "pytorchReplicaSpecs": {
                "Master": {"template": template},
                "Worker": {"replicas": pods - 1, "template": template},
            }
        },
    }


def job_outcomes(listed: dict[str, Any]) -> tuple[int, list[str]]:
    """Return how many jobs succeeded, and the names of those that failed."""
    conditions_by_job = {
        item["metadata"]["name"]: {
            condition["type"]
            for condition in (item.get("status") or {}).get("conditions") or ()
            if condition["status"] == "True"
        }
        for item in listed["items"]
    }
    failed = [name for name, conditions in conditions_by_job.items() if "Failed" in conditions]
    return sum("Succeeded" in conditions for conditions in conditions_by_job.values()), failed


async def _submit(client: RawClient, jobs: int, pods: int) -> None:
    in_flight = asyncio.Semaphore(IN_FLIGHT)

    async def create(number: int) -> None:
        async with in_flight:
            await client.send(Step("POST", JOBS, job(number, pods), 201))

    await asyncio.gather(*map(create, range(jobs)))


async def _all_succeeded(client: RawClient, jobs: int) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            # Not often: the measured process answers these requests.
            succeeded, failed = job_outcomes((await client.send(Step("GET", JOBS))).body)
            if failed:
                raise JobFailed(f"{', '.join(failed)} failed")
            if succeeded == jobs:
                return
            await asyncio.sleep(0.5)


@asynccontextmanager
async def _start_cluster(
    mode: str, folder: Path, isolation: str
) -> AsyncGenerator[tuple[Up, Process | None]]:
    async with AsyncExitStack() as stack:
        command = CLUSTER_COMMAND if mode == "separate-controller" else COMMAND
        flags = ["--no-ui"] if mode == "without-page" else []
        cluster = await stack.enter_async_context(
            up("--isolation", isolation, *flags, folder=folder, command=command)
        )
        controller = None
        if mode == "separate-controller":
            controller = await asyncio.create_subprocess_exec(
                *CONTROLLER_COMMAND, f"--kubeconfig={cluster.kubeconfig}", *NO_PORTS_FLAGS, stderr=PIPE
            )
        yield cluster, controller
        if controller:
            controller.terminate()
            await controller.communicate()
        await cluster.stop(signal.SIGTERM)


def _sandbox_daemons(cluster_pid: int) -> list[int]:
    """Return the sandbox daemons, before any pod runs; without namespaces there is none."""
    children = psutil.Process(cluster_pid).children(recursive=True)
    return [child.pid for child in children if "sandbox.daemon" in " ".join(child.cmdline())]
