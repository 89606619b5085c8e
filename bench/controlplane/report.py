"""The figures as tables: smallest / median / largest of the runs."""

import itertools
from collections.abc import Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any

from rich.table import Table

from bench.controlplane.targets import evaluate_targets, ratios
from bench.figures import spread, text

Result = Mapping[str, Any]

LABELS = {
    "create_to_first_pod_ms": "create → first pod, ms",
    "create_to_last_pod_ms": "create → last pod, ms",
    "create_to_last_service_ms": "create → last Service, ms",
    "create_to_pods_running_ms": "create → all pods Running, ms",
    "create_to_running_ms": "create → Running in status, ms",
    "job_create_to_pods_p50_ms": "a job: create → its pods, p50, ms",
    "job_create_to_pods_p99_ms": "a job: create → its pods, p99, ms",
    "job_create_to_running_p50_ms": "a job: create → Running, p50, ms",
    "job_create_to_running_p99_ms": "a job: create → Running, p99, ms",
    "exit_to_succeeded_ms": "master exit → Succeeded, ms",
    "create_to_succeeded_ms": "create → Succeeded, ms",
    "calls": "API calls, whole life",
    "calls_per_job": "API calls per job",
    "status_writes_per_job": "status writes per job",
    "controller_cpu_ms": "CPU, ms (baseline: the loader's)",
    "controller_cpu_per_pod_ms": "CPU per pod, ms (baseline: the loader's)",
    "server_cpu_ms": "API server CPU, ms",
    "controller_rss_before_mib": "RSS before, MiB",
    "controller_rss_peak_mib": "RSS peak, MiB",
    "jobs_without_all_conditions": "jobs without all conditions",
    "jobs_never_observed_running": "jobs never observed Running",
    "events": "events",
    "events_missing": "events missing",
}
"""Labels of the figures of runs, in the order of the table."""

START_LABELS = {
    "start_to_first_pod_ms": "start → first pod of a waiting job, ms",
    "cpu_until_idle_ms": "CPU until idle, ms",
    "rss_mib": "RSS, MiB",
    "rss_peak_mib": "RSS peak, MiB",
}
GROWTH_LABELS = {
    "rss_before_mib": "RSS before the objects exist, MiB",
    "rss_peak_mib": "RSS peak meanwhile, MiB",
    "rss_after_mib": "RSS when the objects exist, MiB",
    "cpu_ms": "CPU meanwhile, ms",
    "seconds": "duration, s",
}

LARGE_LABELS = {
    "create_to_pods_running_ms": "create → all pods Running, ms",
    "calls_per_pod": "API calls per pod until then",
    "status_writes": "status writes until then, of all jobs",
    "controller_rss_before_mib": "RSS before, MiB",
    "controller_rss_peak_mib": "RSS peak, MiB",
    **{
        f"{when}_{name}": f"a small job {words}: {label}, ms"
        for name, label in (
            ("create_to_pods_ms", "create → its pods"),
            ("pods_running_to_running_ms", "pods Running → Running in status"),
            ("create_to_running_ms", "create → Running in status"),
        )
        for when, words in (("alone", "alone"), ("beside", "beside it"))
    },
}

BASELINE_FIGURES = {"create_to_running_ms": "create_to_pods_running_ms"}
"""Figures with another name in the baseline, which has no status: pods Running stands for Running in status."""


SUMMARY_LABELS = {
    "create_to_running_ms": "create → Running, ms",
    "exit_to_succeeded_ms": "exit → Succeeded, ms",
    "calls_per_job": "calls per job",
    "controller_cpu_per_pod_ms": "CPU per pod, ms",
    "server_cpu_ms": "API server CPU, ms",
    "controller_rss_peak_mib": "RSS peak, MiB",
    "events_missing": "events missing",
}
"""Figures in the table of one row per case."""


def tables(results: Sequence[Result], *, brief: bool = False) -> list[Table]:
    """Return all tables, or with ``brief`` one row per case."""
    runs = [result for result in results if "runs" in result]
    starts = [result for result in results if "with" in result]
    larges = [result for result in results if "large" in result]
    timed = [result for result in results if "callbacks" in result]
    profiled = [result for result in results if "profile" in result]
    sections = [
        (results, targets_table),
        (runs, summary_table if brief else runs_table),
        (starts, starts_table),
        (larges, large_table),
        (runs, calls_table),
        (timed, callbacks_table),
        (profiled, partial(profiles_table, rows=10) if brief else profiles_table),
    ]
    built = [build(shown) for shown, build in sections if shown]
    return built if brief else [*built[1:], *built[:1]]  # the end of a terminal's output stays visible


