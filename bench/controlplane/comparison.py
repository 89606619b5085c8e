"""Several operators and the loader in turn, in one run, each with a control plane of its own.

In a round each operator is started first by hand, to measure its memory, and then as in a cluster. Then each scenario runs with each
operator and ends with the loader, which creates the objects of the first operator. The operators of a round run until its end, but only
one of them has jobs at a time. Every round has new processes of operators, and another operator goes first.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from bench.controlplane import baseline, start
from bench.controlplane.cases import WARM_UP, flatten
from bench.controlplane.job_run import run_jobs, submit_and_wait
from bench.controlplane.operators import Operator
from bench.controlplane.processes import rss_mib
from bench.controlplane.scenario import Jobs, parse
from bench.controlplane.testbed import Testbed, clear, control_plane, entered, open_testbed
from bench.figures import text
from rallypoint.testing.controlplane import ControlPlane

LOADER = "loader"
IDLE = "idle"
"""The case of an operator that has run one job and has no work."""
SCENARIOS = (
    "1x1",
    "1x8",
    "1x64",
    "1x256",
    "100x8",
    "500x2",
    "200x2-quick",
    "1x64-mpi",
    "50x8-mpi",
)
"""The default scenarios."""

Runs = list[dict[str, Any]]


@dataclass(slots=True)
class Measured:
    """The runs so far, by case and operator; usable after an error, too."""

    cases: dict[str, dict[str, Runs]] = field(default_factory=dict[str, dict[str, Runs]])
    version: str = ""
    """Of kube-apiserver."""

    def add(self, case: str, name: str, run: dict[str, Any]) -> None:
        self.cases.setdefault(case, {}).setdefault(name, []).append(run)

    def results(self) -> list[dict[str, Any]]:
        """Return one result for each case, for the record."""
        return [
            {
                "case": case,
                "operators": {name: found for name, found in runs.items() if name != LOADER},
                "loader": runs.get(LOADER, []),
            }
            for case, runs in self.cases.items()
        ]


def default_scenarios() -> list[Jobs]:
    return [scenario for scenario in map(parse, SCENARIOS) if isinstance(scenario, Jobs)]


def idle_case(*, mpi: bool) -> str:
    return f"{IDLE}-mpi" if mpi else IDLE


def measure(
    operators: Sequence[Operator],
    scenarios: Sequence[Jobs],
    rounds: int,
    say: Callable[[str], None],
    measured: Measured,
) -> None:
    """Measure the scenarios: those of MPIJobs after the others, with other control planes and operators.

    Raises:
        TimeoutError: jobs do not reach the expected state.
        ProcessFailed: an operator or a control plane does not start.
        Unavailable: a program cannot be found, downloaded or compiled.
    """
    for mpi in (False, True):
        if chosen := [scenario for scenario in scenarios if scenario.mpi is mpi]:
            with _planes(operators, batch=mpi) as planes:
                measured.version = planes[LOADER].request("GET", "/version")["gitVersion"]
                asyncio.run(_rounds(operators, planes, chosen, rounds, say, measured))


@contextmanager
def _planes(operators: Sequence[Operator], *, batch: bool) -> Generator[dict[str, ControlPlane]]:
    """Start a control plane for each operator, and one with the definitions of the first for the loader."""
    installs = {operator.name: operator.install for operator in operators} | {LOADER: operators[0].install}
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(control_plane(batch=batch, install=install))
            for name, install in installs.items()
        }


async def _rounds(
    operators: Sequence[Operator],
    planes: Mapping[str, ControlPlane],
    scenarios: Sequence[Jobs],
    rounds: int,
    say: Callable[[str], None],
    measured: Measured,
) -> None:
    async with AsyncExitStack() as stack:
        testbeds = {
            name: await stack.enter_async_context(open_testbed(plane)) for name, plane in planes.items()
        }
        for number in range(1, rounds + 1):
            first = (number - 1) % len(operators)
            order = [*operators[first:], *operators[:first]]
            async with AsyncExitStack() as running:
                pids = {
                    operator.name: await running.enter_async_context(
                        _ready(operator, testbeds[operator.name], measured, mpi=scenarios[0].mpi)
                    )
                    for operator in order
                }
                for scenario in scenarios:
                    objects = await _run_all(order, testbeds, pids, scenario, number, measured, operators[0])
                    if not scenario.quick:
                        loader = testbeds[LOADER]
                        measured.add(
                            scenario.name,
                            LOADER,
                            await baseline.measure(loader, operators[0].scenario(scenario), objects),
                        )
                        await clear(loader)
                    say(progress_line(number, scenario.name, measured.cases[scenario.name]))


async def _run_all(
    order: Sequence[Operator],
    testbeds: Mapping[str, Testbed],
    pids: Mapping[str, int],
    scenario: Jobs,
    number: int,
    measured: Measured,
    copied: Operator,
) -> list[baseline.Body]:
    """Run a scenario with each operator, and return the objects that one of them created."""
    objects: list[baseline.Body] = []
    for operator in order:
        testbed, jobs = testbeds[operator.name], operator.scenario(scenario)
        run = f"j{scenario.name}-r{number:02}"
        measured.add(
            scenario.name,
            operator.name,
            flatten(await run_jobs(testbed, jobs, run, pids[operator.name]), jobs),
        )
        if operator is copied:
            objects = await baseline.object_bodies(testbed, jobs)
        await clear(testbed)
    return objects


@asynccontextmanager
async def _ready(
    operator: Operator, testbed: Testbed, measured: Measured, *, mpi: bool
) -> AsyncGenerator[int]:
    """Measure the memory of an operator in both forms, and yield the process ID of that in a cluster."""
    idle: dict[str, float] = {}
    if (by_hand := operator.by_hand(testbed.plane)) is not None:
        async with entered(by_hand) as process:
            await _warm_up(testbed, mpi=mpi)
            idle["rss_by_hand_mib"] = rss_mib(process.pid)
    async with entered(operator.running(testbed.plane, mpi=mpi)) as process:
        await _warm_up(testbed, mpi=mpi)
        idle["rss_idle_mib"] = rss_mib(process.pid)
        idle.setdefault("rss_by_hand_mib", idle["rss_idle_mib"])
        measured.add(idle_case(mpi=mpi), operator.name, idle)
        yield process.pid


async def _warm_up(testbed: Testbed, *, mpi: bool) -> None:
    """Run one job of the kind and wait until the operator is idle."""
    first = replace(WARM_UP, mpi=mpi)
    async with asyncio.timeout(start.START_SECONDS):
        await submit_and_wait(testbed, first, first.job_names("warm"))
    await testbed.audit.wait_until_idle()
    await clear(testbed)


def progress_line(number: int, case: str, runs: Mapping[str, Runs]) -> str:
    """Return the line to print after a scenario of a round: the time to Running, or of quick jobs to Succeeded."""
    figures = ("create_to_succeeded_ms", "create_to_running_ms", "create_to_pods_running_ms")
    reached = {
        name: next(found[-1][figure] for figure in figures if figure in found[-1])
        for name, found in runs.items()
    }
    return f"  {case}, {number}: " + ", ".join(f"{name} {text(ms)} ms" for name, ms in reached.items())
