"""The pass: read the job, look at its children, decide, then write children and status side by side.

Everything is looked at anew each time; a pass that finds nothing to do writes nothing.
"""

import asyncio
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import aiohttp
import msgspec
import structlog
from structlog.contextvars import bind_contextvars

from api import conditions
from api.batch import BATCH_JOBS
from api.job import ConditionType, Job, JobStatus
from api.labels import KUEUE_PREFIX, MANAGED_BY_MULTIKUEUE, MANAGED_BY_US
from api.meta import PODS, SERVICES, Resource
from api.nodes import Place
from controller.domain import (
    Count,
    Event,
    Failure,
    Key,
    Knock,
    Plan,
    Problem,
    Severity,
    Snapshot,
    Upkeep,
    shortened,
)
from controller.kind import JobKind, Options
from controller.kube import errors
from controller.kube.client import Client
from controller.policy import replacement
from controller.policy.gang import groups_of
from controller.reconcile import plan as planning
from controller.reconcile.apply import Applier, Cache
from controller.reconcile.coalesce import Coalescer, may_wait
from controller.reconcile.expectations import Expectations
from controller.reconcile.jobs import JobRow, differs_beside_status, job_from_json, of_spec, parse
from controller.reconcile.observe import Sources, observe
from controller.reconcile.status import StatusWriter, differs, on_wire
from controller.reconcile.suspensions import Suspensions
from controller.reconcile.telling import Teller
from controller.reconcile.unwatched import NEVER
from controller.reconcile.writes import Occupied, Parent, Pods, Refused
from controller.runtime import clock
from controller.runtime.recorder import Subject
from controller.runtime.store import Store
from controller.runtime.workers import Outcome, Terminal

LONGEST_MANAGER = 128
"""Characters of ``managedBy`` that an event quotes."""
CORRECTED_SECONDS = 1.0
"""After so long a job is looked at again whose managedBy was set, if its watch event does not come before."""

log = structlog.get_logger()

Counter = Callable[[JobKind[Any], str, Count], None]
"""Told of what the contract's counters count: whose job, namespace, what."""


class _Items(msgspec.Struct):
    items: list[msgspec.Raw]


_decode_items = msgspec.json.Decoder(_Items).decode


@dataclass(frozen=True, slots=True)
class _Decision:
    """What one reconcile has decided, to be carried out."""

    kind: JobKind[Any]
    row: JobRow
    job: Job
    plan: Plan
    parent: Parent
    creates: bool
    """Whether children are created that are not there."""
    makes: bool
    """Whether children are created, or written again that others have deleted or changed."""


