"""Compares the jobs of one kind, each when it has been quiet for a moment.

A reconcile of a shadow reads and compares; it never writes. The client that it gets refuses to send anything but reads.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

import aiohttp
import orjson
import structlog
from structlog.contextvars import bind_contextvars

from api import conditions
from api.children import Owned, Pod
from api.job import Job
from api.meta import SECRETS, Resource
from api.nodes import NodeDomain
from controller.domain import Key, Problem, Snapshot, WriteMode
from controller.kind import JobKind, Options
from controller.kube import errors
from controller.kube.bounded_dict import BoundedDict
from controller.kube.client import JSON, METADATA_ONLY, Client
from controller.policy import replacement
from controller.reconcile.apply import Cache
from controller.reconcile.events import EventRecorder
from controller.reconcile.jobs import JobRow, parse
from controller.reconcile.load import LoadedJob
from controller.reconcile.memory import JobMemories, JobMemory
from controller.reconcile.observe import observe, sources_of
from controller.reconcile.ownership import Ownership
from controller.reconcile.suspensions import settle_suspension
from controller.reconcile.triggers import is_same
from controller.runtime.store import Store
from controller.runtime.workers import ReconcileResult
from controller.shadow.comparable import MISSING
from controller.shadow.compare import (
    Observed,
    job_differences,
    plan_of,
    required_children,
    without_own_fields,
)
from controller.shadow.declared import Difference, Rule, settle
from controller.shadow.report import NOT_QUIET, JobResult, KindResults
from controller.shadow.verdicts import (
    REPLACED,
    Verdict,
    cleanup_differences,
    judge,
    kept_children,
    outcome_differences,
)

QUIET_SECONDS: Final = 2.0
"""How long a job and its children must not change before they are compared."""
RECHECK_SECONDS: Final = 30.0
"""When to compare a job again for which this operator would act at once, as long as nothing changes."""
SLACK_SECONDS: Final = 0.05
"""A timer may fire slightly early."""
PAGE: Final = 500
"""Objects per list request."""
LARGE_JOB: Final = 200
"""Children from which a comparison no longer fits between two other tasks of the event loop."""
MOST_VERDICTS: Final = 1024
"""The most decisions about failed pods that are kept of one job until it is quiet."""
MOST_LASTING: Final = 32
"""The most differences about past moments that are kept of one job."""

_UNREADABLE: Final = (errors.ApiError, aiohttp.ClientError, TimeoutError, OSError)

log = structlog.get_logger()


class _Everyone:
    """Counts each pod as having answered: a shadow opens no connection to pods."""

    def __contains__(self, uid: object) -> bool:
        return True


@dataclass(slots=True)
class _ShadowMemory:
    """What is remembered of one job, by UID. If it is lost, the job is compared again, and decisions about past moments are missing."""

    fingerprint: tuple[object, ...] = ()
    changed_at: float = 0.0
    """Loop time of the last change of the job or its children."""
    doubtful: tuple[Difference, ...] = ()
    """Undeclared differences of the last comparison: reported when the next one finds them again."""
    verdicts: BoundedDict[str, Verdict] = field(default_factory=lambda: BoundedDict(MOST_VERDICTS))
    """By the UID of the failed pod. A job whose pods fail all the time is never quiet."""
    kept: dict[str, str] = field(default_factory=dict[str, str])
    lasting: tuple[Difference, ...] = ()
    """Differences about moments that have passed."""


@dataclass(frozen=True, slots=True)
class _Job:
    """A job as one comparison reads it."""

    row: JobRow
    kind: JobKind[Any]
    job: Job
    malformed: tuple[Problem, ...]
    memory: JobMemory

    @property
    def label(self) -> str:
        """The kind, of MPIJobs with the flavor."""
        version = self.kind.resource.version
        return f"{self.row_kind}/{version}" if self.row_kind == "MPIJob" else self.row_kind

    @property
    def row_kind(self) -> str:
        return self.kind.resource.kind


class ShadowController:
    """Compares the jobs of one kind."""

    def __init__(
        self,
        kind: JobKind[Any],
        client: Client,
        jobs: Store[JobRow],
        caches: Mapping[Resource, Cache],
        events: EventRecorder,
        options: Options,
        memories: JobMemories,
        *,
        nodes: Store[NodeDomain] | None = None,
        now: Callable[[], datetime],
    ) -> None:
        """``events`` records nothing: ``Ownership`` needs it for what it does outside of shadow mode."""
        self.results = KindResults(kind.resource.kind)
        self._kind = kind
        self._client = client
        self._jobs = jobs
        self._caches = caches
        self._options = options
        self._memories = memories
        self._ownership = Ownership(kind, client, events)
        stores = {resource: cache.store for resource, cache in caches.items()}
        self._sources = sources_of(stores, options, nodes, _Everyone())
        self._now = now
        self._shadows: dict[str, _ShadowMemory] = {}

    def observe_job(self, before: JobRow | None, after: JobRow | None) -> None:
        """Take note of a change of a job: it is no longer compared in its present state. Keep what a finished job should keep."""
        if before is not None and (after is None or after.uid != before.uid):
            self._discard(before.uid)
        if after is None or after.deleting:
            return
        result = self._result(after)
        if before is None or before.uid != after.uid or before.status == after.status:
            return
        result.unread = NOT_QUIET
        with self._reporting(after, Rule.CLEANUP, "job"):
            job, earlier = self._load(after), self._load(before)
            if conditions.is_finished(job.job.status) and not conditions.is_finished(earlier.job.status):
                shadow = self._shadow(after.uid)
                kept = kept_children(job.kind, job.job, self._snapshot(job), self._now(), self._options)
                # The other operator may have deleted these before it ended the job; the watch of the pods can be behind.
                replaced = {uid for uid, verdict in shadow.verdicts.items() if verdict.outcome == REPLACED}
                shadow.kept = {uid: subject for uid, subject in kept.items() if uid not in replaced}

    def observe_pod(self, before: Pod | None, after: Pod | None) -> None:
        """Decide about a pod that has just failed, before the other operator deletes it."""
        if (
            after is None
            or after.phase != "Failed"
            or after.deleting
            or before is None
            or before.phase == "Failed"
        ):
            return
        row = self._jobs.get(after.namespace, after.owner_name)
        if row is None or row.deleting or row.uid != after.owner_uid:
            return
        with self._reporting(row, Rule.RESTART, f"Pod {after.name}"):
            job = self._load(row)
            snapshot = self._snapshot(job)
            is_own = any(pod.uid == after.uid for pod in snapshot.pods)
            if is_own and conditions.is_finished(job.job.status):
                # It may have failed before the job ended, and its deletion then belongs to the restart.
                self._shadow(row.uid).kept.pop(after.uid, None)
            if is_own and not (job.malformed or self._ownership.is_other(_loaded(job))):
                verdict = judge(job.kind, job.job, snapshot, after, self._now(), self._options)
                self._shadow(row.uid).verdicts[after.uid] = verdict

    @contextmanager
    def _reporting(self, row: JobRow, rule: Rule, subject: str) -> Generator[None]:
        """Report a defect in the block as a difference instead of raising it: a watch calls it, and must continue."""
        try:
            yield
        except Exception as error:
            fields = {"kind": self._kind.resource.kind, "namespace": row.namespace, "name": row.name}
            log.exception("decision failed", **fields)
            shadow, failed = self._shadow(row.uid), _exception_text(error)
            shadow.lasting = _latest(shadow.lasting, Difference(rule, subject, "", failed, "a decision"))

    async def reconcile(self, key: Key) -> ReconcileResult:
        """Compare one job if it is quiet; otherwise return when it may be.

        Raises:
            ApiError, aiohttp.ClientError, TimeoutError: a read failed, and the comparison must be retried.
        """
        row = self._jobs.get(key.namespace, key.name)
        bind_contextvars(
            controller=self._kind.controller_name,
            kind=self._kind.resource.kind,
            namespace=key.namespace,
            name=key.name,
            uid=row.uid if row else "",
        )
        if row is None or row.deleting:
            memory = self._memories.current(key)
            self._discard(row.uid if row else memory.uid if memory else "")
            self._memories.discard(key)
            return ReconcileResult()
        job, result = self._load(row), self._result(row)
        result.is_left = self._ownership.is_other(_loaded(job))
        if result.is_left:
            return ReconcileResult()
        shadow, now = self._shadow(row.uid), asyncio.get_running_loop().time()
        if self._note_change(shadow, job, now):
            result.unread = NOT_QUIET
        remaining = shadow.changed_at + QUIET_SECONDS - now
        if remaining > SLACK_SECONDS:
            return ReconcileResult(remaining)
        try:
            return await self._compare(job, shadow, result)
        except _UNREADABLE as error:
            result.unread = f"a child cannot be read: {errors.describe(error)}"
            raise
        except Exception as error:
            result.unread = _exception_text(error)
            raise

    async def _compare(self, job: _Job, shadow: _ShadowMemory, result: JobResult) -> ReconcileResult:
        observed = self._observed(job, {})
        children = await self._children(observed, job.row)
        if self._has_changed(job.row, shadow, result):
            return ReconcileResult(QUIET_SECONDS)
        observed = self._observed(job, children)
        past = self._past_differences(job, observed, shadow)
        found = (*await self._differences(job, observed), *past)
        if self._has_changed(job.row, shadow, result):
            return ReconcileResult(QUIET_SECONDS)
        undeclared = tuple(difference for difference in found if not difference.is_declared)
        if undeclared != shadow.doubtful:
            shadow.doubtful = undeclared
            if undeclared:  # a limit or a TTL that ends right now: the other operator may need a moment
                return ReconcileResult(QUIET_SECONDS)
        shadow.lasting = past
        shadow.verdicts.clear()
        shadow.kept = {}
        self._publish(result, found)
        due = plan_of(observed).requeue_after_seconds
        if due is None:
            return ReconcileResult()
        return ReconcileResult(RECHECK_SECONDS if due < QUIET_SECONDS else due + QUIET_SECONDS)

    def _has_changed(self, row: JobRow, shadow: _ShadowMemory, result: JobResult) -> bool:
        """Return whether the job or a child has changed since the last look; then it is unread again."""
        newest = self._jobs.get(row.namespace, row.name)
        if newest is not None and newest.uid == row.uid:
            if not self._note_change(shadow, self._load(newest), asyncio.get_running_loop().time()):
                return False
            result.unread = NOT_QUIET
        return True

    async def _differences(self, job: _Job, observed: Observed) -> list[Difference]:
        """Return the differences of the job as it is now. Those of a large job take seconds, so a thread finds them."""
        if len(observed.children) < LARGE_JOB:
            found = job_differences(observed)
        else:
            found = await asyncio.to_thread(job_differences, observed)
        if self._ownership.needs_correction(_loaded(job)):
            given = job.job.spec.policy.managed_by or MISSING
            found.append(Difference(Rule.CHANGE, "spec", "/runPolicy/managedBy", job.kind.managed_by, given))
        return [settle(job.label, difference) for difference in found]

    def _past_differences(
        self, job: _Job, observed: Observed, shadow: _ShadowMemory
    ) -> tuple[Difference, ...]:
        """Return the differences about moments that have passed, the earlier ones included."""
        found = [
            *outcome_differences(shadow.verdicts.values(), job.job, observed.snapshot),
            *cleanup_differences(shadow.kept, observed.snapshot),
        ]
        settled = (settle(job.label, difference) for difference in found)
        return _latest(shadow.lasting, *settled)

    def _publish(self, result: JobResult, found: tuple[Difference, ...]) -> None:
        known = set(result.differences or ())
        for difference in found:
            if difference not in known:
                write = log.debug if difference.is_declared else log.warning
                write(
                    "decision differs",
                    rule=difference.rule,
                    subject=difference.subject,
                    field=difference.field,
                    ours=difference.ours,
                    theirs=difference.theirs,
                )
        for difference in known.difference(found):
            if not difference.is_declared:
                log.info("decision no longer differs", rule=difference.rule, subject=difference.subject)
        result.differences, result.unread = found, ""

    async def _children(self, observed: Observed, row: JobRow) -> dict[tuple[str, str], dict[str, Any]]:
        """Read the children from the server: those with the job's labels by lists, all others that planning names by name."""
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for resource, cache in self._caches.items():
            async for item in self._list(resource, row.namespace, cache.selector(row.name)):
                references = item["metadata"].get("ownerReferences") or ()
                if any(ref.get("controller") and ref.get("uid") == row.uid for ref in references):
                    found[resource.kind, item["metadata"]["name"]] = item
        for key, child in required_children(observed).items():
            is_listed = child.write_mode is WriteMode.CREATE and child.resource in self._caches
            if key in found or is_listed:
                continue
            accept = (
                METADATA_ONLY if child.resource == SECRETS else JSON
            )  # a shadow never gets the data of a Secret
            try:
                answer = await self._client.get(child.resource, row.namespace, child.name, accept=accept)
            except errors.NotFound:
                continue
            found[key] = orjson.loads(answer)
        return found

    async def _list(
        self, resource: Resource, namespace: str, selector: Mapping[str, str]
    ) -> AsyncIterator[dict[str, Any]]:
        position = ""
        while True:
            params = {**selector, "limit": str(PAGE), "continue": position}
            answer = orjson.loads(await self._client.list(resource, namespace, params=params))
            for item in answer["items"] or ():
                yield item
            position = (answer.get("metadata") or {}).get("continue") or ""
            if not position:
                return

    def _load(self, row: JobRow) -> _Job:
        job, malformed = parse(row, self._kind.model, self._kind.resource.kind)
        kind = self._kind.variant(job, self._sources.of(row.uid, row.namespace))
        memory = self._memories.begin(Key(row.namespace, row.name), row.uid)
        return _Job(row, kind, without_own_fields(job), malformed, memory)

    def _snapshot(self, job: _Job) -> Snapshot:
        row = job.row
        return observe(self._sources, job.kind, Key(row.namespace, row.name), row.uid)

    def _observed(self, job: _Job, children: dict[tuple[str, str], dict[str, Any]]) -> Observed:
        """Return the job with its memory, as a reconcile would plan for it."""
        snapshot, now = self._snapshot(job), self._now()
        job.memory.failures = replacement.observed(job.memory.failures, snapshot.pods, now)
        has_pods = bool(snapshot.pods or snapshot.batch_pods)
        settled = settle_suspension(job.memory, job.job, has_pods=has_pods)
        snapshot = replace(snapshot, failures=job.memory.failures)
        return Observed(job.kind, settled, job.malformed, snapshot, children, now, self._options)

    def _note_change(self, shadow: _ShadowMemory, job: _Job, now: float) -> bool:
        """Return whether the job or a child has changed since the last call, and remember when."""
        snapshot = self._snapshot(job)
        rows: Iterable[Owned] = (
            *snapshot.pods,
            *snapshot.services,
            *snapshot.batch_jobs,
            *snapshot.batch_pods,
            *((snapshot.group,) if snapshot.group else ()),
        )
        after = (job.row.resource_version, *rows)
        before, shadow.fingerprint = shadow.fingerprint, after
        if len(before) == len(after) and before[0] == after[0] and all(map(_is_same, before[1:], after[1:])):
            return False
        shadow.changed_at = now
        return True

    def _result(self, row: JobRow) -> JobResult:
        return self.results.jobs.setdefault(row.uid, JobResult(Key(row.namespace, row.name)))

    def _shadow(self, uid: str) -> _ShadowMemory:
        return self._shadows.setdefault(uid, _ShadowMemory())

    def _discard(self, uid: str) -> None:
        self.results.jobs.pop(uid, None)
        self._shadows.pop(uid, None)


def _exception_text(error: Exception) -> str:
    """Return what the report says of an exception; the log has its traceback."""
    return f"an exception: {type(error).__name__}"


def _latest(lasting: Iterable[Difference], *found: Difference) -> tuple[Difference, ...]:
    return tuple(dict.fromkeys([*lasting, *found]))[-MOST_LASTING:]


def _is_same(before: Any, after: Any) -> bool:
    return before.uid == after.uid and is_same(before, after)


def _loaded(job: _Job) -> LoadedJob:
    return LoadedJob(job.kind, job.row, job.job, job.malformed, job.memory, is_first=False)
