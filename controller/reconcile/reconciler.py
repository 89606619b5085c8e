"""One reconcile: load the job, observe its children, plan, then write children and status concurrently.

    load → observe → plan → check that the caches lack nothing → apply children, write the status → result

Every reconcile starts from the caches; one that finds nothing to do writes nothing.
"""

import asyncio
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

import aiohttp

from api import conditions
from api.children import Pod
from api.job import ConditionType
from api.meta import Resource
from api.nodes import NodeDomain, NodeInterest, NodeState
from controller.domain import Count, Event, Hang, Key, Plan, Probe, Problem, Severity, Snapshot, WriteMode
from controller.kind import JobKind, Options
from controller.kind.idle import IdleReason, has_run
from controller.kube import errors
from controller.kube.client import Client
from controller.policy import hangs, recovery, removal, replacement, troubles
from controller.policy import nodes as node_policy
from controller.policy.gang import KUBERNETES, VOLCANO, groups_of
from controller.reconcile import plan as planning
from controller.reconcile.apply import MOST_PER_RECONCILE, Applier, Cache
from controller.reconcile.commit import Counter, JobCommitter
from controller.reconcile.events import EventRecorder
from controller.reconcile.gang_queues import GangQueues
from controller.reconcile.job_history import failure_reason
from controller.reconcile.job_metrics import JobMetrics
from controller.reconcile.jobs import JobRow, of_spec
from controller.reconcile.load import LoadedJob, Loader
from controller.reconcile.memory import JobMemories
from controller.reconcile.observe import observe, pods_of, sources_of
from controller.reconcile.ownership import Ownership
from controller.reconcile.parent import Parent, Pods
from controller.reconcile.progress import ProgressMonitor
from controller.reconcile.restart_rules import RestartRules
from controller.reconcile.suspensions import settle_suspension
from controller.reconcile.uncached import NEVER
from controller.reconcile.writes import Occupied, Refused
from controller.runtime import clock
from controller.runtime.nodes import NodeMonitor
from controller.runtime.store import Store
from controller.runtime.workers import ReconcileResult, Terminal
from controller.settings import IN_FLIGHT
from controller.telemetry.metrics.jobs import JobTotals


@dataclass(frozen=True, slots=True)
class _Decision:
    """A plan for a loaded job."""

    loaded: LoadedJob
    pods: tuple[Pod, ...]
    """The pods of the job that it was made from."""
    parent: Parent
    plan: Plan
    creates: bool
    """Whether it creates children that do not exist."""
    restores: bool
    """Whether it creates children, or rewrites children that others have deleted or changed."""
    children: int
    """How many cached children exist."""
    has_lost: bool
    """Whether some of what it restores has existed since the children were last complete."""