class Reconciler:
    """The passes of one kind."""

    def __init__(
        self,
        kind: JobKind[Any],
        client: Client,
        jobs: Store[JobRow],
        caches: Mapping[Resource, Cache],
        teller: Teller,
        options: Options,
        counter: Counter,
        suspensions: Suspensions,
        *,
        width: int = 32,
        nodes: Store[Place] | None = None,
        answered: Container[str] = (),
        ask: Callable[[Key, Knock], None] = lambda key, knock: None,
        now: Callable[[], datetime] = lambda: clock.now(),
    ) -> None:
        """``ask`` has a job's pod asked, and a pass made when it is among those that have ``answered``."""
        self._ask = ask
        self._now = now
        self._kind = kind
        self._client = client
        self._jobs = jobs
        self._caches = caches
        stores = {resource: cache.store for resource, cache in caches.items()}
        gangs = options.gang_scheduler
        self._sources = Sources(
            pods=stores[PODS],
            services=stores.get(SERVICES),
            groups=stores.get(groups_of(gangs)) if gangs else None,
            batch_jobs=stores.get(BATCH_JOBS),
            nodes=nodes,
            answered=answered,
        )
        self._teller = teller
        self._options = options
        self._counter = counter
        self._suspensions = suspensions
        self._expectations = Expectations()
        self._applier = Applier(client, caches, self._expectations, teller, width=width)
        self._status = StatusWriter(client, kind.resource, jobs)
        self._waiting = Coalescer()
        self._held_up: set[str] = set()
        """UIDs of jobs whose last try to make children met with an obstacle."""
        self._corrected: set[str] = set()
        """UIDs of jobs whose managedBy was set, or could not be; a second time would fight whoever sets it otherwise."""
        self._uids: dict[Key, str] = {}
        """Of the jobs that had a pass, so that what is remembered by UID can go with them."""
        self._failures: dict[str, Mapping[str, Failure]] = {}
        """By job UID: the last failures of its pods. If it is lost, pods count from their annotation on."""
        self._untold: dict[str, Plan] = {}
        """By job UID: plans whose status may or may not have been written, because the answer was lost."""

    async def reconcile(self, key: Key) -> Outcome:
        """One pass of one job.

        Raises:
            ApiError, aiohttp.ClientError, TimeoutError: the pass is to be tried again later.
        """
        row = self._jobs.get(key.namespace, key.name)
        bind_contextvars(
            kind=self._kind.resource.kind, namespace=key.namespace, name=key.name, uid=row.uid if row else ""
        )
        # Asked before the children are read: a child that arrives in between would be missing from the snapshot and be made twice.
        if row is not None and not self._expectations.are_met(row.uid):
            await self._ask_server(row)
            row = self._jobs.get(key.namespace, key.name)
        if await self._revoke(key, row):
            row = self._jobs.get(key.namespace, key.name)
        # No await from here to the decision: job and children are those of one moment.
        if row is None or row.deleting:
            self._forget(key)
            return Outcome()
        if self._uids.get(key, row.uid) != row.uid:
            self._forget(key)  # another job of that name came before anybody had seen the last one go
        job, malformed = parse(row, self._kind.model, self._kind.resource.kind)
        if key not in self._uids and was_held_up(job):
            self._held_up.add(row.uid)
        is_first = key not in self._uids
        self._uids[key] = row.uid
        kind = self._kind.variant(job, self._sources.of(row.uid, key.namespace))
        manager = job.spec.policy.managed_by
        if manager not in {None, *(variant.managed_by for variant in self._kind.variants)}:
            return await self._leave(kind, row, job)
        if unreadable := [one for one in malformed if not of_spec(one)]:
            return await self._leave_unread(kind, row, job, unreadable)
        # Training-operator takes a job that names nobody for its own.
        is_wrong = (manager or MANAGED_BY_US) != kind.managed_by
        can_correct = not (conditions.is_finished(job.status) or is_queued(job) or row.uid in self._corrected)
        if is_wrong and can_correct:
            return await self._correct_manager(row, kind.managed_by)
        self._tell_late(kind, row, job)
        if not conditions.is_finished(job.status):
            asides = self._kind.asides(job, self._sources.of(row.uid, key.namespace))
            self._teller.happened(_subject(kind, row), asides)
        seen = observe(self._sources, kind, key, row.uid)
        failures = self._failures_of(job, seen, is_first=is_first)
        snapshot = replace(seen, is_held_up=row.uid in self._held_up, failures=failures)
        job = self._suspensions.take_in(job, has_pods=bool(snapshot.pods or snapshot.batch_pods))
        options = replace(self._options, keeps_ledger=self._status.keeps_ledger)
        known = self._waiting.known(row.uid, row.status)
        believed = job if known is None else job.model_copy(update={"status": known})
        plan = planning.decide(kind, believed, snapshot, self._now(), options, malformed)
        is_new = job.status is None or not job.status.conditions
        parent = Parent(_subject(kind, row), row.generation, is_new, kind.voice, _pods(snapshot))
        creates = _creates(plan)
        makes = creates or self._applier.restores(parent.subject, plan.create)
        if makes and self._expectations.may_be_gone(row.uid, row.resource_version):
            newest = await self._read(row)
            if newest is None or newest.resource_version != row.resource_version:
                return Outcome(0)
        # The job ran, and the caches, which are new, lack pods of it. One whose label was removed is there and not in them.
        if is_first and creates and has_run(job.status) and await self._applier.find(parent, plan.create):
            return Outcome(0)
        for one in plan.knocks:
            self._ask(key, one)
        return await self._carry_out(_Decision(kind, row, job, plan, parent, creates, makes))

    async def _leave(self, kind: JobKind[Any], row: JobRow, job: Job) -> Outcome:
        """The job is another controller's; what the kind wants that one to know is written into its annotations.

        A name that is not MultiKueue's may be a slip that leaves the job to nobody. An event says so: its status is not ours to write.

        Differs: the originals say nothing. See docs/decisions/0012-defects-of-the-originals.md.
        """
        manager = job.spec.policy.managed_by
        if manager != MANAGED_BY_MULTIKUEUE:
            shown = shortened(str(manager), LONGEST_MANAGER)
            text = f'spec.runPolicy.managedBy is "{shown}": the job is left to that controller; this one is "{kind.managed_by}"'
            event = Event(Severity.NORMAL, f"{kind.resource.kind}LeftToAnother", text, once=text)
            self._teller.happened(_subject(kind, row), [event])
        there = job.metadata.annotations or {}
        missing = {key: value for key, value in self._kind.marks(job).items() if key not in there}
        if not missing:
            return Outcome()
        body = msgspec.json.encode({"metadata": {"uid": row.uid, "annotations": missing}})
        try:
            await self._client.patch(self._kind.resource, row.namespace, row.name, body)
        except (errors.NotFound, errors.Conflict):
            return Outcome()  # the job went meanwhile
        except errors.Forbidden as error:
            return Outcome(failure=Terminal(f"annotations cannot be written: {error.message}"))
        return Outcome()

    def _failures_of(self, job: Job, seen: Snapshot, *, is_first: bool) -> Mapping[str, Failure]:
        """The last failures of the job's pods. A job that is suspended starts anew."""
        known = self._failures.pop(job.metadata.uid, {})
        if job.spec.policy.suspend:
            return {}
        found = replacement.observed(known, seen.pods, self._now(), is_first=is_first)
        if found:
            self._failures[job.metadata.uid] = found
        return found

    async def _leave_unread(
        self, kind: JobKind[Any], row: JobRow, job: Job, unreadable: Sequence[Problem]
    ) -> Outcome:
        """Part of the object cannot be read, so nothing is decided until it changes; the job says which part."""
        text = f"{job.kind} cannot be read: {'; '.join(map(str, unreadable))}"
        event = Event(Severity.WARNING, f"{job.kind}HeldUp", text)
        plan = planning.unreadable(kind, job, event, self._now())
        await self._write_status(kind, row, job, plan)
        return Outcome(failure=Terminal(text))

    async def _correct_manager(self, row: JobRow, manager: str) -> Outcome:
        """Set ``runPolicy.managedBy`` to the Go operator whose job it is, lest the other one starts a second launcher one day.

        The API server fills it in by the version of the request that creates the job. It is wrong where somebody has chosen the
        flavor, and missing where the definition had no default yet. It comes before all else, and the next reconcile goes on from
        there; a refusal keeps the job from nothing, as no Go operator works beside this one.

        Never called for a job that Kueue may manage: the spec of such a job is Kueue's to change.

        Differs: the originals know one version each. See decision 17.
        """
        metadata = {"uid": row.uid, "resourceVersion": str(row.resource_version)}
        change = {"metadata": metadata, "spec": {"runPolicy": {"managedBy": manager}}}
        try:
            await self._client.patch(
                self._kind.resource, row.namespace, row.name, msgspec.json.encode(change)
            )
        except errors.NotFound:
            return Outcome()
        except errors.Conflict:
            return Outcome(CORRECTED_SECONDS)
        except (errors.Forbidden, errors.Invalid) as error:
            log.warning("managedBy cannot be corrected", managed_by=manager, error=error.message)
        else:
            log.info("managedBy corrected", managed_by=manager)
        self._corrected.add(row.uid)
        return Outcome(CORRECTED_SECONDS)

    async def _revoke(self, key: Key, row: JobRow | None) -> bool:
        """Rights do not outlive their job, whether or not the garbage collector is to delete what gives them. Whether there was such a job.

        A process that has known the job empties its Role by UID. One that has not does so while the Role still says whose it is.
        """
        known = self._uids.get(key)
        is_gone = known is not None and (row is None or row.uid != known or row.leaves_children)
        try:
            if known and is_gone:
                await self._applier.revoke(Parent(_subject_of(self._kind, key, known), generation=0))
            elif row is not None and row.leaves_children:
                job, _ = parse(row, self._kind.model, self._kind.resource.kind)
                kind = self._kind.variant(job, self._sources.of(row.uid, row.namespace))
                parent = Parent(_subject(kind, row), row.generation, voice=kind.voice)
                await self._applier.apply(parent, tuple(kind.while_idle(job)), ())
        except errors.Forbidden as error:
            log.warning("rights of a job that is gone cannot be taken away", error=error.message)
        return is_gone

    def _forget(self, key: Key) -> None:
        """The job is gone or going: so is everything that is remembered of it."""
        uid = self._uids.pop(key, "")
        self._applier.forget(key.namespace, key.name, uid)
        self._expectations.forget(uid)
        self._untold.pop(uid, None)
        self._failures.pop(uid, None)
        self._held_up.discard(uid)
        self._corrected.discard(uid)
        self._waiting.forget(uid)

    async def _carry_out(self, decision: _Decision) -> Outcome:
        kind, row, job, plan = decision.kind, decision.row, decision.job, decision.plan
        parent = decision.parent
        children, written = await asyncio.gather(
            self._applier.apply(parent, plan.create, plan.delete),
            self._write_status(kind, row, job, plan),
            return_exceptions=True,
        )
        if isinstance(written, BaseException):
            raise written
        due = _earliest(plan.requeue_after_seconds, written)
        if isinstance(children, Refused):
            if not has_run(job.status):
                problem = children.problem
                await self._tell_more(row, lambda kind, job: planning.refuse(kind, job, problem, self._now()))
                return Outcome(0, failure=Terminal(str(children)))
            # The spec or what admits pods was changed into this: what runs goes on, and the rest is tried again.
            children = children.error
        is_freed = children is None and row.uid in self._held_up
        if is_freed:
            self._held_up.discard(row.uid)
        if told := _obstacles(kind, children):
            self._held_up.add(row.uid)
            await self._tell_more(row, lambda kind, job: planning.hold_up(kind, job, told, self._now()))
        if isinstance(children, (errors.ApiError, aiohttp.ClientError, TimeoutError, OSError)):
            pause = self._applier.pause_seconds(row.uid, row.generation)
            return Outcome(_earliest(due, pause), failure=children)
        if isinstance(children, BaseException):
            raise children
        if plan.delete_job:
            await self._delete_job(kind, row)
            return Outcome()
        if children is None and decision.makes:
            self._expectations.made_all(row.uid, row.resource_version)
        if children is None and plan.again and decision.creates:
            return Outcome(0)
        just_finished = conditions.is_finished(plan.status) and not conditions.is_finished(job.status)
        # While children wait for another reason, nothing is looked at, however long that is due.
        next_check_in = self._applier.next_check_in(parent, plan.create) if children is None else None
        due = _earliest(due, children, next_check_in)
        return Outcome(0 if just_finished or is_freed else due)

    async def _write_status(self, kind: JobKind[Any], row: JobRow, job: Job, plan: Plan) -> float | None:
        """Write the status, then record its events. The seconds until the next reconcile is due, None if this one has seen to everything."""
        wait = self._may_wait_for(row, job, plan.status)
        if wait:
            self._tell_of(kind, row, plan)
            return wait
        try:
            await self._status.write(row, job, plan.status)
        except errors.NotFound:
            self._jobs.remove(row)  # the job went meanwhile; its children go with it
            return 0
        except (errors.ServerError, aiohttp.ClientError, TimeoutError, OSError, asyncio.CancelledError):
            self._untold[row.uid] = plan
            raise
        self._untold.pop(row.uid, None)
        self._waiting.forget(row.uid)
        self._tell_of(kind, row, plan)
        latest = self._jobs.get(row.namespace, row.name)
        if latest is not None and latest is not row and differs_beside_status(row, latest):
            return 0  # the writer has met a newer version of the job, and put it into the store: its watch reports no change any more
        return None

    def _may_wait_for(self, row: JobRow, job: Job, status: JobStatus | None) -> float:
        """Seconds that a changed status may wait, 0 if it is written now."""
        if status is None or not differs(job, status) or not may_wait(*map(on_wire, (job.status, status))):
            return 0.0
        return self._waiting.hold(row.uid, row.status, status)

    def _tell_late(self, kind: JobKind[Any], row: JobRow, job: Job) -> None:
        """A status whose answer was lost turns out to be written: its events and counts are still owed."""
        plan = self._untold.get(row.uid)
        if plan is not None and plan.status is not None and not differs(job, plan.status):
            del self._untold[row.uid]
            self._tell_of(kind, row, plan)

    def _tell_of(self, kind: JobKind[Any], row: JobRow, plan: Plan) -> None:
        self._teller.happened(_subject(kind, row), plan.events)
        for count in plan.counts:
            if count is not Count.DELETED:
                self._counter(kind, row.namespace, count)

    async def _tell_more(self, row: JobRow, decide: Callable[[JobKind[Any], Job], Plan]) -> None:
        """Write what is to be said of a job since its children have met with something, over its newest status."""
        latest = self._jobs.get(row.namespace, row.name)
        if latest is None or latest.uid != row.uid:
            return
        job, _ = parse(latest, self._kind.model, self._kind.resource.kind)
        kind = self._kind.variant(job, self._sources.of(row.uid, row.namespace))
        await self._write_status(kind, latest, job, decide(kind, job))

    async def _delete_job(self, kind: JobKind[Any], row: JobRow) -> None:
        """Delete it in the very version that was decided for: a server that was restored meanwhile may have it unfinished.

        Raises:
            ApiError: a Conflict if the server has it in another version.
        """
        subject, (told, failed) = _subject(kind, row), kind.ttl_event_reasons
        place = self._kind.resource, row.namespace, row.name
        try:
            await self._client.delete(*place, uid=row.uid, resource_version=str(row.resource_version))
        except errors.NotFound:
            self._jobs.remove(row)  # the watch may have lost the event that says so
            return
        except errors.Conflict:
            await self._read(row)
            raise
        except errors.ApiError as error:
            self._teller.happened(
                subject, [Event(Severity.WARNING, failed, f"Error deleting: {error.message}")]
            )
            raise
        # A restored server may have the job again in the same version: then it is to be deleted again.
        self._jobs.amend(row)
        self._teller.happened(subject, [Event(Severity.NORMAL, told, f"Deleted job: {row.name}")])
        self._counter(kind, row.namespace, Count.DELETED)

    async def _read(self, row: JobRow) -> JobRow | None:
        """The job as the server has it, None if it is gone. The store has it so as well then, whatever its watch still says.

        Raises:
            Conflict: the server has been set back to before what the watch has reported, and the watch has yet to learn of it.
        """
        try:
            newest = job_from_json(await self._client.get(self._kind.resource, row.namespace, row.name))
        except errors.NotFound:
            self._jobs.remove(row)
            return None
        if newest.resource_version < row.resource_version:
            text = f"{self._kind.resource.plural} {row.name!r} is older on the server than it was"
            raise errors.Conflict(409, "Conflict", text)
        self._jobs.put(newest)
        return newest

    async def _ask_server(self, row: JobRow) -> None:
        """Read the job's children from the server itself, past the caches."""
        for resource, cache in self._caches.items():
            answer = await self._client.list(resource, row.namespace, params=cache.selector(row.name))
            for raw in _decode_items(answer).items:
                try:
                    cache.store.put(cache.decode(raw))
                except (msgspec.DecodeError, ValueError) as error:
                    log.error("object not understood", resource=resource.plural, error=str(error))
        self._expectations.asked_server(row.uid)


