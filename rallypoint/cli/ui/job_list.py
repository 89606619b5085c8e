"""The rows of all jobs, kept up to date by watches."""

import asyncio
import re
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeAlias

import structlog

from api.job import ConditionType
from api.labels import JOB_NAME
from api.meta import EVENTS, PODS, Resource
from api.pod_problems import CRASH_LOOP, ProblemType, Trouble, container_problems, read_status, troubles
from api.requests import requests
from controller.kube.errors import Forbidden, NotFound
from controller.runtime.informer import Informer
from rallypoint.cli.cluster import Cluster
from rallypoint.cli.job_reader import served_jobs
from rallypoint.cli.ui.event_watches import EventWatches
from rallypoint.diagnosis import state_of_job
from rallypoint.diagnosis.kueue import local_queue_of
from rallypoint.diagnosis.objects import (
    FINISHED,
    Object,
    condition,
    desired_pods,
    event_time,
    is_finished,
    name_of,
    owners_of,
    parse_timestamp,
    reason_and_message,
    replica_specs,
    spec_of,
    status_of,
)
from rallypoint.diagnosis.terminations import describe_repeated_termination
from rallypoint.local.manifest import Manifest, Row, decode

GATHER_SECONDS = 0.3
"""Changes within this time are sent together."""
CHECK_SECONDS = 2.0
"""Between two looks at whether the watches follow the cluster."""
ANSWER_SECONDS = 5.0
"""A cluster whose watch is broken must answer within this time."""
_EVENT_SELECTOR = ",".join(f"involvedObject.kind!={kind}" for kind in ("Pod", "Node", "ReplicaSet", "Job"))
"""Leaves out most events of a cluster: the list needs those of training jobs."""
_REPORT = re.compile(
    r"Error pod (?P<pod>\S+) (?:container (?P<container>\S+) (?:exitCode: -?\d+ )?\w+|condition) message: "
)
"""How the operator's reports about pods begin: which pod it is, the job's own page tells."""
_FAILURE = re.compile(r"\w+ \S+ (?:has|is) failed because ")
"""How the operator's messages about failed jobs begin: which job it is, the row tells."""
_EXPIRED = "expired"
"""The field of a warning whose event has expired."""
_LONG_AGO = datetime.min.replace(tzinfo=UTC)
_COUNTS = ("active", "succeeded", "failed")

log = structlog.get_logger()

Document: TypeAlias = dict[str, Any]
"""What the page gets, as JSON."""
Key: TypeAlias = tuple[str, str, str]
"""Kind, namespace and name."""


