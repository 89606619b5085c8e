"""``rallypoint why``: what holds a job up, when it reached which phase, and what its containers said last."""

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
from rallypoint.cli.cluster import Cluster, Named, Object, Unusable
from rallypoint.cli.columns import age, indented
from rallypoint.diagnosis import (
    Case,
    Cause,
    Diagnosis,
    Phase,
    Question,
    Words,
    diagnose,
    nodes_in_question,
    questions,
)
from rallypoint.diagnosis.objects import FINISHED, is_finished, name_of, owners_of

SHOWN_NAMES = 3
"""Of those of which the same is to be said; the others are counted."""
SHOWN_ROWS = 20
"""Of causes, in text; the others are counted."""
LONGEST_LINE = 300
"""Characters of a line that a container wrote; the rest is cut off."""
ASKED_AT_ONCE = 32
"""Containers and nodes."""
_KINDS = {kind.resource.plural: kind.resource.kind for kind in ALL}
_GROUP = "kubeflow.org"
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
"""What would be a command to the terminal, or the end of a line."""
_LINES_ASKED = 5
"""At least, as the last ones may be empty."""


def add_parser(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]",  # pyright: ignore[reportPrivateUsage]
) -> None:
    parser = subparsers.add_parser(
        "why",
        help="say what holds a job up, in a cluster, local or real",
        description="Say what holds a job up: who is the cause, since when, in the words of whoever refuses it. "
        "Without a name: all jobs that are not finished.",
    )
    parser.add_argument("what", nargs="*", metavar="KIND[/NAME]", help="KIND [NAME...] or KIND/NAME...")
    parser.add_argument(
        "--output", "-o", choices=("text", "json"), default="text", help="json: a list, one entry a job"
    )
    clusters.add_flags(parser, all_namespaces=True)
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    return clusters.execute(args, partial(_why, args))


async def _why(args: argparse.Namespace, cluster: Cluster) -> int:
    look = Look(cluster)
    jobs = await (_meant(cluster, args.what) if args.what else look.unfinished())
    if jobs:
        await look.around()
    cases = await asyncio.gather(*map(look.case, jobs))
    told = [Told(case, diagnose(case), look.unseen) for case in cases]
    if args.output == "json":
        sys.stdout.write(
            orjson.dumps([_document(one) for one in told], option=orjson.OPT_INDENT_2).decode() + "\n"
        )
    else:
        sys.stdout.write("\n".join(map(text, told)) or ("" if look.unseen else "No job waits or runs.\n"))
    if not told and look.unseen:
        sys.stderr.write(f"You may not read {', '.join(look.unseen)}.\n")
    return 0


async def _meant(cluster: Cluster, what: Sequence[str]) -> list[Object]:
    """The jobs that the arguments mean; where no name is said, those that are not finished.

    Raises:
        Unusable: what is meant is no job.
    """
    found: list[Object] = []
    for kinds, name in clusters.targets(what):
        for named in cluster.find_all(kinds):
            if named not in _served(cluster):
                raise Unusable(
                    f"{named.resource.kind} is no kind of job; those are {', '.join(_KINDS.values())}"
                )
            if name:
                found.append(await cluster.get(named, name))
            else:
                found += [one for one in await cluster.all_of(named.resource) if not is_finished(one)]
    return found


def _served(cluster: Cluster) -> list[Named]:
    return [
        one
        for one in cluster.resources
        if one.resource.group == _GROUP and one.resource.kind == _KINDS.get(one.resource.plural)
    ]


Owned = dict[str, list[Object]]
"""Objects by the UID of an owner."""