class Reconciler:
    """Reconciles the jobs of one kind."""

    def __init__(
        self,
        kind: JobKind[Any],
        client: Client,
        jobs: Store[JobRow],
        caches: Mapping[Resource, Cache],
        events: EventRecorder,
        options: Options,
        counter: Counter,
        memories: JobMemories,
        totals: JobTotals,
        *,
        width: int = IN_FLIGHT,
        nodes: Store[NodeDomain] | None = None,
        answered: Container[str] = (),
        probe: Callable[[Key, Probe], None] = lambda key, probe: None,
        monitor: NodeMonitor | None = None,
        wake: Callable[[Key], None] = lambda key: None,
        is_held: Callable[[JobRow], bool] = lambda row: False,
        progress: ProgressMonitor | None = None,
        now: Callable[[], datetime] = lambda: clock.now(),
    ) -> None:
        """``probe`` probes a pod; the job is reconciled again when ``answered`` contains the pod.

        ``monitor`` calls ``wake`` when nodes of a job that asks about nodes are lost, ``progress`` when a job hangs or progresses again.
        ``is_held`` returns whether a job must be treated as suspended although its spec does not suspend it.
        """
        self._monitor = monitor
        self._progress = progress
        self._wake = wake
        self._probe = probe
        self._now = now
        self._kind = kind
        stores = {resource: cache.store for resource, cache in caches.items()}
        self._sources = sources_of(stores, options, nodes, answered)
        self._queues = GangQueues(client, self._sources.groups if options.gang_scheduler == VOLCANO else None)
        self._restart_rules = RestartRules(client)
        self._events = events
        self._options = options
        self._applier = Applier(client, caches, events, width=width)
        self._loader = Loader(kind, client, jobs, caches, self._sources, self._applier, memories, is_held)
        self._ownership = Ownership(kind, client, events)
        self._committer = JobCommitter(kind, client, jobs, self._loader, events, counter, totals)
        self._memories = memories
        self._jobs = jobs
        self._metrics = JobMetrics(totals, self._sources, now)

    def record_summaries(self) -> None:
        """Record the events of children that had none of their own: another process will create the rest."""
        for memory in self._memories:
            self._events.record_summaries(memory.events)

    async def reconcile(self, key: Key) -> ReconcileResult:
        """Reconcile one job.

        Raises:
            ApiError, aiohttp.ClientError, TimeoutError: the reconcile must be retried.
        """
        loaded = await self._loader.load(key)
        if loaded is not None and not self._ownership.is_other(loaded):
            took_time = await self._queues.refresh(loaded, self._now())
            took_time = await self._restart_rules.refresh(loaded) or took_time
            loaded = self._loader.reload(loaded) if took_time else loaded
        # No await from here to the plan: job and children are from the same moment.
        if loaded is None:
            return ReconcileResult()
        if self._ownership.is_other(loaded):
            self._metrics.discard(loaded)
            return await self._ownership.leave(loaded)
        loaded.memory.is_managed = True
        self._metrics.begin(loaded)
        try:
            return await self._reconcile(key, loaded)
        finally:
            self._metrics.record(loaded, self._jobs.get(key.namespace, key.name))

    async def _reconcile(self, key: Key, loaded: LoadedJob) -> ReconcileResult:
        if unreadable := [problem for problem in loaded.malformed if not of_spec(problem)]:
            return await self._report_unreadable(loaded, unreadable)
        if self._ownership.needs_correction(loaded):
            return await self._ownership.correct(loaded)
        self._committer.record_late(loaded)
        snapshot = self._observe(loaded)
        if self._monitor is not None:
            failed = node_policy.failed_nodes(loaded.job.spec.policy, loaded.job.status, snapshot)
            if await self._monitor.read_problems(failed):
                return ReconcileResult(0)
            snapshot = self._with_nodes(loaded, snapshot, failed, self._monitor)
        decision = self._decide(loaded, snapshot)
        if await self._is_outdated(decision):
            return ReconcileResult(0)
        for probe in decision.plan.probes:
            self._probe(key, probe)
        self._remember_removed_pods(decision)
        children, due = await self._apply(decision)
        return await self._result(decision, children, due)

    def _observe(self, loaded: LoadedJob) -> Snapshot:
        """Return the job's children and their remembered state."""
        job, row, memory = loaded.job, loaded.row, loaded.memory
        if not conditions.is_finished(job.status):
            warnings = self._kind.warnings(job, self._sources.of(row.uid, row.namespace))
            self._events.record(loaded.parent(), warnings)
        snapshot = observe(self._sources, loaded.kind, Key(row.namespace, row.name), row.uid)
        if memory.pods_deleted_before_end or loaded.is_first:
            deleted = recovery.deleted_before_end(memory.pods_deleted_before_end, snapshot.pods)
            memory.pods_deleted_before_end = deleted
            snapshot = recovery.with_deletions(snapshot, deleted)
        if memory.removed_pods:
            existing = {pod.uid for pod in snapshot.pods}
            memory.removed_pods &= existing
            memory.surplus_pods &= existing
            snapshot = removal.without_results(snapshot, memory.removed_pods)
        if job.spec.policy.suspend:
            memory.failures = {}
        else:
            memory.failures = replacement.observed(
                memory.failures, snapshot.pods, self._now(), is_first=loaded.is_first
            )
        if troubles.has_reason_rules(job.spec.policy):
            pods = snapshot.all_pods
            memory.troubles_since = troubles.observed(memory.troubles_since, pods, self._now())
            snapshot = replace(snapshot, troubles_since=memory.troubles_since)
        memory.is_new = memory.is_new or job.status is None or not job.status.conditions
        return replace(
            snapshot,
            is_blocked=memory.is_blocked,
            failures=memory.failures,
            queue=self._queues.get(row),
            hang=self._hang(loaded, snapshot),
        )

    def _with_nodes(
        self, loaded: LoadedJob, snapshot: Snapshot, failed: Iterable[str], monitor: NodeMonitor
    ) -> Snapshot:
        """Follow the nodes of the job while it has a question about them, and return the snapshot with their states.

        ``failed`` are the nodes whose problems have been read.
        """
        row, job = loaded.row, loaded.job
        kind, policy, status = loaded.kind, job.spec.policy, job.status
        if not node_policy.needs_nodes(policy):
            monitor.unfollow(row.uid)
            return snapshot
        key, uid = Key(row.namespace, row.name), row.uid

        def interest() -> NodeInterest:  # The monitor keeps it, so it must not keep the whole job.
            own, of_batch_jobs = pods_of(self._sources, kind, key, uid)
            return node_policy.interest(policy, status, (*own, *of_batch_jobs), self._now())

        wanted = interest()
        if wanted.suspects or wanted.lost_seconds is not None:
            monitor.follow(row.uid, interest, partial(self._wake, key))
        else:
            monitor.unfollow(row.uid)
        states = {name: NodeState(name, problems=monitor.problems(name)) for name in failed}
        return replace(snapshot, nodes={**states, **monitor.states}, nodes_error=monitor.error)

    def _hang(self, loaded: LoadedJob, snapshot: Snapshot) -> Hang | None:
        """Return the hang of the job, and record why its progress is unknown, if it is."""
        kind, row, job = loaded.kind, loaded.row, loaded.job
        if self._progress is None:
            return None
        if job.spec.policy.progress_deadline_seconds is None:
            self._progress.discard(row.uid)
            return None
        normal = kind.normal(job)
        observed = hangs.observed(normal, kind.roles(normal), snapshot)
        wake = partial(self._wake, Key(row.namespace, row.name))
        state = self._progress.observe(row.uid, observed, wake)
        if state.unread:
            self._events.record(loaded.parent(), [hangs.unread_event(job.kind, state.unread)])
        return state.hang

    def _decide(self, loaded: LoadedJob, snapshot: Snapshot) -> _Decision:
        """Plan for the job, with a suspension that ended unobserved and a status that waits to be written."""
        has_pods = bool(snapshot.pods or snapshot.batch_pods)
        job = settle_suspension(loaded.memory, loaded.as_planned(), has_pods=has_pods)
        options = replace(
            self._options,
            keeps_ledger=self._committer.keeps_ledger,
            container_restart_rules=self._restart_rules.are_stored,
            # Names that are taken would keep the children after them out of a partial plan.
            most_missing=None if loaded.memory.has_taken_names else MOST_PER_RECONCILE,
        )
        plan = planning.decide(loaded.kind, job, snapshot, self._now(), options, loaded.malformed)
        if Count.FAILED in plan.counts and not plan.failure_reason:
            plan = replace(plan, failure_reason=failure_reason(snapshot.batch_pods or snapshot.pods))
        parent = loaded.parent(_pods(snapshot))
        creates = any(child.write_mode is WriteMode.CREATE for child in plan.create)
        rewrites = self._applier.restores(parent, plan.create)
        groups = (snapshot.group,) if snapshot.group else ()
        children = sum(map(len, (snapshot.pods, snapshot.services, snapshot.batch_jobs, groups)))
        has_lost = rewrites or children < loaded.memory.complete_children
        return _Decision(
            loaded, snapshot.pods, parent, plan, creates, creates or rewrites, children, has_lost
        )

    def _remember_removed_pods(self, decision: _Decision) -> None:
        """Remember the pods that the plan deletes and whose end is no failure. Those of a suspended job count as active until they are gone."""
        plan, loaded = decision.plan, decision.loaded
        if not plan.delete or conditions.is_true(plan.status, ConditionType.SUSPENDED):
            return
        memory, roles = loaded.memory, loaded.kind.roles(loaded.kind.normal(loaded.job))
        surplus = removal.surplus(roles, decision.pods)
        removed = removal.removed(surplus, plan.status, decision.pods, plan.delete)
        memory.removed_pods |= removed
        memory.surplus_pods |= surplus & removed

    async def _is_outdated(self, decision: _Decision) -> bool:
        """Return whether the caches lack the job's deletion or children of it; then the plan must be made again.

        Raises:
            ApiError, aiohttp.ClientError, TimeoutError: a read from the server failed.
        """
        loaded = decision.loaded
        row = loaded.row
        is_again = loaded.memory.complete_at_version == row.resource_version and decision.has_lost
        if decision.restores and is_again:
            newest = await self._loader.read(row)
            if newest is None or newest.resource_version != row.resource_version:
                return True
        # The job ran, and the new caches lack pods of it. A pod whose label was removed exists but is not in the caches.
        return (
            loaded.is_first
            and decision.creates
            and has_run(loaded.job.kind, loaded.job.status)
            and await self._applier.find(decision.parent, decision.plan.create)
        )

    async def _apply(self, decision: _Decision) -> tuple[float | BaseException | None, float | None]:
        """Write children and status, concurrently if there are children to write.

        Returns:
            The result of the children (None if all is done, the seconds until more is due, or the error), and the seconds until the next
            reconcile is due, None for never.
        """
        plan, parent, loaded = decision.plan, decision.parent, decision.loaded
        children: float | BaseException | None
        written: float | BaseException | None
        if plan.create or plan.delete:
            children, written = await asyncio.gather(
                self._applier.apply(parent, plan.create, plan.delete, is_partial=plan.is_partial),
                self._committer.write(loaded, plan),
                return_exceptions=True,
            )
            if isinstance(written, BaseException):
                raise written
        else:  # Without children there is no call for them, and two tasks would take a tenth of such a reconcile.
            children = await self._applier.apply(parent, (), (), is_partial=plan.is_partial)
            written = await self._committer.write(loaded, plan)
        if decision.creates and children is None:
            loaded.memory.status.restart()
        return children, _earliest(plan.requeue_after_seconds, written)

    async def _result(
        self, decision: _Decision, children: float | BaseException | None, due: float | None
    ) -> ReconcileResult:
        """Report errors of the children in the status, and return when the job is due again."""
        loaded, plan = decision.loaded, decision.plan
        kind, job, memory = loaded.kind, loaded.job, loaded.memory
        if isinstance(children, Refused):
            if not has_run(job.kind, job.status):
                problem = children.problem
                await self._committer.write_again(
                    loaded, lambda latest: planning.refuse(latest.kind, latest.job, problem, self._now())
                )
                return ReconcileResult(0, failure=Terminal(str(children)))
            # The spec or the conditions of admission changed: running pods continue, and the rest is retried.
            children = children.error
        is_unblocked = children is None and memory.is_blocked
        if is_unblocked:
            memory.is_blocked = False
        if blockers := self._unserved_group(decision, children) or _blockers(kind, children):
            memory.is_blocked = True
            await self._committer.write_again(
                loaded, lambda latest: planning.report_blocked(latest.kind, latest.job, blockers, self._now())
            )
        if isinstance(children, (errors.ApiError, aiohttp.ClientError, TimeoutError, OSError)):
            pause = memory.write_backoff.remaining_seconds(loaded.row.generation)
            return ReconcileResult(_earliest(due, pause), failure=children)
        if isinstance(children, BaseException):
            raise children
        if plan.delete_job:
            await self._committer.delete(loaded)
            return ReconcileResult()
        if children is None and decision.restores:
            memory.complete_at_version = loaded.row.resource_version
            created = sum(child.write_mode is WriteMode.CREATE for child in plan.create)
            memory.complete_children = decision.children + created
        if children is None and plan.again and decision.creates:
            return ReconcileResult(0)
        just_finished = conditions.is_finished(plan.status) and not conditions.is_finished(job.status)
        # While children wait for another reason, none is checked, even if a check is overdue.
        next_check_in = (
            self._applier.next_check_in(decision.parent, plan.create) if children is None else None
        )
        due = _earliest(due, children, next_check_in)
        return ReconcileResult(0 if just_finished or is_unblocked else due)

    def _unserved_group(self, decision: _Decision, error: object) -> list[tuple[Event | None, str]]:
        """Report that the job needs a PodGroup and the API server serves none: a 404 that names no resource.

        One about a missing namespace names it.
        """
        scheduler = self._options.gang_scheduler
        resource = groups_of(scheduler)
        if resource is None or not isinstance(error, errors.NotFound) or error.kind:
            return []
        if not any(
            child.resource == resource and child.write_mode is WriteMode.CREATE
            for child in decision.plan.create
        ):
            return []
        step = (
            f"enable {resource.api_version} and the feature gate GenericWorkload, in Kubernetes 1.37 or newer"
            if scheduler == KUBERNETES
            else f"install the definitions of the scheduler {scheduler}"
        )
        return [(None, f"the API server serves no {resource.plural}.{resource.group}: {step}")]

    async def _report_unreadable(self, loaded: LoadedJob, unreadable: Sequence[Problem]) -> ReconcileResult:
        """Report that a part of the object cannot be parsed; nothing is planned until it changes."""
        job = loaded.job
        text = f"{job.kind} cannot be read: {'; '.join(map(str, unreadable))}"
        event = Event(Severity.WARNING, f"{job.kind}{IdleReason.BLOCKED}", text)
        await self._committer.write(loaded, planning.unreadable(loaded.kind, job, event, self._now()))
        return ReconcileResult(failure=Terminal(text))


