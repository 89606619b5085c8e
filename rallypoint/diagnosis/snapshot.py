"""The input and the output of the diagnosis, as plain values."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property

from rallypoint.diagnosis.objects import Object, event_time, parse_timestamp, replaced_pod_uids

_WITH_JOB = timedelta(minutes=1)
"""A pod that was deleted at most this long ago was deleted with its job."""


@dataclass(frozen=True, slots=True)
class LastLines:
    """The last log lines of a container, oldest first, and the time of the last one. A container that has logged nothing has no lines."""

    at: datetime | None
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ArchivedPod:
    """A pod of which local mode keeps the logs and the last status. ``started`` and ``ended`` are the times of its first and last output, None if there was none."""

    name: str
    uid: str
    created: datetime
    started: datetime | None = None
    ended: datetime | None = None
    runs: Mapping[str, Sequence[tuple[datetime, datetime]]] = field(default_factory=dict, kw_only=True)
    """Start and end of the runs that have ended, by container; without containers that ended at most once."""
    last_state: Object | None = field(default=None, kw_only=True)
    """Of a deleted pod its metadata and its last status; None if that is unknown."""
    deleted: datetime | None = field(default=None, kw_only=True)
    """When it was deleted, known with ``last_state``."""


@dataclass(frozen=True)
class JobSnapshot:
    """A job and its related objects, as read from the API server at ``now``. What the user may not read is empty."""

    job: Object
    now: datetime
    pods: Sequence[Object] = ()
    is_deleted: bool = False
    """Whether the diagnosis is for people who find the job deleted."""
    pods_known: bool = True
    """Whether ``pods`` is complete."""
    events: Sequence[Object] = ()
    """Of the job, its children and its deleted pods. Events of other jobs are ignored."""
    nodes: Mapping[str, Object] = field(default_factory=dict)
    """By name; those that ``nodes_to_read`` returned."""
    gangs: Sequence[Object] = ()
    """PodGroups of the job."""
    workloads: Sequence[Object] = ()
    """Kueue's Workloads of the job."""
    workloads_known: bool = True
    is_kueue_served: bool = True
    """Whether the cluster serves Kueue's resources."""
    queues: Mapping[str, Object] = field(default_factory=dict)
    """Volcano's queues of ``gangs`` by name, empty if a queue does not exist; without those that could not be read."""
    holders: Sequence[Object] = ()
    """Pods on nodes, of any owner, that hold a resource that a pod or PodGroup of the job lacks."""
    holders_known: bool = True
    """Whether ``holders`` covers all namespaces."""
    all_nodes: Sequence[Object] = ()
    """All nodes, read if a pod or PodGroup of the job lacks a resource; empty if unknown."""
    owners: Mapping[str, Object] = field(default_factory=dict)
    """The jobs that own ``holders``, by UID, as far as they could be read."""
    lines_of_deleted_pods: Mapping[tuple[str, str], LastLines] = field(default_factory=dict)
    """By pod and container: what pods of the job that no longer exist logged last, of a pod its default container first. Only local mode keeps it."""
    archived_pods: Sequence[ArchivedPod] = ()
    """The pods of the job that local mode keeps logs of, existing ones too."""
    last_lines: Mapping[tuple[str, str], LastLines] = field(default_factory=dict)
    """By pod and container; those that ``log_requests`` returned."""

    @property
    def namespace(self) -> str:
        return str(self.job["metadata"].get("namespace") or "default")

    @property
    def created(self) -> datetime:
        return parse_timestamp(self.job["metadata"]["creationTimestamp"]) or self.now

    def events_of(self, obj: Object) -> Sequence[Object]:
        """Return the events of the object, the newest first."""
        return self._events_by_uid.get(obj["metadata"]["uid"], ())

    def last_line(self, pod: str, container: str) -> str:
        """Return the last log line of the container; empty if unknown."""
        lines = self.last_lines.get((pod, container))
        return lines.lines[-1] if lines and lines.lines else ""

    def last_line_of_deleted_pod(self, pod: str) -> str:
        """Return the last log line of a deleted pod; empty if unknown."""
        found = (lines.lines for (name, _), lines in self.lines_of_deleted_pods.items() if name == pod)
        return next((lines[-1] for lines in found if lines), "")

    @cached_property
    def pods_deleted_with_job(self) -> Sequence[Object]:
        """The last states of the pods that were deleted just now, if the job has been deleted and local mode has kept them."""
        there = {pod["metadata"]["name"] for pod in self.pods}
        found = {
            pod.name: pod.last_state
            for pod in self.archived_pods
            if pod.last_state
            and pod.deleted
            and self.now - pod.deleted <= _WITH_JOB
            and pod.name not in there
        }
        return list(found.values()) if self.is_deleted else ()

    @cached_property
    def replaced_pod_uids(self) -> set[str]:
        """UIDs of pods that have a successor."""
        return replaced_pod_uids(self.pods)

    @cached_property
    def newest_events(self) -> Sequence[Object]:
        """All events, the newest first."""
        return sorted(self.events, key=event_time, reverse=True)

    @cached_property
    def _events_by_uid(self) -> dict[str, list[Object]]:
        found: dict[str, list[Object]] = {}
        for event in self.newest_events:
            found.setdefault(event["involvedObject"].get("uid", ""), []).append(event)
        return found


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing that blocks a job, or a note about it."""

    about: tuple[str, ...]
    """Names of pods and other objects; empty for the job itself."""
    text: str
    since: datetime | None = None
    """Since when it holds, or when it last happened."""
    blocks: bool = True
    """Whether the job waits for it or failed because of it."""
    quote: str = ""
    """The last log line of a container of it."""
    next_step: str = ""
    """What to do about it; empty if there is nothing to do but wait, or if it is unknown."""
    step_when_deleted: str | None = None
    """What to do instead once the job has been deleted; None if that makes no difference."""


def group_by_text(found: Iterable[Cause]) -> Iterator[Cause]:
    """Merge causes with the same text.

    The merged cause has the earliest time, and the quote if all quotes are equal.
    """
    same: dict[tuple[str, bool], list[Cause]] = {}
    for cause in found:
        same.setdefault((cause.text, cause.blocks), []).append(cause)
    for group in same.values():
        about = tuple(name for cause in group for name in cause.about)
        times = min((cause.since for cause in group if cause.since), default=None)
        quotes = {cause.quote for cause in group}
        yield replace(group[0], about=about, since=times, quote=quotes.pop() if len(quotes) == 1 else "")
