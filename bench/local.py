"""``bench local``: many small jobs at once on a site of this machine, and what the site itself costs them."""

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
from rich.table import Table

from bench import record
from bench.controlplane.processes import cpu_ms, peak_rss_mib
from bench.figures import spread
from rallypoint.local.node.sandbox.selection import IsolationMode
from rallypoint.testing.up import COMMAND, Up, up
from rallypoint.testing.wire import Step, Wire

JOBS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
FORMS = ("whole", "apart")
"""``whole`` is ``rallypoint up``; ``apart`` is the same with the controller as a process of its own."""
IN_FLIGHT = 32
PATIENCE_SECONDS = 300.0
SITE_ALONE = [sys.executable, "-m", "bench.local_cluster"]
CONTROLLER = [sys.executable, "-m", "controller", "--leader-elect=false"]
NO_PORTS = ["--metrics-bind-address=0", "--health-probe-bind-address=0"]
LABELS = {
    "seconds": "first POST → all jobs Succeeded, s",
    "peak_rss_mib": "RSS of rallypoint, peak, MiB",
    "keeper_peak_rss_mib": "RSS of the keeper of namespaces, peak, MiB",
    "cpu_ms_per_pod": "CPU of rallypoint a pod, ms",
    "controller_cpu_ms_per_pod": "of these the controller, ms",
    "site_cpu_ms_per_pod": "of these API server, scheduler and node, ms",
    "keeper_cpu_ms_per_pod": "CPU of the keeper of namespaces a pod, ms",
}


def add_parser(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]",  # pyright: ignore[reportPrivateUsage]
) -> None:
    parser = subparsers.add_parser("local", help="many jobs at once in local mode")
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--pods", type=int, default=4, help="of each job; default 4")
    parser.add_argument("--runs", type=int, default=3, help="of each form; default 3")
    parser.add_argument("--isolation", choices=get_args(IsolationMode), default="auto")
    parser.add_argument("--no-record", action="store_true", help="only show the figures")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Exit status: 0, or 1 when a job did not succeed."""
    console, load_before = Console(stderr=True, highlight=False), record.load()
    results: dict[str, list[dict[str, float]]] = {form: [] for form in FORMS}
    try:
        for number in range(args.runs):
            for form in FORMS:
                results[form].append(asyncio.run(run(form, args.jobs, args.pods, args.isolation)))
                console.print(f"{form} {number}: {results[form][-1]}")
    except (TimeoutError, Failed) as error:
        console.print(f"not measured: {str(error) or 'the jobs do not end'}", style="red", markup=False)
        return 1
    title = f"{args.jobs} jobs of {args.pods} pods at once, isolation {args.isolation}"
    Console(file=sys.stdout, width=120).print(table(title, results))
    if not args.no_record:
        asked = {"jobs": args.jobs, "pods": args.pods, "isolation": args.isolation}
        console.print(f"recorded in {record.save('local', _result(asked, results, load_before))}")
    return 0


class Failed(Exception):
    """A job has not succeeded."""


async def run(form: str, jobs: int, pods: int, isolation: str) -> dict[str, float]:
    """One site, from its start to its end; what it cost from the first job on.

    Raises:
        Failed: a job failed.
        TimeoutError: not all jobs came to an end.
    """
    with tempfile.TemporaryDirectory() as folder:
        async with _site(form, Path(folder), isolation) as (here, controller):
            measured = {"site": [here.process.pid], "keeper": _keeper(here.process.pid)}
            measured |= {"controller": [controller.pid]} if controller else {}
            before = {name: sum(map(cpu_ms, pids)) for name, pids in measured.items()}
            since = time.perf_counter()
            await _submit(here.wire, jobs, pods)
            await _all_succeeded(here.wire, jobs)
            seconds = time.perf_counter() - since
            spent = {name: sum(map(cpu_ms, pids)) - before[name] for name, pids in measured.items()}
            peak = {name: sum(map(peak_rss_mib, pids)) for name, pids in measured.items()}
    cpu = {name: value / (jobs * pods) for name, value in spent.items()}
    keeping = {"keeper_peak_rss_mib": peak["keeper"], "keeper_cpu_ms_per_pod": cpu["keeper"]}
    if not controller:
        return {"seconds": seconds, "peak_rss_mib": peak["site"], "cpu_ms_per_pod": cpu["site"], **keeping}
    apart = {"controller_cpu_ms_per_pod": cpu["controller"], "site_cpu_ms_per_pod": cpu["site"]}
    return {"seconds": seconds, "cpu_ms_per_pod": cpu["site"] + cpu["controller"], **apart, **keeping}


def job(number: int, pods: int) -> dict[str, Any]:
    """A PyTorchJob whose pods end at once."""
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


def ended(listed: dict[str, Any]) -> tuple[int, list[str]]:
    """How many jobs have succeeded, and the names of those that failed."""
    holding = {
        item["metadata"]["name"]: {
            one["type"]
            for one in (item.get("status") or {}).get("conditions") or ()
            if one["status"] == "True"
        }
        for item in listed["items"]
    }
    failed = [name for name, conditions in holding.items() if "Failed" in conditions]
    return sum("Succeeded" in conditions for conditions in holding.values()), failed


def table(title: str, results: dict[str, list[dict[str, float]]]) -> Table:
    """Smallest, median and largest of the runs."""
    shown = Table("", *results, title=title)
    for figure, label in LABELS.items():
        found = [[run[figure] for run in runs if figure in run] for runs in results.values()]
        shown.add_row(label, *(str(spread(values)) if values else "" for values in found))
    return shown


async def _submit(wire: Wire, jobs: int, pods: int) -> None:
    in_flight = asyncio.Semaphore(IN_FLIGHT)

    async def create(number: int) -> None:
        async with in_flight:
            await wire.send(Step("POST", JOBS, job(number, pods), 201))

    await asyncio.gather(*map(create, range(jobs)))


async def _all_succeeded(wire: Wire, jobs: int) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            # Seldom, for what is measured answers it.
            succeeded, failed = ended((await wire.send(Step("GET", JOBS))).body)
            if failed:
                raise Failed(f"{', '.join(failed)} failed")
            if succeeded == jobs:
                return
            await asyncio.sleep(0.5)


@asynccontextmanager
async def _site(form: str, folder: Path, isolation: str) -> AsyncGenerator[tuple[Up, Process | None]]:
    async with AsyncExitStack() as stack:
        command = COMMAND if form == "whole" else SITE_ALONE
        here = await stack.enter_async_context(up("--isolation", isolation, folder=folder, command=command))
        controller = None
        if form == "apart":
            controller = await asyncio.create_subprocess_exec(
                *CONTROLLER, f"--kubeconfig={here.kubeconfig}", *NO_PORTS, stderr=PIPE
            )
        yield here, controller
        if controller:
            controller.terminate()
            await controller.communicate()
        await here.stop(signal.SIGTERM)


def _keeper(site: int) -> list[int]:
    """The processes that hold the namespaces; none where pods have none. Asked before there are pods."""
    children = psutil.Process(site).children(recursive=True)
    return [child.pid for child in children if "sandbox.daemon" in " ".join(child.cmdline())]


def _result(asked: dict[str, Any], results: dict[str, Any], load_before: float) -> dict[str, Any]:
    return {
        "definitions": "bench/README.md",
        "commit": record.commit(),
        "environment": record.environment(),
        "load_average": {"before": load_before, "after": record.load()},
        "local": asked | results,
    }