def _subject(kind: JobKind[Any], row: JobRow) -> Subject:
    return _subject_of(kind, Key(row.namespace, row.name), row.uid)


def _subject_of(kind: JobKind[Any], key: Key, uid: str) -> Subject:
    resource, source = kind.resource, kind.voice.source or kind.controller_name
    return Subject(resource.api_version, resource.kind, key.namespace, key.name, uid, source)


def _obstacles(kind: JobKind[Any], error: object) -> list[tuple[Event | None, str]]:
    """What the status says of children that cannot be made until somebody has done something, and an event where none was recorded yet."""
    voice = kind.voice
    if isinstance(error, errors.Forbidden) and voice.lacks and (event := voice.lacks(error.message)):
        return [(event, event.message)]
    if isinstance(error, (errors.Forbidden, errors.Invalid)):
        return [(None, error.message)]
    told: list[tuple[Event | None, str]] = []
    for one in (error, *error.beside) if isinstance(error, Occupied) else ():
        if one.is_foreign and voice.taken is None:
            continue
        if one.is_foreign and voice.taken:
            what = f"delete the {one.resource.kind} {one.name}, or give the {kind.resource.kind} another name"
            told.append((voice.taken(one.resource.kind, one.name), f"{one.message}: {what}"))
        else:
            event = Event(Severity.WARNING, f"{kind.resource.kind}HeldUp", one.message)
            told.append((event, one.message))
    return told


