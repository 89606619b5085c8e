"""``bench controlplane``: measure, show and record."""

import argparse
import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console

from bench import record
from bench.controlplane import comparison
from bench.controlplane.cases import MeasurementOptions, measure
from bench.controlplane.operators import operators, opponent
from bench.controlplane.profile import ProfilerUnavailable, py_spy_path
from bench.controlplane.scenario import (
    CASES,
    FEWER_SERVICES,
    Case,
    Jobs,
    Scenario,
    parse,
    take_turns,
)
from bench.controlplane.testbed import control_plane, open_testbed
from bench.show import show
from bench.subparsers import Subparsers
from rallypoint.testing.controlplane import ControlPlane, ProcessFailed, Unavailable
from rallypoint.testing.service import RBAC


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "controlplane", help="measure the controller on a real API server with simulated nodes"
    )
    flag = parser.add_argument
    flag(
        "--scenario",
        action="append",
        type=parse,
        metavar="NAME",
        help="JOBSxREPLICAS[-mixed|-mpi][-quick], JOBSxREPLICAS-addressed, JOBSxREPLICAS-per-job, COUNT-foreign, "
        "COUNT-finished, COUNT-own or COUNT-large; repeatable; default: all with a target",
    )
    flag(
        "--events",
        choices=("full", "compact", "off"),
        help="--events of the controller for the scenarios; default: full",
    )
    flag(
        "--compare",
        action="append",
        type=opponent,
        metavar="go|REF[,--FLAG=VALUE…]",
        help="measure another operator in turn with that of the working tree and the loader: the tuned Go operators, or "
        "that of a commit with flags of the controller; repeatable",
    )
    flag("--runs", type=int, default=3, help="runs of each case; default: 3")
    flag("--profile", action="store_true", help="run each case once more under py-spy")
    flag("--no-record", action="store_true", help="show the figures without recording them")
    flag("flags", nargs="*", metavar="-- FLAG", help="flags of the controller, after --")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Return the exit status: 0, or 1 if a case failed; the finished cases are then shown, but not recorded."""
    console = Console(stderr=True, highlight=False)
    if not RBAC.is_dir():
        console.print(f"not measured: {RBAC} does not exist; run from a checkout", style="red")
        return 1
    if args.compare:
        return _compare(args, console)
    measured = _Measured(facts={"controller_flags": list(args.flags)})
    return _run(args, console, "controlplane", measured, lambda: _measure_all(args, console, measured))


def _run(
    args: argparse.Namespace,
    console: Console,
    record_name: str,
    measured: "_Measured",
    measure_all: Callable[[], None],
) -> int:
    """Measure, show what was measured, and record it if it is complete. Returns the exit status as ``execute`` does."""
    began, load_before, is_complete = time.monotonic(), record.load_average(), False
    try:
        measure_all()
        is_complete = True
    except (ProcessFailed, TimeoutError, ProfilerUnavailable, Unavailable) as error:
        reason = str(error) or "the jobs did not run in time"
        console.print(f"not measured: {reason}", style="red", markup=False)
    show(measured.results)
    if not is_complete:
        return 1
    if not args.no_record:
        result = record.document(
            load_before,
            measured.version,
            took_seconds=round(time.monotonic() - began),
            **measured.facts,
            cases=measured.results,
        )
        console.print(f"recorded in {record.save(record_name, result)}")
    return 0


def _compare(args: argparse.Namespace, console: Console) -> int:
    """Measure several operators in turn. Returns the exit status as ``execute`` does."""
    scenarios = args.scenario or comparison.default_scenarios()
    if refused := [scenario.name for scenario in scenarios if not _can_compare(scenario)]:
        console.print(
            f"not measured: {', '.join(refused)}: a comparison has scenarios of jobs alone; modes of Services are flags",
            style="red",
        )
        return 1
    if args.profile:
        console.print("not measured: a comparison has no profile", style="red")
        return 1
    flags = [*([f"--events={args.events}"] if args.events else []), *args.flags]
    measured = _Measured()

    def measure_all() -> None:
        compared = operators(flags, args.compare)
        measured.facts = {"operators": {operator.name: operator.facts() for operator in compared}}
        found = comparison.Measured()
        try:
            comparison.measure(compared, scenarios, args.runs, console.print, found)
        finally:
            measured.version, measured.results = found.version, found.results()

    return _run(args, console, "comparison", measured, measure_all)


def _can_compare(scenario: Scenario) -> bool:
    return isinstance(scenario, Jobs) and scenario.service_mode not in FEWER_SERVICES


@dataclass
class _Measured:
    """What was measured so far; usable after an error, too."""

    results: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    version: str = ""
    facts: dict[str, Any] = field(default_factory=dict[str, Any])
    """What else the record says of the run."""


def selected_cases(args: argparse.Namespace) -> list[Case]:
    """Return the cases that the arguments select."""
    if args.scenario:
        return [Case(scenario, args.events or "full") for scenario in args.scenario]
    return [case for case in CASES if args.events in {None, case.events}]


def _measure_all(args: argparse.Namespace, console: Console, measured: _Measured) -> None:
    if args.profile:
        py_spy_path()
    options = MeasurementOptions(args.runs, args.flags, args.profile, console.print)
    for cases in group_by_control_plane(selected_cases(args)):
        batch = any(isinstance(case.scenario, Jobs) and case.scenario.mpi for case in cases)
        with control_plane(batch=batch) as plane:
            measured.version = plane.request("GET", "/version")["gitVersion"]
            for group in take_turns(cases):
                console.print(f"{', '.join(case.name for case in group)}: {options.runs} runs")
                measured.results += asyncio.run(_measure(plane, group, options))


def group_by_control_plane(cases: Iterable[Case]) -> list[list[Case]]:
    """Group the cases by control plane: runs of jobs clean up and share one; starts leave objects behind and get their own."""
    jobs = [(case, case.scenario) for case in cases if isinstance(case.scenario, Jobs)]
    shared = [[case for case, scenario in jobs if scenario.mpi is mpi] for mpi in (False, True)]
    alone = [[case] for case in cases if not isinstance(case.scenario, Jobs)]
    return [group for group in (*shared, *alone) if group]


async def _measure(
    plane: ControlPlane, cases: list[Case], options: MeasurementOptions
) -> list[dict[str, Any]]:
    async with open_testbed(plane) as testbed:
        return await measure(testbed, cases, options)
