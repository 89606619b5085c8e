"""``rallypoint why``: what holds a job up, when it reached which phase, and what its containers said last."""

import argparse
import asyncio
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

import orjson

from api.batch import BATCH_JOBS
from api.meta import EVENTS, PODS, Resource
from api.nodes import NODES
from controller.cli import cluster as clusters
from controller.cli.cluster import Cluster, Named, Object, Unusable, owners_of
from controller.cli.columns import age, indented, length
from controller.diagnosis import (
    Case,
    Cause,
    Diagnosis,
    Phase,
    Question,
    Words,
    diagnose,
    lost_nodes,
    questions,
)
from controller.diagnosis.case import roles
from controller.kinds import ALL
from controller.kube.errors import ApiError, Forbidden
from controller.runtime import clock

SHOWN_NAMES = 3
"""Of those of which the same is to be said; the others are counted."""
_KINDS = {kind.resource.plural: kind.resource.kind for kind in ALL}
_GROUP = "kubeflow.org"
_FINISHED = {"Succeeded", "Failed"}


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
    jobs = await (_named(cluster, args.what) if args.what else look.unfinished())
    await look.around()
    told = [Told(job, await look.case(job), look.unseen) for job in jobs]
    if args.output == "json":
        text = orjson.dumps([_document(one) for one in told], option=orjson.OPT_INDENT_2).decode() + "\n"
    else:
        text = "\n".join(_text(one) for one in told) or "No job waits or runs.\n"
    sys.stdout.write(text)
    return 0