def _pods(snapshot: Snapshot) -> Pods:
    phases = [pod.phase for pod in (*snapshot.pods, *snapshot.batch_pods)]
    if not phases:
        return Pods.NONE
    return Pods.WAITING if "Pending" in phases else Pods.STARTED


def _creates(plan: Plan) -> bool:
    """Whether children are made that are not there."""
    return any(child.upkeep is Upkeep.ONCE for child in plan.create)


def has_run(status: JobStatus | None) -> bool:
    """Whether the job was ever Running, as far as its conditions tell: one that never did does not run since it was created."""
    given = (status or JobStatus()).conditions or ()
    types = (ConditionType.RUNNING, ConditionType.CREATED, ConditionType.RESTARTING)
    running, created, restarting = (conditions.find(given, one) for one in types)
    if restarting or running is None or running.status == conditions.TRUE:
        return bool(restarting or running)
    return created is None or running.last_transition_time != created.last_transition_time


def is_queued(job: Job) -> bool:
    """Whether Kueue may manage the job: one of its labels or annotations says so, or the job is suspended.

    Kueue suspends a job without a queue, too, if it is set up to (``manageJobsWithoutQueueName``), and writes nothing else into it.
    """
    keys = (*(job.metadata.labels or ()), *(job.metadata.annotations or ()))
    return bool(job.spec.policy.suspend) or any(key.startswith(KUEUE_PREFIX) for key in keys)


def was_held_up(job: Job) -> bool:
    """Whether the last that a job's status says is that somebody has to do something before it can go on."""
    running = conditions.find((job.status or JobStatus()).conditions or (), ConditionType.RUNNING)
    return running is not None and running.reason == f"{job.kind}HeldUp"


def _earliest(*seconds: float | None) -> float | None:
    return min((one for one in seconds if one is not None and one != NEVER), default=None)
