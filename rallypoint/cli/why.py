"""``rallypoint why``: show what blocks a job, when it reached each phase, and its last log lines."""

import argparse
import asyncio
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import orjson

from api.batch import BATCH_JOBS
from api.meta import EVENTS, PODS, Resource
from api.nodes import NODES
from api.times import parse_time
from controller.kinds import ALL
from controller.kube.errors import ApiError, Forbidden
from controller.runtime import clock
from rallypoint.cli import cluster as clusters
from rallypoint.cli.cluster import Cluster, CommandError, Object, ServedResource
from rallypoint.cli.columns import age, indented
from rallypoint.diagnosis import (
    Cause,
    Diagnosis,
    JobSnapshot,
    LastLines,
    LogRequest,
    Phase,
    diagnose,
    log_requests,
    nodes_to_read,
)
from rallypoint.diagnosis.objects import FINISHED, is_finished, name_of, owners_of

SHOWN_NAMES = 3
"""The largest number of names in a cause; the others are counted."""
SHOWN_ROWS = 20
"""The largest number of causes in text; the others are counted."""
LONGEST_LINE = 300
"""Characters of a log line; the rest is cut off."""
MAX_CONCURRENT_READS = 32
"""Logs and nodes that are read at the same time."""
_KINDS = {kind.resource.plural: kind.resource.kind for kind in ALL}
_GROUP = "kubeflow.org"
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
"""Control characters of terminals, and line separators."""
_MIN_LOG_LINES = 5
"""The smallest number of lines to request: the last ones may be empty."""


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
    jobs = await (_selected_jobs(cluster, args.what) if args.what else reader.unfinished())
    if jobs:
        await reader.read_related()
    snapshots = await asyncio.gather(*map(reader.snapshot, jobs))
    reports = [Report(snapshot, diagnose(snapshot), reader.forbidden) for snapshot in snapshots]
    if args.output == "json":
        sys.stdout.write(
            orjson.dumps([_document(report) for report in reports], option=orjson.OPT_INDENT_2).decode()
            + "\n"
        )
    else:
        sys.stdout.write(
            "\n".join(map(text, reports)) or ("" if reader.forbidden else "No job is unfinished.\n")
        )
    if not reports and reader.forbidden:
        sys.stderr.write(f"You have no permission to read {', '.join(reader.forbidden)}.\n")
    return 0


async def _selected_jobs(cluster: Cluster, what: Sequence[str]) -> list[Object]:
    """Return the jobs that the arguments select; without a name, the unfinished ones.

    Raises:
        CommandError: an argument is not a kind of job.
    """
    found: list[Object] = []
    for kinds, name in clusters.targets(what):
        for served in cluster.find_all(kinds):
            if served not in _served(cluster):
                raise CommandError(
                    f"{served.resource.kind} is not a kind of job; the kinds are {', '.join(_KINDS.values())}"
                )
            if name:
                found.append(await cluster.get(served, name))
            else:
                found += [job for job in await cluster.list_objects(served.resource) if not is_finished(job)]
    return found


def _served(cluster: Cluster) -> list[ServedResource]:
    return [
        served
        for served in cluster.resources
        if served.resource.group == _GROUP and served.resource.kind == _KINDS.get(served.resource.plural)
    ]


Owned = dict[str, list[Object]]
"""Objects by the UID of an owner."""


