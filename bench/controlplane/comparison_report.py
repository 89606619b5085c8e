"""The tables of a comparison: medians with their smallest and largest value, ratios of runs of the same round, and targets."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from rich.table import Table

from bench.controlplane.comparison import LOADER
from bench.controlplane.operators import GO, WORKING_TREE
from bench.controlplane.report import BASELINE_FIGURES, LABELS
from bench.figures import spread, text

Result = Mapping[str, Any]
Runs = Sequence[Mapping[str, float]]

TIMES = (
    "create_to_running_ms",
    "job_create_to_running_p50_ms",
    "create_to_succeeded_ms",
    "exit_to_succeeded_ms",
)
FIGURES = {
    **{name: LABELS[name] for name in TIMES},
    "status_writes_per_job": LABELS["status_writes_per_job"],
    "calls_per_job": LABELS["calls_per_job"],
    "server_cpu_ms": "API server CPU, ms",
    "controller_cpu_per_pod_ms": "operator CPU per pod, ms",
    "controller_rss_peak_mib": "RSS peak, MiB",
    "jobs_never_observed_running": LABELS["jobs_never_observed_running"],
    "events_missing": LABELS["events_missing"],
    "rss_idle_mib": "RSS idle, MiB",
    "rss_by_hand_mib": "RSS idle, started by a kubeconfig, MiB",
}
"""Labels of the figures, in the order of the table."""
COUNTS = ("jobs_never_observed_running", "events_missing")
"""Figures without a ratio: 0 is what they should be."""


def tables(results: Sequence[Result]) -> list[Table]:
    names = operator_names(results)
    return [figures_table(results, names), ratios_table(results, names), targets_table(results)]


def operator_names(results: Sequence[Result]) -> list[str]:
    """Return the operators in the order of the command; the order in a case is that of its first round."""
    return list(dict.fromkeys(name for result in results for name in result["operators"]))


def figures_table(results: Sequence[Result], names: Sequence[str]) -> Table:
    """Rows of figures, columns of operators and the loader; cells are the median with the smallest and the largest value."""
    table = Table("case", "figure", *names, LOADER, title="median (smallest to largest)")
    for result in results:
        runs = [result["operators"].get(name, ()) for name in names]
        for index, figure in enumerate(_figures(result)):
            cells = [*(cell(found, figure) for found in runs), cell(result["loader"], _of_loader(figure))]
            table.add_row(result["case"] if index == 0 else "", FIGURES[figure], *cells)
        table.add_section()
    return table


def ratios_table(results: Sequence[Result], names: Sequence[str]) -> Table:
    """The ratio of each run to the other operator's or the loader's of the same round."""
    first, *others = names
    pairs = [*((first, other) for other in others), *((name, LOADER) for name in names if name != GO)]
    headings = [f"{name} ÷ {other}" for name, other in pairs]
    table = Table("case", "ratio", *headings, title="ratios: median (smallest to largest)")
    for result in results:
        rows = [
            (FIGURES[figure], [ratio_cell(ratios(result, name, other, figure)) for name, other in pairs])
            for figure in _figures(result)
            if figure not in COUNTS
        ]
        for index, (label, cells) in enumerate(row for row in rows if any(row[1])):
            table.add_row(result["case"] if index == 0 else "", label, *cells)
        table.add_section()
    return table


def targets_table(results: Sequence[Result]) -> Table:
    """Each target of the working tree with a measured figure."""
    table = Table("case", "target", "at most", "measured", "", title="targets")
    by_case = {result["case"]: result for result in results}
    for target in TARGETS:
        if target.case in by_case and (values := target.read(by_case[target.case])):
            met = "met" if median(values) <= target.maximum else "missed"
            table.add_row(target.case, target.figure, text(target.maximum), text(median(values)), met)
    return table


def cell(runs: Runs, figure: str) -> str:
    """Return the median with the smallest and the largest value; empty without values."""
    values = [run[figure] for run in runs if figure in run]
    if not values:
        return ""
    found = spread(values)
    if found.smallest == found.largest:
        return text(found.median)
    return f"{text(found.median)} ({text(found.smallest)} to {text(found.largest)})"


def ratio_cell(values: Sequence[float]) -> str:
    if not values:
        return ""
    found = spread(values)
    return f"{found.median:.2f} ({found.smallest:.2f} to {found.largest:.2f})"


def ratios(result: Result, name: str, other: str, figure: str) -> list[float]:
    """Return the ratio of each round; empty if one of the two lacks the figure."""
    theirs = result["loader"] if other == LOADER else result["operators"].get(other, ())
    divisor = _of_loader(figure) if other == LOADER else figure
    return [
        run[figure] / against[divisor]
        for run, against in zip(result["operators"].get(name, ()), theirs, strict=False)
        if figure in run and against.get(divisor)
    ]


def _figures(result: Result) -> Iterator[str]:
    present = {figure for runs in result["operators"].values() for run in runs for figure in run}
    return (figure for figure in FIGURES if figure in present)


def _of_loader(figure: str) -> str:
    return BASELINE_FIGURES.get(figure, figure)


@dataclass(frozen=True, slots=True)
class Target:
    case: str
    figure: str
    maximum: float
    read: Callable[[Result], list[float]]
    """Returns the values of the rounds; empty if the figure was not measured."""


def _value(case: str, figure: str, maximum: float) -> Target:
    def read(result: Result) -> list[float]:
        return [run[figure] for run in result["operators"].get(WORKING_TREE, ()) if figure in run]

    return Target(case, FIGURES[figure], maximum, read)


def _ratio(case: str, other: str, figure: str, maximum: float) -> Target:
    return Target(
        case,
        f"{FIGURES[figure]}, ÷ {other}",
        maximum,
        lambda result: ratios(result, WORKING_TREE, other, figure),
    )


RUNNING = "create_to_running_ms"
TARGETS = (
    _value("1x1", RUNNING, 40),
    *(_ratio(case, GO, RUNNING, 0.7) for case in ("1x1", "1x8", "1x64", "1x256", "100x8", "500x2")),
    _ratio("200x2-quick", GO, "create_to_succeeded_ms", 0.7),
    *(_ratio(case, GO, RUNNING, 0.7) for case in ("1x64-mpi", "50x8-mpi")),
    *(
        _ratio(case, LOADER, RUNNING, maximum)
        for case, maximum in (("1x256", 0.6), ("100x8", 1.2), ("500x2", 1.4), ("50x8-mpi", 1.3))
    ),
    *(
        _value(case, "status_writes_per_job", maximum)
        for case, maximum in (("100x8", 3), ("500x2", 3), ("200x2-quick", 3))
    ),
    _value("100x8", "controller_cpu_per_pod_ms", 1.2),
    _value("500x2", "controller_cpu_per_pod_ms", 2),
    _value("idle", "rss_idle_mib", 55),
    _value("idle", "rss_by_hand_mib", 70),
)