def runs_table(results: Sequence[Result]) -> Table:
    """Several rows per case; the last column is the median ratio of a run to its baseline."""
    table = Table("case", "figure", "controller", "baseline", "×", title="smallest / median / largest")
    for result in results:
        for index, name in enumerate(name for name in LABELS if name in result["runs"][0]):
            table.add_row(result["case"] if index == 0 else "", LABELS[name], *_cells(result, name))
        table.add_section()
    return table


def summary_table(results: Sequence[Result]) -> Table:
    """One row per case, with the baseline and the ratio to it."""
    table = Table(
        "case", *SUMMARY_LABELS.values(), "baseline: pods Running, ms", "×", "baseline: API server CPU, ms"
    )
    for result in results:
        cells = {
            name: _cells(result, name) if name in result["runs"][0] else ("–",) * 3 for name in SUMMARY_LABELS
        }
        _, baseline, ratio = cells["create_to_running_ms"]
        ours = (ours for ours, _, _ in cells.values())
        table.add_row(result["case"], *ours, baseline, ratio, cells["server_cpu_ms"][1])
    return table


def calls_table(results: Sequence[Result]) -> Table:
    """The calls of the last run of each case."""
    table = Table("case", "calls of the last run", "refused")
    for result in results:
        last = result["runs"][-1]
        by_kind = ", ".join(f"{count} {kind}" for kind, count in last["calls_by_kind"].items())
        refused = ", ".join(f"{count} × {code}" for code, count in last["refused"].items())
        table.add_row(result["case"], by_kind, refused or "none")
    return table


def starts_table(results: Sequence[Result]) -> Table:
    """Starts of a controller without and with existing objects, and the growth of one that was running."""
    table = Table("case", "figure", "without", "with", title="smallest / median / largest")
    for result in results:
        rows = [
            (label, *(str(spread([run[name] for run in result[when]])) for when in ("without", "with")))
            for name, label in START_LABELS.items()
        ]
        rows += [(label, "", text(result["grown"][name])) for name, label in GROWTH_LABELS.items()]
        for index, row in enumerate(rows):
            table.add_row(result["case"] if index == 0 else "", *row)
        table.add_section()
    return table


def large_table(results: Sequence[Result]) -> Table:
    """The runs of one large job beside small ones."""
    table = Table("case", "figure", "controller", title="smallest / median / largest")
    for result in results:
        for index, (name, label) in enumerate(LARGE_LABELS.items()):
            figures = str(spread([run[name] for run in result["large"]]))
            table.add_row(result["case"] if index == 0 else "", label, figures)
        table.add_section()
    return table


def callbacks_table(results: Sequence[Result]) -> Table:
    """The three longest callbacks of each case."""
    table = Table("case", "longest callbacks, CPU ms at once")
    for result in results:
        longest = list(result["callbacks"]["cpu_ms"].items())[:3]
        table.add_row(result["case"], ", ".join(f"{text(ms)} {name}" for name, ms in longest))
    return table


def profiles_table(results: Sequence[Result], rows: int = 25) -> Table:
    """The controller's CPU time by function, in ``rows`` rows per case."""
    heads = ("package", "function, own time", "Python function, with its callees")
    table = Table("case", *itertools.chain(*(("%", head) for head in heads)), title="py-spy, time on a core")
    for result in results:
        profile = result["profile"]
        columns = (profile["parts"], profile["own"], profile["inclusive"])
        shown = itertools.zip_longest(*(column.items() for column in columns), fillvalue=("", 0))
        for index, row in enumerate(itertools.islice(shown, rows)):
            cells = [cell for name, share in row for cell in (f"{share:.1f}" if name else "", name)]
            table.add_row(result["case"] if index == 0 else "", *cells)
        table.add_section()
    return table


def targets_table(results: Sequence[Result]) -> Table:
    """Each target with a measured figure."""
    table = Table("case", "target", "at most", "measured", "", title="targets")
    for verdict in evaluate_targets({result["case"]: result for result in results}):
        target = verdict.target
        met = "met" if verdict.is_met else "missed"
        table.add_row(target.case, target.figure, text(target.maximum), text(verdict.measured), met)
    return table


def _cells(result: Result, name: str) -> tuple[str, str, str]:
    ours = str(spread([run[name] for run in result["runs"]]))
    baseline_figure = BASELINE_FIGURES.get(name, name)
    baseline = [run[baseline_figure] for run in result["baseline"] if baseline_figure in run]
    if not baseline:
        return ours, "–", "–"
    pairs = ratios(result, name, baseline_figure)
    return ours, str(spread(baseline)), f"{median(pairs):.2f}" if pairs else "–"