@dataclass(slots=True)
class JobReader:
    """Reads jobs and their related objects. ``forbidden`` lists what the user has no permission to read."""

    cluster: Cluster
    forbidden: list[str] = field(default_factory=list)
    _semaphore: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_CONCURRENT_READS))
    _pods: Owned = field(default_factory=dict)
    _batch_jobs: Owned = field(default_factory=dict)
    _gangs: Owned = field(default_factory=dict)
    _workloads: Owned = field(default_factory=dict)
    _events: dict[str, list[Object]] = field(default_factory=dict)
    """By the UID of the involved object."""
    _events_of_deleted_pods: list[Object] = field(default_factory=list)
    """Events of pods that no longer exist."""

    async def unfinished(self) -> list[Object]:
        """Return the unfinished jobs of all served kinds."""
        found = await asyncio.gather(*(self._all(served.resource) for served in _served(self.cluster)))
        return [job for jobs in found for job in jobs if not is_finished(job)]

    async def read_related(self) -> None:
        """List each related resource once, for all jobs."""
        pods, batch_jobs, events, gangs, workloads = await asyncio.gather(
            self._all(PODS),
            self._all(BATCH_JOBS),
            self._all(EVENTS),
            self._all(
                *self._resources_of_kind("PodGroup", "volcano.sh"),
                *self._resources_of_kind("PodGroup", "scheduling.x-k8s.io"),
            ),
            self._all(*self._resources_of_kind("Workload", "kueue.x-k8s.io")),
        )
        self._pods, self._batch_jobs = _by_owner(pods), _by_owner(batch_jobs)
        self._gangs, self._workloads = _by_owner(gangs), _by_owner(workloads)
        there = {pod["metadata"]["uid"] for pod in pods}
        for event in events:
            about = event["involvedObject"]
            self._events.setdefault(about.get("uid", ""), []).append(event)
            if about.get("kind") == PODS.kind and about.get("uid") not in there:
                self._events_of_deleted_pods.append(event)

    async def snapshot(self, job: Object) -> JobSnapshot:
        uid = job["metadata"]["uid"]
        batch_jobs = self._batch_jobs.get(uid, [])
        owners = [uid, *(batch_job["metadata"]["uid"] for batch_job in batch_jobs)]
        pods = sorted((pod for owner in owners for pod in self._pods.get(owner, ())), key=name_of)
        objects = [job, *batch_jobs, *pods]
        requests, nodes = log_requests(job, pods), nodes_to_read(pods)
        answers = await asyncio.gather(*(self._log_lines(job, request) for request in requests))
        found_nodes = await asyncio.gather(*map(self._node, nodes))
        return JobSnapshot(
            job=job,
            now=clock.now(),
            pods=pods,
            pods_known=PODS.plural not in self.forbidden,
            events=[
                *(event for obj in objects for event in self._events.get(obj["metadata"]["uid"], ())),
                *(self._events_of_deleted_pods if is_finished(job) else ()),
            ],
            nodes={name_of(node): node for node in found_nodes if node},
            gangs=self._gangs.get(uid, ()),
            workloads=self._workloads.get(uid, ()),
            workloads_known="workloads" not in self.forbidden,
            last_lines={
                (request.pod, request.container): lines
                for request, lines in zip(requests, answers, strict=True)
                if lines
            },
        )

    def _resources_of_kind(self, kind: str, group: str) -> list[Resource]:
        """Return the served resources of that kind in groups with that suffix."""
        found = (served.resource for served in self.cluster.resources)
        return [resource for resource in found if resource.kind == kind and resource.group.endswith(group)]

    async def _all(self, *resources: Resource) -> list[Object]:
        found: list[Object] = []
        for resource in resources:
            try:
                found += await self.cluster.list_objects(resource)
            except Forbidden:
                self._add_forbidden(resource.plural)
        return found

    async def _node(self, name: str) -> Object | None:
        answer = await self._ask(NODES.path("", name), NODES.plural)
        return orjson.loads(answer) if answer else None

    async def _log_lines(self, job: Object, request: LogRequest) -> LastLines | None:
        """Return the last log lines; None if there are none."""
        query = {
            "container": request.container,
            "tailLines": str(max(request.lines, _MIN_LOG_LINES)),
            "timestamps": "true",
            "previous": str(request.previous).lower(),
        }
        answer = await self._ask(PODS.path(job["metadata"]["namespace"], request.pod, "log"), "logs", query)
        return parse_log(answer.decode(errors="replace"), request.lines)

    async def _ask(self, path: str, what: str, query: Mapping[str, str] | None = None) -> bytes:
        """Return the response body; empty if the request fails."""
        async with self._semaphore:
            try:
                return await self.cluster.client.request("GET", path, params=query, accept="*/*")
            except ApiError as error:
                if isinstance(error, Forbidden):
                    self._add_forbidden(what)
                return b""

    def _add_forbidden(self, what: str) -> None:
        self.forbidden[:] = sorted({*self.forbidden, what})


