"""``bench controlplane``: measure, show, record."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from bench import record
from bench.controlplane import floor, report
from bench.controlplane.life import Life, live
from bench.controlplane.rig import USER, Rig, clear, control_plane, rig
from bench.controlplane.scenario import SCENARIOS, Scenario, parse
from controller.testing.controlplane import ControlPlane, ProcessFailed
from controller.testing.service import RBAC, service

WARM_UP = Scenario(jobs=1, replicas=8)
"""Lived through once before a scenario is measured, by the controller and by the loader, so that connections are open."""

WIDTH = 132
"""Of the tables, in characters; narrower ones would break the figures apart."""


def add_parser(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]",  # pyright: ignore[reportPrivateUsage]
) -> None:
    parser = subparsers.add_parser(
        "controlplane", help="the controller on a real API server with simulated nodes"
    )
    parser.add_argument(
        "--scenario",
        action="append",
        type=parse,
        metavar="JOBSxREPLICAS",
        help=f"may be repeated; default: {', '.join(SCENARIOS)}",
    )
    parser.add_argument("--runs", type=int, default=5, help="of each scenario; default 5")
    parser.add_argument("--no-record", action="store_true", help="only show the figures")
    parser.add_argument("flags", nargs="*", metavar="-- FLAG", help="flags of the controller, after --")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Exit status: 0, or 1 when a process did not come up or jobs did not run."""
    console = Console(stderr=True)
    if not RBAC.is_dir():
        console.print(f"not measured: there is no {RBAC}; measurements run from a checkout", style="red")
        return 1
    scenarios = args.scenario or list(SCENARIOS.values())
    load_before = record.load()
    try:
        with control_plane() as plane:
            versions = {"kube-apiserver": plane.request("GET", "/version")["gitVersion"]}
            results = [_measure(plane, scenario, args, console) for scenario in scenarios]
    except (ProcessFailed, TimeoutError) as error:
        console.print(
            f"not measured: {str(error) or 'the jobs did not run in time'}", style="red", markup=False
        )
        return 1
    shown = Console(file=sys.stdout, width=WIDTH)
    shown.print(report.table(results))
    shown.print(report.calls(results))
    if not args.no_record:
        result = _record(results, versions, args.flags, load_before)
        console.print(f"recorded in {record.save('controlplane', result)}", highlight=False)
    return 0


def _measure(
    plane: ControlPlane, scenario: Scenario, args: argparse.Namespace, console: Console
) -> dict[str, Any]:
    """All runs of one scenario, by a controller that was started for it."""
    console.print(f"{scenario.name}: {args.runs} runs", highlight=False)
    with service(plane, plane.kubeconfig(USER), args.flags) as running:
        return asyncio.run(_runs(plane, scenario, args.runs, running.process.pid, console))


async def _runs(
    plane: ControlPlane, scenario: Scenario, runs: int, pid: int, console: Console
) -> dict[str, Any]:
    lives: list[dict[str, Any]] = []
    floors: list[dict[str, float]] = []
    async with rig(plane) as stage:
        await clear(stage)
        await _both(stage, WARM_UP, f"{scenario.name}-w00", pid)
        for number in range(1, runs + 1):
            life, below = await _both(stage, scenario, f"{scenario.name}-r{number:02}", pid)
            lives.append(_flat(life))
            floors.append(below)
            running, ground = life.figures["create_to_running_ms"], below["create_to_pods_running_ms"]
            console.print(
                f"  {number}: Running after {running:.0f} ms, floor {ground:.0f} ms", highlight=False
            )
    return {
        "scenario": scenario.name,
        "jobs": scenario.jobs,
        "replicas": scenario.replicas,
        "runs": lives,
        "floor": floors,
    }


async def _both(stage: Rig, scenario: Scenario, run: str, pid: int) -> tuple[Life, dict[str, float]]:
    """One run of the controller, and the floor with the objects that came of it, side by side in time."""
    run = f"j{run}"  # a job's name begins with a letter
    again = f"f{run[1:]}"
    life = await live(stage, scenario, run, pid)
    objects = [(resource, floor.renamed(body, run, again)) for resource, body in await floor.bodies(stage)]
    await clear(stage)
    below = await floor.load(stage, scenario, objects)
    await clear(stage)
    return life, below


def _flat(life: Life) -> dict[str, Any]:
    return {
        **life.figures,
        "calls": life.calls.total,
        "calls_by_kind": life.calls.by_kind,
        "refused": life.calls.refused,
    }


def _record(
    results: list[dict[str, Any]], versions: dict[str, str], flags: Sequence[str], load_before: float
) -> dict[str, Any]:
    return {
        "definitions": "bench/README.md",
        "commit": record.commit(),
        "environment": record.environment() | {"versions": versions},
        "load_average": {"before": load_before, "after": record.load()},
        "controller_flags": list(flags),
        "scenarios": results,
    }