class JobList:
    """The jobs of a cluster, by key. ``run`` keeps them up to date."""

    def __init__(self, cluster: Cluster) -> None:
        self.namespace = cluster.namespace
        self.manifests: dict[Key, Manifest] = {}
        self.served = {served.resource.kind: served for served in served_jobs(cluster)}
        self._rows: dict[Key, Document] = {}
        self._keys: dict[str, Key] = {}
        """By UID."""
        self._expired: dict[str, Object] = {}
        """The newest warning about each job whose event has expired, by the job's UID. The operator reports most causes only once."""
        self._failures: dict[str, str] = {}
        """Why jobs failed, as far as a reader of their pods and logs knows better than their conditions, by the job's UID."""
        self._subscribers: dict[asyncio.Event, set[Key]] = {}
        self._informers = [
            Informer(
                cluster.client,
                served.resource,
                decode,
                partial(self._changed, served.resource),
                namespace=cluster.namespace,
            )
            for served in self.served.values()
        ]
        self._events = Informer(
            cluster.client,
            EVENTS,
            decode,
            self._event_changed,
            namespace=cluster.namespace,
            field_selector=_EVENT_SELECTOR,
            index=_involved_uid,
        )
        self._pending = Informer(
            cluster.client,
            PODS,
            decode,
            self._pod_changed,
            namespace=cluster.namespace,
            label_selector=JOB_NAME,
            field_selector="status.phase=Pending",
            index=_job_of_pod,
        )
        self.event_watches = EventWatches(cluster)

    async def run(self) -> None:
        """Watch until canceled."""
        async with asyncio.TaskGroup() as tasks:
            for informer in (*self._informers, self._events, self._pending):
                tasks.create_task(informer.run())

    async def filled(self) -> None:
        """Wait until all jobs are known."""
        for informer in self._informers:
            await informer.settled.wait()

    @property
    def unread(self) -> list[str]:
        """Plural names of the kinds that cannot be read."""
        return [informer.resource.plural for informer in self._informers if informer.unserved.is_set()]

    def row(self, key: Key) -> Document | None:
        return self._rows.get(key)

    def rows(self) -> list[Document]:
        return list(self._rows.values())

    def set_failure(self, key: Key, uid: str, message: str) -> None:
        """Show why a job failed; nothing if it no longer exists."""
        if self._keys.get(uid) == key and self._failures.get(uid) != message:
            self._failures[uid] = message
            self._update_row(key)

    async def check(self) -> None:
        """Ask the cluster for the jobs whose watch is broken. A refusal of one kind is an answer.

        Raises:
            ApiError, aiohttp.ClientError, TimeoutError: it does not answer.
        """
        for informer in self._informers:
            if not informer.is_following and not informer.unserved.is_set():
                with suppress(Forbidden, NotFound):
                    async with asyncio.timeout(ANSWER_SECONDS):
                        await informer.source.probe()

    async def changes(self, *, checked: bool = False) -> AsyncGenerator[Document]:
        """Yield all rows, then the rows that change and the ids of jobs that are gone. With ``checked``, raise what ``check`` raises."""
        if checked:
            await self.check()
        await self.filled()
        changed, keys = asyncio.Event(), set[Key]()
        self._subscribers[changed] = keys
        try:
            yield {"all": self.rows(), "unread": self.unread}
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(CHECK_SECONDS if checked else None):
                        await changed.wait()
                if checked:
                    await self.check()
                if not changed.is_set():
                    continue
                await asyncio.sleep(GATHER_SECONDS)
                found = {key: self._rows.get(key) for key in keys}
                changed.clear()
                keys.clear()
                yield {
                    "changed": [row for row in found.values() if row],
                    "gone": [id_of(key) for key, row in found.items() if row is None],
                    "unread": self.unread,
                }
        finally:
            del self._subscribers[changed]

    async def wait_for_change(self, key: Key, before: Document | None, timeout_seconds: float) -> None:
        """Return when the job's row is no longer ``before``, or after the timeout."""
        changed, keys = asyncio.Event(), set[Key]()
        self._subscribers[changed] = keys
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_seconds):
                    while self._rows.get(key) is before:
                        await changed.wait()
                        changed.clear()
        finally:
            del self._subscribers[changed]

    def _changed(self, resource: Resource, before: Row | None, after: Row | None) -> None:
        found = after or before
        assert found is not None
        key = (resource.kind, found.namespace, found.name)
        if before is not None and (after is None or after.uid != before.uid):
            self._expired.pop(before.uid, None)
            self._failures.pop(before.uid, None)
            self._keys.pop(before.uid, None)
        if after is None:
            self.manifests.pop(key, None)
        else:
            self.manifests[key] = {
                "apiVersion": resource.api_version,
                "kind": resource.kind,
                **after.manifest,
            }
            self._keys[after.uid] = key
        self._update_row(key)

    def _event_changed(self, before: Row | None, after: Row | None) -> None:
        found = after or before
        assert found is not None
        uid = _involved_uid(found)
        if key := self._keys.get(uid):
            if after is None and self._warning(uid, found.manifest) is found.manifest:
                report = f"{found.manifest.get('message') or ''} (reported {event_time(found.manifest)})"
                self._expired[uid] = {**found.manifest, "message": report, _EXPIRED: True}
            elif uid in self._expired and self._warning(uid) is not self._expired[uid]:
                del self._expired[uid]
            self._update_row(key)

    def _pod_changed(self, before: Row | None, after: Row | None) -> None:
        found = after or before
        assert found is not None
        namespace, _, name = _job_of_pod(found).partition("/")
        for kind in self.served:
            if (kind, namespace, name) in self.manifests:
                self._update_row((kind, namespace, name))

    def _pending_pods(self, job: Object) -> list[Object]:
        """Return the pods of the job that wait. Those of a batch Job name the training job only by their label."""
        metadata = job["metadata"]
        return [
            row.manifest
            for row in self._pending.store.indexed(f"{metadata.get('namespace') or ''}/{metadata['name']}")
            if not self._keys.keys() & (owners_of(row.manifest) - {metadata["uid"]})
        ]

    def _warning(self, uid: str, *others: Object) -> Object | None:
        """Return the newest warning about the job with this UID."""
        known = (row.manifest for row in self._events.store.indexed(uid))
        expired = (self._expired[uid],) if uid in self._expired else ()
        return newest_warning((*known, *expired, *others))

    def _update_row(self, key: Key) -> None:
        """Compute the row, and wake those who follow it."""
        job = self.manifests.get(key)
        if job is None:
            self._rows.pop(key, None)
        else:
            uid = job["metadata"]["uid"]
            try:
                row = row_of(job, self._warning(uid), self._pending_pods(job))
                is_failed = row["state"] == ConditionType.FAILED
                row["message"] = self._failures.get(uid, row["message"]) if is_failed else row["message"]
                self._rows[key] = row
            except Exception:
                # One odd object must not end the page.
                log.exception("job left out of the list", job=id_of(key))
        for event, keys in self._subscribers.items():
            keys.add(key)
            event.set()


