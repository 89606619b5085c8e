"""Reads the jobs that ``rallypoint why`` reports on, and what belongs to them."""

import asyncio
import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import orjson

from api.batch import BATCH_JOBS
from api.job import ConditionType
from api.labels import JOB_NAME
from api.meta import EVENTS, PODS, VOLCANO_POD_GROUPS, Resource
from api.nodes import NODES
from api.queues import VOLCANO_QUEUES, queue_of
from api.times import parse_time
from api.workloads import WORKLOADS
from controller.kinds import ALL
from controller.kube.errors import ApiError, Forbidden, NotFound
from controller.runtime import clock
from rallypoint.cli.cluster import Cluster, CommandError, Object, ServedResource, targets
from rallypoint.cli.log_lines import clean_line, last_lines
from rallypoint.diagnosis import (
    LINES_OF_FAILURE,
    MAX_DETAILED_FAILURES,
    MAX_READS,
    ArchivedPod,
    JobSnapshot,
    LastLines,
    LogRequest,
    log_requests,
    nodes_to_read,
)
from rallypoint.diagnosis.gangs import is_unadmitted
from rallypoint.diagnosis.objects import (
    is_condition_true,
    is_finished,
    is_pod_name,
    name_of,
    owners_of,
    parse_timestamp,
    spec_of,
)
from rallypoint.diagnosis.resources import holds, lacking, largest_owners, needed
from rallypoint.local import log_archive
from rallypoint.local.log_archive import container_names, default_container, pods_of_job
from rallypoint.local.manifest import Manifest

MAX_CONCURRENT_READS = 32
"""Logs and nodes that are read at the same time."""
KINDS = {kind.resource.plural: kind.resource.kind for kind in ALL}
_OPT_IN = {kind.resource.plural for kind in ALL if kind.is_opt_in}
_GROUP = "kubeflow.org"
_NOT_ENDED = "status.phase!=Succeeded,status.phase!=Failed"
"""Selects the pods that have not ended, with a node or without."""
_HOLDERS_TIMEOUT_SECONDS = 20.0
"""For reading the pods of all namespaces."""
_MIN_LOG_LINES = 5
"""The smallest number of lines to request: the last ones may be empty."""


def served_jobs(cluster: Cluster) -> list[ServedResource]:
    """Return the kinds of job that the cluster serves."""
    return [
        served
        for served in cluster.resources
        if served.resource.group == _GROUP and served.resource.kind == KINDS.get(served.resource.plural)
    ]


Owned = dict[str, list[Object]]
"""Objects by the UID of an owner."""