def _blockers(kind: JobKind[Any], error: object) -> list[tuple[Event | None, str]]:
    """Report children that cannot be created until somebody acts: in the status, and by an event where none was recorded yet."""
    event_messages = kind.event_messages
    if (
        isinstance(error, errors.Forbidden)
        and event_messages.missing_rights
        and (event := event_messages.missing_rights(error.message))
    ):
        return [(event, event.message)]
    if isinstance(error, (errors.Forbidden, errors.Invalid)):
        return [(None, error.message)]
    blockers: list[tuple[Event | None, str]] = []
    for conflict in (error, *error.beside) if isinstance(error, Occupied) else ():
        if conflict.is_foreign and event_messages.taken is None:
            continue
        if conflict.is_foreign and event_messages.taken:
            what = f"delete the {conflict.resource.kind} {conflict.name}, or give the {kind.resource.kind} another name"
            event = event_messages.taken(conflict.resource.kind, conflict.name)
            blockers.append((event, f"{conflict.message}: {what}"))
        else:
            event = Event(Severity.WARNING, f"{kind.resource.kind}{IdleReason.BLOCKED}", conflict.message)
            blockers.append((event, conflict.message))
    return blockers


def _pods(snapshot: Snapshot) -> Pods:
    phases = [pod.phase for pod in snapshot.all_pods]
    if not phases:
        return Pods.NONE
    return Pods.WAITING if "Pending" in phases else Pods.STARTED


def _earliest(*seconds: float | None) -> float | None:
    return min((value for value in seconds if value is not None and value != NEVER), default=None)