def _involved_uid(row: Row) -> str:
    return str((row.manifest.get("involvedObject") or {}).get("uid") or "")


def _job_of_pod(row: Row) -> str:
    return f"{row.namespace}/{row.manifest['metadata']['labels'][JOB_NAME]}"


def _last_time(event: Object) -> datetime:
    repeated = parse_timestamp((event.get("series") or {}).get("lastObservedTime"))
    return max(filter(None, (repeated, parse_timestamp(event_time(event)))), default=_LONG_AGO)


def newest_warning(events: Iterable[Object]) -> Object | None:
    """Return the newest warning about a job, from its events. A failure to create a child is over once one is created."""
    newest: dict[str, Object] = {}
    for event in events:
        reason = str(event.get("reason"))
        known = newest.get(reason)
        if known is None or _last_time(known) <= _last_time(event):
            newest[reason] = event
    standing = [
        event
        for reason, event in newest.items()
        if event.get("type") == "Warning"
        and not (
            (success := newest.get(reason.replace("Failed", "Successful", 1)))
            and success is not event
            and _last_time(success) >= _last_time(event)
        )
    ]
    return max(standing, key=_last_time, default=None)


def id_of(key: Key) -> str:
    return "/".join(key)


def row_of(job: Object, warning: Object | None = None, pending: Sequence[Object] = ()) -> Document:
    """Return what the list shows of a job. ``warning`` is the newest warning event about it, ``pending`` its pods that wait."""
    metadata = job["metadata"]
    state, since = state_of_job(job)
    key = (str(job["kind"]), str(metadata.get("namespace") or ""), str(metadata["name"]))
    trouble = _trouble_while_running(job, warning, pending) if state == ConditionType.RUNNING else ""
    return {
        "id": id_of(key),
        "kind": key[0],
        "namespace": key[1],
        "name": key[2],
        "uid": metadata["uid"],
        "state": state,
        "since": since,
        "created": parse_timestamp(metadata.get("creationTimestamp")),
        "ended": _ended(job),
        "replicas": replica_counts(job),
        "requests": requested(job),
        "queue": local_queue_of(job),
        "waits": bool(trouble),
        "message": trouble or _message(job, state, warning, pending),
    }


def replica_counts(job: Object) -> Mapping[str, int]:
    """Return how many pods the spec requests, and how many are active, succeeded and failed.

    The status of a job that has failed keeps the active pods of before, so an ended job counts none.
    """
    statuses = (status_of(job).get("replicaStatuses") or {}).values()
    counts = {count: sum(int((status or {}).get(count) or 0) for status in statuses) for count in _COUNTS}
    if is_finished(job):
        counts["active"] = 0
    return {"desired": desired_pods(job), **counts}


