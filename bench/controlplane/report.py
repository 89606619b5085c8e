"""The figures of all scenarios as one table: the controller beside the floor, smallest / median / largest."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from bench.figures import spread, text

LABELS = {
    "create_to_first_pod_ms": "create → first pod, ms",
    "create_to_last_pod_ms": "create → last pod, ms",
    "create_to_last_service_ms": "create → last Service, ms",
    "create_to_pods_running_ms": "create → all pods Running, ms",
    "create_to_running_ms": "create → Running in status, ms",
    "exit_to_succeeded_ms": "master exit → Succeeded, ms",
    "calls": "API calls, whole life",
    "controller_cpu_to_running_ms": "CPU to Running, ms (floor: the loader's)",
    "server_cpu_to_running_ms": "API server CPU to Running, ms",
    "controller_rss_before_mib": "RSS before, MiB",
    "controller_rss_peak_mib": "RSS peak, MiB",
}
"""Figures in the order of the table, and how a reader calls them."""

FLOOR_OF = {"create_to_running_ms": "create_to_pods_running_ms"}
"""Figures that the floor has under another name: without a status, the pods' running is all there is."""


def table(results: Sequence[Mapping[str, Any]]) -> Table:
    """Rows for each scenario; the last column is the ratio of the medians."""
    made = Table("scenario", "figure", "controller", "floor", "×", title="smallest / median / largest")
    for result in results:
        for index, (name, label) in enumerate(LABELS.items()):
            made.add_row(result["scenario"] if index == 0 else "", label, *_cells(result, name))
        made.add_section()
    return made


def calls(results: Sequence[Mapping[str, Any]]) -> Table:
    """What the calls of the last run of each scenario were."""
    made = Table("scenario", "calls of the last run", "refused")
    for result in results:
        last = result["runs"][-1]
        by_kind = ", ".join(f"{count} {kind}" for kind, count in last["calls_by_kind"].items())
        refused = ", ".join(f"{count} × {code}" for code, count in last["refused"].items())
        made.add_row(result["scenario"], by_kind, refused or "none")
    return made


def _cells(result: Mapping[str, Any], name: str) -> tuple[str, str, str]:
    ours = spread([run[name] for run in result["runs"]])
    below = [run[FLOOR_OF.get(name, name)] for run in result["floor"] if FLOOR_OF.get(name, name) in run]
    if not below:
        return str(ours), "–", "–"
    floor = spread(below)
    ratio = text(ours.median / floor.median) if floor.median else "–"
    return str(ours), str(floor), ratio
