"""``rallypoint goodput``: show where the time of jobs went."""

import argparse
import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import orjson

from controller.runtime import clock
from rallypoint.cli import cluster as clusters
from rallypoint.cli.cluster import Cluster, Object
from rallypoint.cli.columns import Columns, format_duration
from rallypoint.cli.job_reader import JobReader
from rallypoint.cli.terminal import write, write_error
from rallypoint.diagnosis import timeline
from rallypoint.diagnosis.goodput import PHASES, Goodput, computed, measured
from rallypoint.diagnosis.objects import name_of

NONE = "-"
ESTIMATED = "~"
"""Marks what the operator has not measured."""


def add_parser(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]",  # pyright: ignore[reportPrivateUsage]
) -> None:
    parser = subparsers.add_parser(
        "goodput",
        help="show where the time of jobs went, in a cluster, local or real",
        description="Show the seconds of jobs by phase, and the share in which they ran and lost nothing. "
        "Without a name: all jobs.",
    )
    parser.add_argument("what", nargs="*", metavar="KIND[/NAME]", help="KIND [NAME...] or KIND/NAME...")
    parser.add_argument(
        "--output", "-o", choices=("text", "json"), default="text", help="json: a list with one entry per job"
    )
    clusters.add_flags(parser, all_namespaces=True)
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    return clusters.execute(args, partial(_goodput, args))


@dataclass(frozen=True, slots=True)
class Row:
    """One job."""

    job: Object
    goodput: Goodput


async def _goodput(args: argparse.Namespace, cluster: Cluster) -> int:
    reader, now = JobReader(cluster, only_timeline=True), clock.now()
    jobs = await reader.selected(args.what)
    if any(measured(job, now) is None for job in jobs):
        await reader.read_related(jobs)
    rows = await asyncio.gather(*(_row(reader, job, now) for job in jobs))
    if args.output == "json":
        write(orjson.dumps([*map(document, rows)], option=orjson.OPT_INDENT_2).decode() + "\n")
    else:
        write(text(rows) or ("" if reader.forbidden else "There is no job.\n"))
    if reader.forbidden:
        write_error(
            f"You have no permission to read {', '.join(reader.forbidden)}; the times may be wrong.\n"
        )
    return 0


async def _row(reader: JobReader, job: Object, now: datetime) -> Row:
    return Row(job, measured(job, now) or computed(timeline(await reader.snapshot(job)), now))


def text(rows: Sequence[Row]) -> str:
    """Format the jobs as a table, with what is uncertain below it; empty without jobs."""
    return "".join(_parts(rows))


def _parts(rows: Sequence[Row]) -> Iterator[str]:
    if not rows:
        return
    shown = [phase for phase in PHASES if any(phase in row.goodput.seconds for row in rows)]
    yield Columns().text(
        [
            ["NAMESPACE", "JOB", "GOODPUT", "AGE", *map(str.upper, shown)],
            *([*_head(row), *(_seconds(row, phase) for phase in shown)] for row in rows),
        ]
    )
    if not all(row.goodput.is_measured for row in rows):
        yield (
            f"{ESTIMATED} computed from conditions, pods and events that the cluster still has: time before restarts, suspensions and image\n"
            "pulls of more than an hour ago may count as running. runPolicy.wallClock: true lets the operator measure it.\n"
        )
    if any("running" in row.goodput.seconds and not row.goodput.knows_lost_work for row in rows):
        yield "? no pod has reported a checkpoint before a failure: lost work is unknown, and counts as running.\n"


def _head(row: Row) -> list[str]:
    found, metadata = row.goodput, row.job["metadata"]
    mark = "" if found.is_measured else ESTIMATED
    share = NONE if found.share is None else f"{mark}{found.share:.0%}"
    age = format_duration(timedelta(seconds=found.total_seconds))
    return [metadata.get("namespace", ""), f"{row.job['kind'].lower()}/{name_of(row.job)}", share, age]


def _seconds(row: Row, phase: str) -> str:
    found = row.goodput.seconds.get(phase)
    if found is None:
        return "?" if phase == "lost" and not row.goodput.knows_lost_work else NONE
    return format_duration(timedelta(seconds=found))


def document(row: Row) -> dict[str, Any]:
    """Return the JSON document of a job. ``lost`` is null if it is unknown."""
    found, metadata = row.goodput, row.job["metadata"]
    seconds: dict[str, float | None] = {phase: found.seconds.get(phase, 0.0) for phase in PHASES}
    if not found.knows_lost_work:
        seconds["lost"] = None
    return {
        "kind": row.job["kind"],
        "namespace": metadata.get("namespace", ""),
        "name": metadata["name"],
        "phase": found.phase,
        "goodput": found.share,
        "totalSeconds": found.total_seconds,
        "seconds": seconds,
        "isMeasured": found.is_measured,
    }