def requested(job: Object) -> Mapping[str, float]:
    """Return the sums of what the pods of the spec request, by resource. A template with an invalid amount counts as nothing."""
    found: dict[str, float] = {}
    for role in replica_specs(job).values():
        count = role.get("replicas")
        try:
            by_name = requests(spec_of(role.get("template") or {}))
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
        for name, request in by_name.items():
            found[name] = found.get(name, 0.0) + float(request.amount) * (1 if count is None else count)
    return found


def _ended(job: Object) -> datetime | None:
    state, since = state_of_job(job)
    completed = parse_timestamp(status_of(job).get("completionTime"))
    return (completed or since) if state in FINISHED else None


def _message(job: Object, state: str, warning: Object | None, pending: Sequence[Object]) -> str:
    """Return the message of the condition that explains the state.

    Of a job that waits, what its pods wait for now, a newer warning, or the newest condition.
    """
    found: Sequence[Object] = status_of(job).get("conditions") or ()
    if state == ConditionType.FAILED:
        return _FAILURE.sub("", str(condition(job, state).get("message") or ""), count=1)
    if state != "Waiting":
        return str(condition(job, state).get("message") or "")
    newest = max(found, key=_update_time, default={})
    if warning and _last_time(warning) >= _update_time(newest):
        return (_trouble_of(pending) if _is_report(warning) else "") or _text_of(warning)
    says_why = newest.get("status") == "False"
    return ("" if says_why else _trouble_of(pending)) or str(newest.get("message") or "")


def _trouble_while_running(job: Object, warning: Object | None, pending: Sequence[Object]) -> str:
    """Return what a job that runs waits for: how many of its pods, and why; or what a pod has reported since. Empty if it waits for nothing.

    A crash loop ends without an event, so its report has a time, and lasts as long as the event.
    """
    counts = replica_counts(job)
    waiting = counts["desired"] - sum(counts[count] for count in _COUNTS)
    if waiting > 0 and status_of(job).get("replicaStatuses"):
        how_many = f"{waiting} of {counts['desired']} pods {'waits' if waiting == 1 else 'wait'}"
        return ": ".join(filter(None, (how_many, _trouble_of(pending))))
    since = _update_time(condition(job, ConditionType.RUNNING))
    if warning is None or _EXPIRED in warning or not _is_report(warning) or _last_time(warning) < since:
        return ""
    return f"{_text_of(warning)} (reported {event_time(warning)})"


def _is_report(warning: Object) -> bool:
    return _REPORT.match(str(warning.get("message") or "")) is not None


def _text_of(warning: Object) -> str:
    """Return the message of a warning; of a crash loop, for which a kubelet only writes how long it waits, which container it is."""
    message = str(warning.get("message") or "")
    report = _REPORT.match(message)
    if report and report["container"] and warning.get("reason") == CRASH_LOOP:
        message = f"container {report['container']} of {report['pod']} fails again and again"
    else:
        message = _REPORT.sub("", message)
    return reason_and_message({**warning, "message": message})


def _trouble_of(pods: Sequence[Object]) -> str:
    """Return why the first of these pods waits; empty if none of them says why."""
    for pod in sorted(pods, key=name_of):
        status = read_status(pod)
        for problem in container_problems(status):
            if problem.type is ProblemType.CRASH_LOOP and (end := problem.termination):
                ended = describe_repeated_termination(problem.container, problem.restarts + 1, end)
                return f"{CRASH_LOOP}: {ended}"
        found: Sequence[Trouble] = troubles(name_of(pod), status)
        for trouble in found:
            return ": ".join(filter(None, (trouble.reason, _REPORT.sub("", trouble.message).strip())))
    return ""


def _update_time(condition: Object) -> datetime:
    return parse_timestamp(condition.get("lastUpdateTime")) or datetime.min.replace(tzinfo=UTC)