@dataclass(slots=True)
class JobReader:
    """Reads jobs and their related objects. ``forbidden`` lists what the user has no permission to read."""

    cluster: Cluster
    only_timeline: bool = False
    """Leave out what only causes need: logs, nodes, PodGroups, queues, and the pods that hold resources."""
    forbidden: list[str] = field(default_factory=list)
    pods: list[Object] = field(default_factory=list)
    """All pods that ``read_related`` has listed, of any owner."""
    _semaphore: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_CONCURRENT_READS))
    _pods: Owned = field(default_factory=dict)
    _batch_jobs: Owned = field(default_factory=dict)
    _gangs: Owned = field(default_factory=dict)
    _workloads: Owned = field(default_factory=dict)
    _events: dict[str, list[Manifest]] = field(default_factory=dict)
    """By the UID of the involved object."""
    _events_of_deleted_pods: dict[str, list[Manifest]] = field(default_factory=dict)
    """Events of pods that no longer exist, by the pod's name."""
    _queues: dict[str, Object] = field(default_factory=dict)
    """Volcano's queues, empty for one that does not exist; without those that could not be read."""
    _holders: list[Object] = field(default_factory=list)
    """Pods that hold a resource that another pod lacks."""
    _all_nodes: list[Object] = field(default_factory=list)
    """Read if a pod lacks a resource; empty if unknown."""
    _holders_known: bool = True
    """Whether ``_holders`` covers all namespaces."""
    _owners: dict[str, Object] = field(default_factory=dict)
    """Jobs that own holders, by UID."""
    _archived: list[log_archive.ArchivedPod] = field(default_factory=list)
    """Pods in the log folder of a local cluster."""

    async def unfinished(self) -> list[Object]:
        """Return the unfinished jobs of all served kinds."""
        return [job for job in await self.all() if not is_finished(job)]

    async def all(self) -> list[Object]:
        """Return the jobs of all served kinds. An opt-in kind that the user may not read is left out without a word."""
        found = await asyncio.gather(*(self._all(served.resource) for served in served_jobs(self.cluster)))
        self.forbidden[:] = [plural for plural in self.forbidden if plural not in _OPT_IN]
        return [job for jobs in found for job in jobs]

    async def selected(self, what: Sequence[str], *, unfinished: bool = False) -> list[Object]:
        """Return the jobs that a command's arguments select; without arguments, those of all kinds.

        With ``unfinished``, of the jobs that are not named only the unfinished ones.

        Raises:
            CommandError: an argument is not a kind of job.
        """
        if not what:
            return await (self.unfinished() if unfinished else self.all())
        found: list[Object] = []
        for kinds, name in targets(what):
            for served in self.cluster.find_all(kinds):
                if served not in served_jobs(self.cluster):
                    raise CommandError(
                        f"{served.resource.kind} is not a kind of job; the kinds are {', '.join(KINDS.values())}"
                    )
                if name:
                    found.append(await self.cluster.get(served, name))
                    continue
                jobs = await self.cluster.list_objects(served.resource)
                found += [job for job in jobs if not (unfinished and is_finished(job))]
        return found

    async def read_related(
        self, jobs: Sequence[Object], *, by_label: bool = False, events: Sequence[Manifest] | None = None
    ) -> None:
        """List each related resource once, for all these jobs.

        With ``by_label``, for a single job, select its pods by their label. ``events`` are used instead of a list of the namespace's events,
        which a server reads whole whatever the selector.
        """
        selected = {"labelSelector": f"{JOB_NAME}={name_of(jobs[0])}"} if by_label else {}
        groups = [] if self.only_timeline else ["volcano.sh", "scheduling.x-k8s.io", "scheduling.k8s.io"]
        pods, batch_jobs, listed, gangs, workloads = await asyncio.gather(
            self._all(PODS, **selected),
            self._all(BATCH_JOBS),
            self._all(*([EVENTS] if events is None else [])),
            self._all(
                *(resource for group in groups for resource in self._resources_of_kind("PodGroup", group))
            ),
            self._all(*self._resources_of_kind(WORKLOADS.kind, WORKLOADS.group)),
        )
        self.pods = pods
        self._pods, self._batch_jobs = _by_owner(pods), _by_owner(batch_jobs)
        self._gangs, self._workloads = _by_owner(gangs), _by_owner(workloads)
        existing = {pod["metadata"]["uid"] for pod in pods}
        for event in events if events is not None else listed:
            involved = event["involvedObject"]
            self._events.setdefault(involved.get("uid", ""), []).append(event)
            if involved.get("kind") == PODS.kind and involved.get("uid") not in existing:
                self._events_of_deleted_pods.setdefault(str(involved.get("name")), []).append(event)
        reads = [self._read_archive()]
        if not self.only_timeline:
            reads += [self._read_holders(pods, jobs, are_all=not by_label), self._read_queues(gangs)]
        await asyncio.gather(*reads)

    async def _read_archive(self) -> None:
        if self.cluster.archive is not None:
            self._archived = await asyncio.to_thread(self.cluster.archive.pods, self.cluster.namespace)

    async def _read_holders(self, pods: Sequence[Object], jobs: Sequence[Object], *, are_all: bool) -> None:
        """Read which pods hold what pods and PodGroups of the jobs lack, in all namespaces if the user may, and their jobs.

        ``are_all``: ``pods`` are all pods of the namespace.
        """
        owners = {job["metadata"]["uid"] for job in jobs}
        owners |= {
            batch_job["metadata"]["uid"] for owner in owners for batch_job in self._batch_jobs.get(owner, ())
        }
        resources = {
            *lacking(pod for pod in pods if owners & owners_of(pod)),
            *needed(gang for owner in owners for gang in self._gangs.get(owner, ())),
        }
        if not resources:
            return
        near = pods if are_all else await self._all(PODS)
        self._holders = [pod for pod in near if holds(pod, resources)]
        self._holders_known = not self.cluster.namespace
        # Neither is worth a failure of the command, nor a long wait.
        with contextlib.suppress(ApiError, TimeoutError):
            async with asyncio.timeout(_HOLDERS_TIMEOUT_SECONDS):
                self._all_nodes = await self.cluster.list_in("", NODES)
        if self.cluster.namespace:
            with contextlib.suppress(ApiError, TimeoutError):
                async with asyncio.timeout(_HOLDERS_TIMEOUT_SECONDS):
                    pages = self.cluster.pages("", PODS, fieldSelector=_NOT_ENDED)
                    self._holders = [pod async for page in pages for pod in page if holds(pod, resources)]
                    self._holders_known = True
        references = [
            owner
            for owner in largest_owners(self._holders, resources)
            if self._served_job(owner[0]) is not None
        ]
        found = await asyncio.gather(*(self._owner(*owner) for owner in references[:MAX_READS]))
        self._owners = {job["metadata"]["uid"]: job for job in found if job}

    def _served_job(self, reference: Mapping[str, str]) -> ServedResource | None:
        """Return the kind of job that an owner reference names; None if it is none."""
        group, _, _ = str(reference.get("apiVersion")).partition("/")
        kind = (group, reference.get("kind"))
        served = served_jobs(self.cluster)
        return next((job for job in served if (job.resource.group, job.resource.kind) == kind), None)

    async def _owner(self, reference: Mapping[str, str], namespace: str) -> Object | None:
        """Return the job that the owner reference names; None if it cannot be read."""
        served = self._served_job(reference)
        try:
            answer = await self._get(served.resource.path(namespace, reference["name"])) if served else None
        except Forbidden:
            return None
        return orjson.loads(answer) if answer else None

    async def _read_queues(self, gangs: Sequence[Object]) -> None:
        names = {
            queue_of(spec_of(gang))
            for gang in gangs
            if gang["apiVersion"] == VOLCANO_POD_GROUPS.api_version and is_unadmitted(gang)
        }
        chosen = sorted(names)[:MAX_READS]
        queues = await asyncio.gather(*map(self._queue, chosen))
        self._queues = {name: queue for name, queue in zip(chosen, queues, strict=True) if queue is not None}

    async def _queue(self, name: str) -> Object | None:
        """Return the queue of that name: empty if it does not exist, None if this is unknown."""
        async with self._semaphore:
            try:
                queue: Object = orjson.loads(await self.cluster.client.get(VOLCANO_QUEUES, "", name))
            except NotFound as error:
                return {} if error.name == name else None  # a server without queues names no object
            except ApiError:
                return None
        return queue

    async def snapshot(self, job: Object) -> JobSnapshot:
        """Return the job with what ``read_related`` has read, and with the last lines of its logs."""
        uid = job["metadata"]["uid"]
        batch_jobs = self._batch_jobs.get(uid, [])
        owners = [uid, *(batch_job["metadata"]["uid"] for batch_job in batch_jobs)]
        pods = sorted((pod for owner in owners for pod in self._pods.get(owner, ())), key=name_of)
        gangs = self._gangs.get(uid, [])
        objects = [job, *batch_jobs, *pods, *gangs]
        requests, nodes = ([], []) if self.only_timeline else (log_requests(job, pods), nodes_to_read(pods))
        archived = self.archived_pods(job)
        lines, times = await asyncio.to_thread(self._read_logs, job, pods, archived) if archived else ({}, [])
        answers = await asyncio.gather(*(self._log_lines(job, request) for request in requests))
        found_nodes = await asyncio.gather(*map(self._node, nodes))
        return JobSnapshot(
            job=job,
            now=clock.now(),
            pods=pods,
            pods_known=PODS.plural not in self.forbidden,
            events=[
                *(event for obj in objects for event in self._events.get(obj["metadata"]["uid"], ())),
                *self._events_of_deleted_pods_of(job),
            ],
            nodes={name_of(node): node for node in found_nodes if node},
            gangs=gangs,
            queues=self._queues,
            holders=self._holders,
            all_nodes=self._all_nodes,
            holders_known=self._holders_known,
            owners=self._owners,
            lines_of_deleted_pods=lines,
            archived_pods=times,
            workloads=self._workloads.get(uid, ()),
            workloads_known="workloads" not in self.forbidden,
            is_kueue_served=any(
                served.resource.group == WORKLOADS.group for served in self.cluster.resources
            ),
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

    def _events_of_deleted_pods_of(self, job: Object) -> list[Manifest]:
        """Return the events of deleted pods that may have been of the job, by their names."""
        prefix = f"{name_of(job)}-"
        return [
            event
            for name, events in self._events_of_deleted_pods.items()
            if name.startswith(prefix) and is_pod_name(job, name)
            for event in events
            if event["metadata"].get("namespace") == job["metadata"].get("namespace")
        ]

    def _read_logs(
        self, job: Object, pods: Sequence[Object], archived: Sequence[log_archive.ArchivedPod]
    ) -> tuple[dict[tuple[str, str], LastLines], list[ArchivedPod]]:
        """Return the last lines of deleted pods, and the times of all archived ones."""
        killed = self._killed_pods() if is_condition_true(job, ConditionType.FAILED) else frozenset()
        lines = {} if self.only_timeline else _lines_of_deleted_pods(job, pods, archived, killed)
        return lines, [pod for pod in map(_times_of, archived) if pod]

    def _killed_pods(self) -> frozenset[str]:
        """Return the UIDs of deleted pods whose containers ran until then."""
        return frozenset(
            str(event["involvedObject"].get("uid"))
            for events in self._events_of_deleted_pods.values()
            for event in events
            if event.get("reason") == "Killing" and str(event.get("message")).startswith("Stopping container")
        )

    def archived_pods(self, job: Object) -> list[log_archive.ArchivedPod]:
        """Return the pods of the job in the log folder of a local cluster, also those that exist."""
        metadata = job["metadata"]
        near = [pod for pod in self._archived if pod.namespace == metadata["namespace"]]
        return pods_of_job(near, job["kind"], metadata["name"], job)

    async def _all(self, *resources: Resource, **query: str) -> list[Object]:
        found: list[Object] = []
        for resource in resources:
            try:
                found += await self.cluster.list_objects(resource, **query)
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
        return None if answer is None else parse_log(answer.decode(errors="replace"), request.lines)

    async def _ask(self, path: str, what: str, query: Mapping[str, str] | None = None) -> bytes | None:
        """Return the response body; None if the request fails."""
        try:
            return await self._get(path, query)
        except Forbidden:
            self._add_forbidden(what)
            return None

    async def _get(self, path: str, query: Mapping[str, str] | None = None) -> bytes | None:
        """Return the response body; None if the request fails.

        Raises:
            Forbidden: the user has no permission.
        """
        async with self._semaphore:
            try:
                return await self.cluster.client.request("GET", path, params=query, accept="*/*")
            except Forbidden:
                raise
            except ApiError:
                return None

    def _add_forbidden(self, what: str) -> None:
        self.forbidden[:] = sorted({*self.forbidden, what})


def _by_owner(objects: Iterable[Object]) -> Owned:
    found: Owned = {}
    for obj in objects:
        for owner in owners_of(obj):
            found.setdefault(owner, []).append(obj)
    return found


def _lines_of_deleted_pods(
    job: Object,
    pods: Sequence[Object],
    archived: Sequence[log_archive.ArchivedPod],
    killed: Collection[str] = (),
) -> dict[tuple[str, str], LastLines]:
    """Return what the job's pods that no longer exist logged last, from the log folder of a local cluster.

    Of several pods of a name, the last one counts, or the last one that failed: the operator has ``killed`` the others. Its default
    container comes first, init containers last.
    """
    if is_condition_true(job, ConditionType.SUCCEEDED):
        return {}
    existing = {pod["metadata"]["uid"] for pod in pods}
    gone = [pod for pod in archived if pod.uid not in existing and pod.has_logs]
    newest = {pod.name: pod for pod in gone}
    newest |= {pod.name: pod for pod in gone if pod.uid not in killed or _has_failed_run(pod)}
    found: dict[tuple[str, str], LastLines] = {}
    for pod in sorted(newest.values(), key=lambda pod: pod.created, reverse=True)[:MAX_READS]:
        for container in _by_importance(pod):
            most = LINES_OF_FAILURE if len(found) < MAX_DETAILED_FAILURES else 1
            if lines := _lines_of_last_run(pod, container, most, is_killed=pod.uid in killed):
                found[pod.name, container] = lines
    return dict(sorted(found.items(), key=lambda item: item[0][0]))


def _by_importance(pod: log_archive.ArchivedPod) -> list[str]:
    """Return the names of the containers: the default container, the other ones, and the init containers, the last one first."""
    names, count = container_names(pod), len(pod.manifest["spec"]["containers"])
    default = default_container(pod.manifest)
    return [*sorted(names[-count:], key=lambda name: name != default), *reversed(names[:-count])]


def _times_of(pod: log_archive.ArchivedPod) -> ArchivedPod | None:
    """Return when the pod ran, as far as its logs tell: its containers started at once, and ended with the last output."""
    created, ended = parse_timestamp(pod.created), pod.last_output
    last_state, deleted = pod.last_state() or (None, None)
    started = created if ended else None
    if created is None:
        return None
    names = [container["name"] for container in pod.manifest["spec"]["containers"]]
    runs = {name: times for name in names if len(times := pod.ended_runs(name)) > 1}
    return ArchivedPod(
        pod.name, pod.uid, created, started, ended, runs=runs, last_state=last_state, deleted=deleted
    )


def _has_failed_run(pod: log_archive.ArchivedPod) -> bool:
    """Return whether a container of the pod ran more than once: the last run was killed."""
    return any(len(pod.runs(container)) > 1 for container in container_names(pod))


def _lines_of_last_run(
    pod: log_archive.ArchivedPod, container: str, most: int, *, is_killed: bool
) -> LastLines | None:
    """Return the last lines of the last run that logged something, of a killed pod the run before if there is one; None if there is none."""
    runs = pod.runs(container)
    for log in reversed(runs[:-1] if is_killed and len(runs) > 1 else runs):
        try:
            at = datetime.fromtimestamp(log.stat().st_mtime, UTC)
        except FileNotFoundError:
            continue
        if lines := last_lines(log, most):
            return LastLines(at, tuple(lines))
    return None


def parse_log(text: str, most: int) -> LastLines | None:
    """Return the last ``most`` lines of a log with timestamps; no lines for an empty log, None if the text is no log.

    Empty lines are dropped, and lines without a timestamp: a kubelet answers with such text when the log is gone. If a carriage return
    overwrites a line, as in progress bars, the last state counts.
    """
    at: datetime | None = None
    lines: list[str] = []
    is_log = not text
    for line in text.split("\n"):
        first, _, rest = line.partition(" ")
        word = clean_line(rest)
        try:
            written = parse_time(first)
        except ValueError:
            continue
        if word:
            at = written
            lines.append(word)
        is_log = True
    return LastLines(at, tuple(lines[-most:])) if is_log else None
