"""``rallypoint why``: show what blocks a job, when it reached each phase, and its last log lines."""

import argparse
import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import orjson

from api.messages import first_of
from rallypoint.cli import cluster as clusters
from rallypoint.cli.cluster import Cluster
from rallypoint.cli.columns import age, format_duration, indented
from rallypoint.cli.describe import attempts
from rallypoint.cli.job_reader import JobReader
from rallypoint.cli.log_lines import in_one_line
from rallypoint.cli.terminal import write, write_error
from rallypoint.diagnosis import (
    Cause,
    Diagnosis,
    JobSnapshot,
    LastLines,
    Phase,
    diagnose,
)
from rallypoint.diagnosis.objects import (
    FINISHED,
    name_of,
)

SHOWN_NAMES = 3
"""The largest number of names in a cause; the others are counted."""
SHOWN_ROWS = 20
"""The largest number of causes in text; the others are counted."""


def add_parser(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]",  # pyright: ignore[reportPrivateUsage]
) -> None:
    parser = subparsers.add_parser(
        "why",
        help="show what blocks a job in a cluster, local or real",
        description="Show what blocks a job: the cause, since when, and the original message. "
        "Without a name: all unfinished jobs.",
    )
    parser.add_argument("what", nargs="*", metavar="KIND[/NAME]", help="KIND [NAME...] or KIND/NAME...")
    parser.add_argument(
        "--output", "-o", choices=("text", "json"), default="text", help="json: a list with one entry per job"
    )
    clusters.add_flags(parser, all_namespaces=True)
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    return clusters.execute(args, partial(_why, args))


async def _why(args: argparse.Namespace, cluster: Cluster) -> int:
    reader = JobReader(cluster)
    jobs = await reader.selected(args.what, unfinished=True)
    if jobs:
        await reader.read_related(jobs)
    snapshots = await asyncio.gather(*map(reader.snapshot, jobs))
    reports = [Report(snapshot, diagnose(snapshot), reader.forbidden) for snapshot in snapshots]
    if args.output == "json":
        write(
            orjson.dumps([document(report) for report in reports], option=orjson.OPT_INDENT_2).decode() + "\n"
        )
    else:
        write("\n".join(map(text, reports)) or ("" if reader.forbidden else "No job is unfinished.\n"))
    if not reports and reader.forbidden:
        write_error(f"You have no permission to read {', '.join(reader.forbidden)}.\n")
    return 0


@dataclass(frozen=True, slots=True)
class Report:
    """The output for one job."""

    snapshot: JobSnapshot
    diagnosis: Diagnosis
    forbidden: Sequence[str]


def text(report: Report) -> str:
    """Format the report as text."""
    return "".join(_parts(report))


def _parts(report: Report) -> Iterator[str]:
    job, found, now = report.snapshot.job, report.diagnosis, report.snapshot.now
    metadata, length = job["metadata"], age(found.since, now)
    spell = f"{length} ago" if found.state in FINISHED else f"for {length}"
    yield f"{job['kind']} {metadata['namespace']}/{metadata['name']}: {found.state} {spell}\n"
    notes = [cause for cause in found.causes if not cause.blocks]
    if found.blocked:
        yield f"Causes:\n{_causes([cause for cause in found.causes if cause.blocks], now)}"
    elif found.state not in FINISHED and not report.forbidden:
        yield f"{found.summary}\n"
    if notes:
        yield f"Notes:\n{_causes(notes, now)}"
    yield "Phases:\n" + indented([_phase(phase, report.snapshot.created) for phase in found.phases])
    yield from attempts(job)
    if rows := [row for named in _last_lines(report.snapshot) for row in _said(*named, now)]:
        yield "Last log lines:\n" + indented(rows, ["Container", "Age", "Line"])
    if report.forbidden:
        yield f"You have no permission to read {', '.join(report.forbidden)}; this report omits them.\n"


def _causes(causes: Sequence[Cause], now: datetime) -> str:
    rows = [row for cause in causes[:SHOWN_ROWS] for row in _rows(cause, now)]
    if len(causes) > SHOWN_ROWS:
        rows.append([f"and {len(causes) - SHOWN_ROWS} more", "", "-o json has all of them"])
    return indented(rows, ["About", "Age", "What"])


def _rows(cause: Cause, now: datetime) -> Iterator[list[str]]:
    said = f"; last log line: {cause.quote}" if cause.quote else ""
    yield [
        _who(cause.about),
        age(cause.since, now) if cause.since else "",
        in_one_line(f"{cause.text}{said}"),
    ]
    if cause.next_step:
        yield ["", "", f"Next: {in_one_line(cause.next_step)}"]


def _who(names: Sequence[str]) -> str:
    return first_of(names, SHOWN_NAMES) if names else "the job"


def _phase(phase: Phase, since: datetime) -> list[str]:
    count = f"{phase.done} of {phase.total} pods " if phase.total else ""
    return [f"+{format_duration(phase.at - since)}" if phase.at else "-", f"{count}{phase.name}"]


def _last_lines(snapshot: JobSnapshot) -> Iterator[tuple[str, str, bool, LastLines]]:
    """Yield pod, container, whether the pod still exists, and what it logged last; containers that have logged nothing are left out."""
    for exists, found in ((True, snapshot.last_lines), (False, snapshot.lines_of_deleted_pods)):
        yield from (
            (pod, container, exists, lines) for (pod, container), lines in found.items() if lines.lines
        )


def _said(pod: str, container: str, exists: bool, lines: LastLines, now: datetime) -> Iterator[list[str]]:
    name = f"{pod}/{container}" if exists else f"{pod}/{container} (deleted)"
    for number, line in enumerate(lines.lines):
        yield [name, age(lines.at, now), line] if number == 0 else ["", "", line]


def document(report: Report) -> Mapping[str, Any]:
    """Return the report for programs."""
    job, found = report.snapshot.job, report.diagnosis
    return {
        "apiVersion": job["apiVersion"],
        "kind": job["kind"],
        "namespace": job["metadata"]["namespace"],
        "name": name_of(job),
        "state": found.state,
        "since": found.since,
        "blocked": found.blocked,
        "summary": "" if found.blocked else found.summary,
        "causes": [
            {
                "about": cause.about,
                "text": cause.text,
                "since": cause.since,
                "blocks": cause.blocks,
                "quote": cause.quote,
                "nextStep": cause.next_step,
            }
            for cause in found.causes
        ],
        "phases": found.phases,
        "timeline": found.timeline,
        "attempts": (job.get("status") or {}).get("attempts") or [],
        "lastLines": [
            {"pod": pod, "container": container, "at": lines.at, "lines": lines.lines, "exists": exists}
            for pod, container, exists, lines in _last_lines(report.snapshot)
        ],
        "notRead": report.forbidden,
    }