@dataclass(slots=True)
class Look:
    """What there is around the jobs. What the user may not read is left out, and named in ``unseen``."""

    cluster: Cluster
    unseen: list[str] = field(default_factory=list)
    _turn: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(ASKED_AT_ONCE))
    _pods: Owned = field(default_factory=dict)
    _batch_jobs: Owned = field(default_factory=dict)
    _gangs: Owned = field(default_factory=dict)
    _workloads: Owned = field(default_factory=dict)
    _events: dict[str, list[Object]] = field(default_factory=dict)
    """By the UID of what they are of."""
    _gone: list[Object] = field(default_factory=list)
    """Events of pods that are there no more."""

    async def unfinished(self) -> list[Object]:
        """The jobs of all kinds that are served."""
        found = await asyncio.gather(*(self._all(named.resource) for named in _served(self.cluster)))
        return [job for jobs in found for job in jobs if not is_finished(job)]

    async def around(self) -> None:
        """One list of each resource, whatever the number of jobs."""
        pods, batch_jobs, events, gangs, workloads = await asyncio.gather(
            self._all(PODS),
            self._all(BATCH_JOBS),
            self._all(EVENTS),
            self._all(
                *self._called("PodGroup", "volcano.sh"), *self._called("PodGroup", "scheduling.x-k8s.io")
            ),
            self._all(*self._called("Workload", "kueue.x-k8s.io")),
        )
        self._pods, self._batch_jobs = _by_owner(pods), _by_owner(batch_jobs)
        self._gangs, self._workloads = _by_owner(gangs), _by_owner(workloads)
        there = {pod["metadata"]["uid"] for pod in pods}
        for event in events:
            about = event["involvedObject"]
            self._events.setdefault(about.get("uid", ""), []).append(event)
            if about.get("kind") == PODS.kind and about.get("uid") not in there:
                self._gone.append(event)

    async def case(self, job: Object) -> Case:
        uid = job["metadata"]["uid"]
        batch_jobs = self._batch_jobs.get(uid, [])
        owners = [uid, *(one["metadata"]["uid"] for one in batch_jobs)]
        pods = sorted((pod for owner in owners for pod in self._pods.get(owner, ())), key=name_of)
        kin = [job, *batch_jobs, *pods]
        asked, nodes = questions(job, pods), nodes_in_question(pods)
        answers = await asyncio.gather(*(self._words(job, one) for one in asked))
        looked_at = await asyncio.gather(*map(self._node, nodes))
        return Case(
            job=job,
            now=clock.now(),
            pods=pods,
            pods_known=PODS.plural not in self.unseen,
            events=[
                *(event for one in kin for event in self._events.get(one["metadata"]["uid"], ())),
                *(self._gone if is_finished(job) else ()),
            ],
            nodes={name_of(node): node for node in looked_at if node},
            gangs=self._gangs.get(uid, ()),
            workloads=self._workloads.get(uid, ()),
            workloads_known="workloads" not in self.unseen,
            words={
                (one.pod, one.container): words for one, words in zip(asked, answers, strict=True) if words
            },
        )

    def _called(self, kind: str, group: str) -> list[Resource]:
        """What is served of that kind by a group that ends so."""
        found = (named.resource for named in self.cluster.resources)
        return [one for one in found if one.kind == kind and one.group.endswith(group)]

    async def _all(self, *resources: Resource) -> list[Object]:
        found: list[Object] = []
        for resource in resources:
            try:
                found += await self.cluster.all_of(resource)
            except Forbidden:
                self._missed(resource.plural)
        return found

    async def _node(self, name: str) -> Object | None:
        answer = await self._ask(NODES.path("", name), NODES.plural)
        return orjson.loads(answer) if answer else None

    async def _words(self, job: Object, question: Question) -> Words | None:
        """None when the container has none, or nobody knows them any more."""
        query = {
            "container": question.container,
            "tailLines": str(max(question.lines, _LINES_ASKED)),
            "timestamps": "true",
            "previous": str(question.previous).lower(),
        }
        answer = await self._ask(PODS.path(job["metadata"]["namespace"], question.pod, "log"), "logs", query)
        return words_of(answer.decode(errors="replace"), question.lines)

    async def _ask(self, path: str, what: str, query: Mapping[str, str] | None = None) -> bytes:
        """Nothing when it is refused."""
        async with self._turn:
            try:
                return await self.cluster.client.request("GET", path, params=query, accept="*/*")
            except ApiError as error:
                if isinstance(error, Forbidden):
                    self._missed(what)
                return b""

    def _missed(self, what: str) -> None:
        self.unseen[:] = sorted({*self.unseen, what})


def _by_owner(objects: Iterable[Object]) -> Owned:
    found: Owned = {}
    for one in objects:
        for owner in owners_of(one):
            found.setdefault(owner, []).append(one)
    return found