def _by_owner(objects: Iterable[Object]) -> Owned:
    found: Owned = {}
    for obj in objects:
        for owner in owners_of(obj):
            found.setdefault(owner, []).append(obj)
    return found


def parse_log(text: str, most: int) -> LastLines | None:
    """Return the last ``most`` lines of a log with timestamps.

    Empty lines are dropped, and lines without a timestamp: a kubelet answers with such text when the log is gone. If a carriage return
    overwrites a line, as in progress bars, the last state counts.
    """
    at: datetime | None = None
    lines: list[str] = []
    for line in text.split("\n"):
        first, _, rest = line.partition(" ")
        word = _CONTROL.sub("", rest.rstrip("\r").rpartition("\r")[2]).rstrip()
        try:
            written = parse_time(first)
        except ValueError:
            continue
        if word:
            at = written
            lines.append(f"{word[:LONGEST_LINE]}…" if len(word) > LONGEST_LINE else word)
    return LastLines(at, tuple(lines[-most:])) if lines else None


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
        yield "The cluster's objects name no cause.\n"
    if notes:
        yield f"Notes:\n{_causes(notes, now)}"
    yield "Phases:\n" + indented([_phase(phase, report.snapshot.created) for phase in found.timeline])
    if report.snapshot.last_lines:
        rows = [
            row
            for (pod, name), lines in report.snapshot.last_lines.items()
            for row in _said(pod, name, lines, now)
        ]
        yield "Last log lines:\n" + indented(rows, ["Container", "Age", "Line"])
    if report.forbidden:
        yield f"You have no permission to read {', '.join(report.forbidden)}; this report omits them.\n"


def _causes(causes: Sequence[Cause], now: datetime) -> str:
    rows = [_row(cause, now) for cause in causes[:SHOWN_ROWS]]
    if len(causes) > SHOWN_ROWS:
        rows.append([f"and {len(causes) - SHOWN_ROWS} more", "", "-o json has all of them"])
    return indented(rows, ["About", "Age", "What"])


def _row(cause: Cause, now: datetime) -> list[str]:
    said = f"; last log line: {cause.quote}" if cause.quote else ""
    what = _CONTROL.sub("", " ".join(f"{cause.text}{said}".split()))
    return [_who(cause.about), age(cause.since, now) if cause.since else "", what]


def _who(names: Sequence[str]) -> str:
    if not names:
        return "the job"
    shown = ", ".join(names[:SHOWN_NAMES])
    return f"{shown} and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else shown


def _phase(phase: Phase, since: datetime) -> list[str]:
    count = f"{phase.done} of {phase.total} pods " if phase.total else ""
    return [f"+{_exactly(phase.at - since)}" if phase.at else "-", f"{count}{phase.name}"]


def _exactly(length: timedelta) -> str:
    """Format a duration as ``3s``, ``8m12s`` or ``2h0m5s``."""
    minutes, seconds = divmod(max(int(length.total_seconds()), 0), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m{seconds}s" if hours else f"{minutes}m{seconds}s" if minutes else f"{seconds}s"


def _said(pod: str, container: str, lines: LastLines, now: datetime) -> Iterator[list[str]]:
    for number, line in enumerate(lines.lines):
        yield [f"{pod}/{container}", age(lines.at, now), line] if number == 0 else ["", "", line]


def _document(report: Report) -> Mapping[str, Any]:
    job, found = report.snapshot.job, report.diagnosis
    return {
        "apiVersion": job["apiVersion"],
        "kind": job["kind"],
        "namespace": job["metadata"]["namespace"],
        "name": name_of(job),
        "state": found.state,
        "since": found.since,
        "blocked": found.blocked,
        "causes": found.causes,
        "phases": found.timeline,
        "lastLines": [
            {"pod": pod, "container": container, "at": lines.at, "lines": lines.lines}
            for (pod, container), lines in report.snapshot.last_lines.items()
        ],
        "notRead": report.forbidden,
    }
