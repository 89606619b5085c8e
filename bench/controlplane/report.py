"""The figures as tables that a person reads: smallest / median / largest of the runs."""

import itertools
from collections.abc import Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any

from rich.table import Table

from bench.controlplane.targets import judge, ratios
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
    "controller_cpu_ms": "CPU, ms (floor: the loader's)",
    "controller_cpu_per_pod_ms": "CPU per pod, ms (floor: the loader's)",
    "server_cpu_ms": "API server CPU, ms",
    "controller_rss_before_mib": "RSS before, MiB",
    "controller_rss_peak_mib": "RSS peak, MiB",
    "jobs_without_all_conditions": "jobs without all conditions",
    "jobs_never_seen_running": "jobs never seen Running",
    "events": "events",
    "events_missing": "events missing",
}
"""Figures of runs in the order of the table, and how a reader calls them."""

STARTS = {
    "start_to_first_pod_ms": "start → first pod of a waiting job, ms",
    "cpu_until_quiet_ms": "CPU until quiet, ms",
    "rss_mib": "RSS, MiB",
    "rss_peak_mib": "RSS peak, MiB",
}
GROWN = {
    "rss_before_mib": "RSS before they came, MiB",
    "rss_peak_mib": "RSS peak meanwhile, MiB",
    "rss_after_mib": "RSS when they were there, MiB",
    "cpu_ms": "CPU meanwhile, ms",
    "seconds": "time that it took, s",
}

FLOOR_OF = {"create_to_running_ms": "create_to_pods_running_ms"}
"""Figures that the floor has under another name: without a status, the pods' running is all there is."""


BRIEFLY = {
    "create_to_running_ms": "create → Running, ms",
    "exit_to_succeeded_ms": "exit → Succeeded, ms",
    "calls_per_job": "calls per job",
    "controller_cpu_per_pod_ms": "CPU per pod, ms",
    "server_cpu_ms": "API server CPU, ms",
    "controller_rss_peak_mib": "RSS peak, MiB",
    "events_missing": "events missing",
}
"""Figures that a row for each case has room for."""


def tables(results: Sequence[Result], *, brief: bool = False) -> list[Table]:
    """What there is to show of these results: all of it, or of each case what fits a row."""
    runs = [result for result in results if "runs" in result]
    starts = [result for result in results if "with" in result]
    timed = [result for result in results if "callbacks" in result]
    profiled = [result for result in results if "profile" in result]
    shown = [
        (results, targets),
        (runs, briefly if brief else of_runs),
        (starts, of_starts),
        (runs, calls),
        (timed, callbacks),
        (profiled, partial(profiles, rows=10) if brief else profiles),
    ]
    made = [table(chosen) for chosen, table in shown if chosen]
    return made if brief else [*made[1:], *made[:1]]  # whoever looks at a terminal sees its end


def of_runs(results: Sequence[Result]) -> Table:
    """Rows for each case; the last column is the median of the ratios of a run and its floor."""
    made = Table("case", "figure", "controller", "floor", "×", title="smallest / median / largest")
    for result in results:
        for index, name in enumerate(name for name in LABELS if name in result["runs"][0]):
            made.add_row(result["case"] if index == 0 else "", LABELS[name], *_cells(result, name))
        made.add_section()
    return made


def briefly(results: Sequence[Result]) -> Table:
    """A row for each case, with the floor and the ratio of what is held against it."""
    made = Table("case", *BRIEFLY.values(), "floor: pods Running, ms", "×", "floor: API server CPU, ms")
    for result in results:
        cells = {name: _cells(result, name) if name in result["runs"][0] else ("–",) * 3 for name in BRIEFLY}
        _, floor, ratio = cells["create_to_running_ms"]
        ours = (ours for ours, _, _ in cells.values())
        made.add_row(result["case"], *ours, floor, ratio, cells["server_cpu_ms"][1])
    return made


def calls(results: Sequence[Result]) -> Table:
    """What the calls of the last run of each case were."""
    made = Table("case", "calls of the last run", "refused")
    for result in results:
        last = result["runs"][-1]
        by_kind = ", ".join(f"{count} {kind}" for kind, count in last["calls_by_kind"].items())
        refused = ", ".join(f"{count} × {code}" for code, count in last["refused"].items())
        made.add_row(result["case"], by_kind, refused or "none")
    return made


def of_starts(results: Sequence[Result]) -> Table:
    """Starts of a controller without and with what lies around, and one that saw it come."""
    made = Table("case", "figure", "without", "with", title="smallest / median / largest")
    for result in results:
        rows = [
            (label, *(str(spread([one[name] for one in result[when]])) for when in ("without", "with")))
            for name, label in STARTS.items()
        ]
        rows += [(label, "", text(result["grown"][name])) for name, label in GROWN.items()]
        for index, row in enumerate(rows):
            made.add_row(result["case"] if index == 0 else "", *row)
        made.add_section()
    return made


def callbacks(results: Sequence[Result]) -> Table:
    """The three longest of each case."""
    made = Table("case", "longest callbacks, CPU ms at once")
    for result in results:
        longest = list(result["callbacks"]["cpu_ms"].items())[:3]
        made.add_row(result["case"], ", ".join(f"{text(ms)} {name}" for name, ms in longest))
    return made


def profiles(results: Sequence[Result], rows: int = 25) -> Table:
    """Where the controller's time goes, in as many rows for each case."""
    heads = ("package", "function, own time", "Python function, with what it called")
    made = Table("case", *itertools.chain(*(("%", head) for head in heads)), title="py-spy, time on a core")
    for result in results:
        profile = result["profile"]
        columns = (profile["parts"], profile["own"], profile["inclusive"])
        shown = itertools.zip_longest(*(column.items() for column in columns), fillvalue=("", 0))
        for index, row in enumerate(itertools.islice(shown, rows)):
            cells = [cell for name, share in row for cell in (f"{share:.1f}" if name else "", name)]
            made.add_row(result["case"] if index == 0 else "", *cells)
        made.add_section()
    return made


def targets(results: Sequence[Result]) -> Table:
    """Each target that these results tell of."""
    made = Table("case", "target", "at most", "measured", "", title="targets")
    for verdict in judge({result["case"]: result for result in results}):
        target = verdict.target
        met = "met" if verdict.met else "missed"
        made.add_row(target.case, target.figure, text(target.most), text(verdict.measured), met)
    return made


def _cells(result: Result, name: str) -> tuple[str, str, str]:
    ours = str(spread([run[name] for run in result["runs"]]))
    below = FLOOR_OF.get(name, name)
    floor = [run[below] for run in result["floor"] if below in run]
    if not floor:
        return ours, "–", "–"
    pairs = ratios(result, name, below)
    return ours, str(spread(floor)), f"{median(pairs):.2f}" if pairs else "–"