def words_of(text: str, most: int) -> Words | None:
    """The last ones of a log with the time before each line. Empty lines are left out, as is what does not begin with a time: a kubelet answers with
    such text when the log is gone. Of a line that was written over, as progress bars do, the last state counts."""
    at: datetime | None = None
    lines: list[str] = []
    for line in text.split("\n"):
        first, _, said = line.partition(" ")
        word = _CONTROL.sub("", said.rstrip("\r").rpartition("\r")[2]).rstrip()
        try:
            written = parse_time(first)
        except ValueError:
            continue
        if word:
            at = written
            lines.append(f"{word[:LONGEST_LINE]}…" if len(word) > LONGEST_LINE else word)
    return Words(at, tuple(lines[-most:])) if lines else None


@dataclass(frozen=True, slots=True)
class Told:
    """What is to be shown of a job."""

    case: Case
    diagnosis: Diagnosis
    unseen: Sequence[str]


def text(told: Told) -> str:
    """For people."""
    return "".join(_parts(told))


def _parts(told: Told) -> Iterator[str]:
    job, found, now = told.case.job, told.diagnosis, told.case.now
    metadata, length = job["metadata"], age(found.since, now)
    spell = f"{length} ago" if found.state in FINISHED else f"for {length}"
    yield f"{job['kind']} {metadata['namespace']}/{metadata['name']}: {found.state} {spell}\n"
    notes = [one for one in found.causes if not one.blocks]
    if found.blocked:
        yield f"Causes:\n{_causes([one for one in found.causes if one.blocks], now)}"
    elif found.state not in FINISHED and not told.unseen:
        yield "Nothing that the cluster knows of holds it up.\n"
    if notes:
        yield f"To know:\n{_causes(notes, now)}"
    yield "Phases:\n" + indented([_phase(one, told.case.created) for one in found.timeline])
    if told.case.words:
        rows = [row for (pod, name), words in told.case.words.items() for row in _said(pod, name, words, now)]
        yield "Last words:\n" + indented(rows, ["Container", "Age", "Line"])
    if told.unseen:
        yield f"You may not read {', '.join(told.unseen)}; what they would tell is missing here.\n"


def _causes(causes: Sequence[Cause], now: datetime) -> str:
    rows = [_row(one, now) for one in causes[:SHOWN_ROWS]]
    if len(causes) > SHOWN_ROWS:
        rows.append([f"and {len(causes) - SHOWN_ROWS} more", "", "-o json has all of them"])
    return indented(rows, ["About", "Age", "What"])


def _row(cause: Cause, now: datetime) -> list[str]:
    said = f"; it last said: {cause.quote}" if cause.quote else ""
    what = _CONTROL.sub("", " ".join(f"{cause.text}{said}".split()))
    return [_who(cause.about), age(cause.since, now) if cause.since else "", what]


def _who(names: Sequence[str]) -> str:
    if not names:
        return "the job"
    shown = ", ".join(names[:SHOWN_NAMES])
    return f"{shown} and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else shown


def _phase(phase: Phase, since: datetime) -> list[str]:
    count = f"{phase.done} of {phase.wanted} pods " if phase.wanted else ""
    return [f"+{_exactly(phase.at - since)}" if phase.at else "-", f"{count}{phase.what}"]


def _exactly(length: timedelta) -> str:
    """``3s``, ``8m12s``, ``2h0m5s``."""
    minutes, seconds = divmod(max(int(length.total_seconds()), 0), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m{seconds}s" if hours else f"{minutes}m{seconds}s" if minutes else f"{seconds}s"


def _said(pod: str, container: str, words: Words, now: datetime) -> Iterator[list[str]]:
    for number, line in enumerate(words.lines):
        yield [f"{pod}/{container}", age(words.at, now), line] if number == 0 else ["", "", line]


def _document(told: Told) -> Mapping[str, Any]:
    job, found = told.case.job, told.diagnosis
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
        "lastWords": [
            {"pod": pod, "container": container, "at": words.at, "lines": words.lines}
            for (pod, container), words in told.case.words.items()
        ],
        "notRead": told.unseen,
    }