async def _named(cluster: Cluster, what: Sequence[str]) -> list[Object]:
    """The jobs that are meant; where no name is said, those that are not finished.

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
                found += [one for one in await cluster.all_of(named.resource) if not _is_finished(one)]
    return found


def _served(cluster: Cluster) -> list[Named]:
    return [
        one
        for one in cluster.resources
        if one.resource.group == _GROUP and one.resource.kind == _KINDS.get(one.resource.plural)
    ]


def _is_finished(job: Object) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(one["type"] in _FINISHED and one["status"] == "True" for one in conditions)


@dataclass(slots=True)
class Look:
    """What there is around the jobs. What the user may not read is left out, and named in ``unseen``."""

    cluster: Cluster
    unseen: list[str] = field(default_factory=list)
    pods: list[Object] = field(default_factory=list)
    batch_jobs: list[Object] = field(default_factory=list)
    events: list[Object] = field(default_factory=list)
    gangs: list[Object] = field(default_factory=list)
    workloads: list[Object] = field(default_factory=list)

    async def unfinished(self) -> list[Object]:
        """The jobs of all kinds that are served."""
        found = [await self._all(named.resource) for named in _served(self.cluster)]
        return [job for jobs in found for job in jobs if not _is_finished(job)]

    async def around(self) -> None:
        """One list of each resource, whatever the number of jobs."""
        gangs = [one.resource for one in self.cluster.resources if one.resource.kind == "PodGroup"]
        workloads = [
            one.resource
            for one in self.cluster.resources
            if one.resource.group == "kueue.x-k8s.io" and one.resource.kind == "Workload"
        ]
        self.pods, self.batch_jobs, self.events, *others = await asyncio.gather(
            *map(self._all, (PODS, BATCH_JOBS, EVENTS, *gangs, *workloads))
        )
        self.gangs = [one for found in others[: len(gangs)] for one in found]
        self.workloads = [one for found in others[len(gangs) :] for one in found]

    async def case(self, job: Object) -> Case:
        uid = {job["metadata"]["uid"]}
        jobs = _owned(self.batch_jobs, uid)
        pods = sorted(_owned(self.pods, uid | {one["metadata"]["uid"] for one in jobs}), key=_name)
        kin = {one["metadata"]["uid"] for one in (job, *jobs, *pods)}
        lost = lost_nodes(pods)
        asked = questions(job, pods)
        answers = await asyncio.gather(*(self._words(job, one) for one in asked))
        nodes = await asyncio.gather(*map(self._node, lost))
        return Case(
            job=job,
            now=clock.now(),
            pods=pods,
            pods_known=PODS.plural not in self.unseen,
            events=[one for one in self.events if _concerns(one, job, kin)],
            nodes={_name(node): node for node in nodes if node},
            gangs=_owned(self.gangs, uid),
            workloads=_owned(self.workloads, uid),
            words={
                (one.pod, one.container): words for one, words in zip(asked, answers, strict=True) if words
            },
        )

    async def _all(self, resource: Resource) -> list[Object]:
        try:
            return await self.cluster.all_of(resource)
        except Forbidden:
            self._missed(resource.plural)
            return []

    async def _node(self, name: str) -> Object | None:
        try:
            found: Object = orjson.loads(await self.cluster.client.request("GET", NODES.path("", name)))
        except ApiError as error:
            if isinstance(error, Forbidden):
                self._missed(NODES.plural)
            return None
        return found

    async def _words(self, job: Object, question: Question) -> Words | None:
        """None when the container has none, or nobody knows them any more."""
        query = {
            "container": question.container,
            "tailLines": str(question.lines),
            "timestamps": "true",
            "previous": str(question.previous).lower(),
        }
        path = PODS.path(job["metadata"]["namespace"], question.pod, "log")
        try:
            answer = await self.cluster.client.request("GET", path, params=query, accept="*/*")
        except ApiError as error:
            if isinstance(error, Forbidden):
                self._missed("logs")
            return None
        return _words(answer.decode(errors="replace"))

    def _missed(self, what: str) -> None:
        if what not in self.unseen:
            self.unseen.append(what)


def _words(text: str) -> Words | None:
    """Of lines that each begin with the time at which they were written."""
    lines = [line.partition(" ") for line in text.splitlines()]
    if not lines:
        return None
    return Words(datetime.fromisoformat(lines[-1][0]), tuple(line for _, _, line in lines))


def _owned(objects: Iterable[Object], owners: set[str]) -> list[Object]:
    return [one for one in objects if owners & owners_of(one)]


def _concerns(event: Object, job: Object, kin: set[str]) -> bool:
    """Whether it is of the job, of something of it that is there, or of a pod of it that is gone."""
    about, metadata = event["involvedObject"], job["metadata"]
    if about.get("uid") in kin:
        return True
    places = tuple(f"{metadata['name']}-{role.lower()}" for role in roles(job))
    near = about.get("namespace") == metadata["namespace"] and about.get("kind") == PODS.kind
    return near and str(about.get("name")).startswith(places)


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])


@dataclass(frozen=True, slots=True)
class Told:
    """What is to be shown of a job."""

    job: Object
    case: Case
    unseen: Sequence[str]

    @property
    def diagnosis(self) -> Diagnosis:
        return diagnose(self.case)


def _text(told: Told) -> str:
    return "".join(_parts(told))


def _parts(told: Told) -> Iterator[str]:
    metadata, found, now = told.job["metadata"], told.diagnosis, told.case.now
    yield f"{told.job['kind']} {metadata['namespace']}/{metadata['name']}: {found.state} {_length(found, now)}\n"
    causes = [one for one in found.causes if one.blocks]
    notes = [one for one in found.causes if not one.blocks]
    if causes:
        yield "Causes:\n" + indented([_row(one, now) for one in causes], ["About", "Since", "What"])
    elif found.state not in _FINISHED:
        yield "Nothing that the cluster knows of holds it up.\n"
    if notes:
        yield "To know:\n" + indented([_row(one, now) for one in notes], ["About", "Last", "What"])
    yield "Phases:\n" + indented([_phase(one, told.case.created) for one in found.timeline])
    if told.case.words:
        rows = [
            row
            for (pod, container), words in told.case.words.items()
            for row in _said(pod, container, words, now)
        ]
        yield "Last words:\n" + indented(rows, ["Container", "Ago", "Line"])
    if told.unseen:
        yield f"You may not read {', '.join(told.unseen)}; what they would tell is missing here.\n"


def _length(found: Diagnosis, now: datetime) -> str:
    return f"{age(found.since, now)} ago" if found.state in _FINISHED else f"for {age(found.since, now)}"


def _row(cause: Cause, now: datetime) -> list[str]:
    return [_who(cause.about), age(cause.since, now) if cause.since else "", " ".join(cause.text.split())]


def _who(names: Sequence[str]) -> str:
    if not names:
        return "the job"
    shown = ", ".join(names[:SHOWN_NAMES])
    return f"{shown} and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else shown


def _phase(phase: Phase, since: datetime) -> list[str]:
    count = f"{phase.done} of {phase.wanted} pods " if phase.wanted else ""
    after = f"+{length((phase.at - since).total_seconds())}" if phase.at else "-"
    return [after, f"{count}{phase.what}"]


def _said(pod: str, container: str, words: Words, now: datetime) -> Iterator[list[str]]:
    for number, line in enumerate(words.lines):
        yield [f"{pod}/{container}", age(words.at, now), line] if number == 0 else ["", "", line]


def _document(told: Told) -> Mapping[str, Any]:
    metadata, found = told.job["metadata"], told.diagnosis
    return {
        "apiVersion": told.job["apiVersion"],
        "kind": told.job["kind"],
        "namespace": metadata["namespace"],
        "name": metadata["name"],
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
