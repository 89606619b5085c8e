"""Plans a reconcile from a job and its observed children. Pure; every decision about a job is made here.

Order of the decisions: finished, suspended, valid, limits, then for each pod whether it is missing, lost or surplus, and the verdict.

Source: training-operator 1.9, pkg/controller.v1/common/job.go, ReconcileJobs.
"""

import dataclasses
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any, cast

from api import conditions
from api.children import Owned, Pod, Service
from api.job import ConditionType, Job, JobCondition, JobStatus, ReplicaStatus
from api.labels import CHECKPOINT_DIR
from api.meta import PODS, SERVICES, Resource
from controller.domain import (
    Child,
    Count,
    Counts,
    Deletion,
    Event,
    FailureReason,
    Plan,
    Present,
    Problem,
    Role,
    Severity,
    Snapshot,
    Verdict,
    earliest,
    limited,
    no_effect_text,
)
from controller.kind import JobKind, Options, Replicas, Roles
from controller.kind.idle import is_blocked, is_waiting_for_gang
from controller.kind.reasons import ConditionReason, EventReason
from controller.kind.status_builder import StatusBuilder
from controller.policy import (
    attempts,
    checkpoints,
    cleanup,
    count,
    gang,
    hangs,
    in_place,
    limits,
    nodes,
    pending,
    recovery,
    replacement,
    services,
    success,
    troubles,
    validation,
    wall_clock,
)
from controller.policy.restart import Reaction, reaction


def decide(
    kind: JobKind[Any],
    job: Job,
    snapshot: Snapshot,
    now: datetime,
    options: Options,
    malformed: Sequence[Problem] = (),
) -> Plan:
    """Plan one reconcile of a job.

    ``malformed`` are the fields of the spec that could not be parsed; ``job`` lacks them.
    """
    flow, normal = kind.flow or _Roles(cast(Replicas[Any], kind)), kind.normal(job)
    options = services.decided(kind, normal, snapshot.pods, options)
    policy, status = normal.spec.policy, job.status
    snapshot = nodes.with_losses(policy, status, snapshot, now)
    failed = snapshot
    if snapshot.troubles_since and not conditions.is_finished(status):
        failed = troubles.with_failures(policy, kind.roles(normal), snapshot, now)
    plan = flow.decide(normal, failed, now, options, malformed)
    if (
        snapshot.hang
        and not conditions.is_finished(plan.status)
        and not hangs.match(normal, roles := kind.roles(normal), snapshot.hang)
    ):
        plan = hangs.fail(normal, roles, snapshot.hang, StatusBuilder(kind, normal, now))
    plan = hangs.with_first_observation(normal, troubles.in_time(policy, snapshot, plan, now))
    if nodes.needs_nodes(policy):
        plan = nodes.applied(plan, policy, status, snapshot)
    if CHECKPOINT_DIR in (job.metadata.annotations or {}):
        create = tuple(checkpoints.with_directory(job, child) for child in plan.create)
        plan = dataclasses.replace(plan, create=create)
    return _with_wall_clock(kind, normal, snapshot, plan, now, options.gang_scheduler)


def problems(kind: JobKind[Any], job: Job, options: Options) -> list[Problem]:
    """Return why a job cannot run, or, after its start, why a change of its spec has no effect; empty if it is valid."""
    normal = kind.normal(job)
    return _problems(kind, normal, services.decided(kind, normal, (), options))


def _problems(kind: JobKind[Any], normal: Job, options: Options) -> list[Problem]:
    """Return the problems of a job with the fields that all kinds share; its Services are decided."""
    roles = kind.roles(normal)
    if flow := kind.flow:
        own, pods = flow.problems(normal, options), flow.first_pods(normal, options)
    else:
        replicas = cast(Replicas[Any], kind)
        own, pods = replicas.problems(normal, options), in_place.first_pods(replicas, normal, options)
    return validation.spec_problems(normal, roles, options, own, pods, has_flow=flow is not None)


def refuse(kind: JobKind[Any], job: Job, problem: Problem, now: datetime) -> Plan:
    """Plan the failure of a job because the API server will never accept one of its children."""
    plan = (kind.flow or _Roles(cast(Replicas[Any], kind))).refuse(job, problem, now)
    return _with_wall_clock(kind, kind.normal(job), Snapshot(), plan, now)


def report_blocked(
    kind: JobKind[Any], job: Job, blockers: Sequence[tuple[Event | None, str]], now: datetime
) -> Plan:
    """Plan the status and the events of a job that is blocked until somebody acts as the texts describe."""
    builder = StatusBuilder(kind, job, now)
    builder.blocked("; ".join(text for _, text in blockers))
    for event, _ in blockers:
        if event:
            builder.record_event(event.severity, event.reason, event.message, once=event.message)
    return _with_wall_clock(kind, kind.normal(job), Snapshot(), builder.plan(), now)


def unreadable(kind: JobKind[Any], job: Job, event: Event, now: datetime) -> Plan:
    """Plan the status and the event of a job that is not planned further, because a part of it cannot be parsed."""
    builder = StatusBuilder(kind, job, now)
    builder.unreadable(event.message)
    builder.record_event(event.severity, event.reason, event.message, once=event.message)
    return builder.plan()


def _with_wall_clock(
    kind: JobKind[Any],
    job: Job,
    snapshot: Snapshot,
    plan: Plan,
    now: datetime,
    scheduler: str = "",
) -> Plan:
    """Return the plan with the wall clock in its status, if the job has one and the clock is to be written."""
    status, stored = plan.status, job.status
    if status is None or not wall_clock.is_kept(job.spec.policy):
        return plan
    name = kind.resource.kind
    view = wall_clock.view(
        stored,
        status,
        snapshot,
        sum(role.replicas for role in kind.roles(job).values()),
        is_held=gang.is_waiting(scheduler, snapshot)
        or is_blocked(name, status)
        or is_waiting_for_gang(name, status),
        created=job.metadata.creation_timestamp,
        now=now,
    )
    before = stored.wall_clock if stored else None
    clock = wall_clock.advanced(before, view)
    if clock is before or (status == stored and not wall_clock.must_be_written(before, clock)):
        return plan
    return dataclasses.replace(plan, status=status.model_copy(update={"wall_clock": clock}))


@dataclass(frozen=True, slots=True)
class _Roles:
    """The planning functions of the kinds that have none of their own."""

    kind: Replicas[Any]

    def decide(
        self, job: Job, snapshot: Snapshot, now: datetime, options: Options, malformed: Sequence[Problem]
    ) -> Plan:
        return _Planner(self.kind, job, snapshot, options, StatusBuilder(self.kind, job, now), now).plan(
            malformed
        )

    def refuse(self, job: Job, problem: Problem, now: datetime) -> Plan:
        builder = StatusBuilder(self.kind, job, now)
        text = _unrunnable_text(job.kind, [problem])
        builder.failed(text, Severity.WARNING, ConditionReason.FAILED_VALIDATION, FailureReason.INVALID)
        return builder.plan()


@dataclass(frozen=True, slots=True)
class _Observation:
    """The result of the rules for each pod of the roles."""

    counts: Mapping[str, Counts]
    """Without the failed pods that a rule of the failure policy ignores."""
    lost: tuple[str, ...]
    """Roles with more lost pods than the status contains."""
    replace: Mapping[str, tuple[Pod, ...]]
    """Failed pods to replace, by role, including those that are being deleted."""
    permanent: str
    """The first role with a pod whose exit code ends the job."""
    roles: Roles
    """The roles with the restart policies that apply: a rule of the failure policy may replace pods whose role's policy would not.

    Their replicas do not include ignored pods.
    """
    decisive: recovery.Match | None
    """The failure that ends the job or its attempt by the failure policy."""
    ignored: frozenset[str]
    """UIDs of the failed pods that a rule ignores."""
    filled: Mapping[str, count.Slots]
    """The pods by role and index."""


@dataclass(slots=True)
class _Planner:
    """Plans one reconcile of one job, and builds its status."""

    kind: Replicas[Any]
    job: Job
    snapshot: Snapshot
    options: Options
    builder: StatusBuilder
    now: datetime
    roles: Roles = field(default_factory=dict[str, Role])
    """Empty until the job is known to be valid and not suspended."""
    pods: Mapping[str, Mapping[int, Pod]] = field(init=False)
    """By the label of their role and their index."""
    services: Mapping[str, Mapping[int, Service]] = field(init=False)
    """In the same way."""

    def __post_init__(self) -> None:
        self.pods = count.by_role(self.snapshot.pods)
        self.services = count.by_role(self.snapshot.services)

    def plan(self, malformed: Sequence[Problem]) -> Plan:
        kind, job, snapshot, builder = self.kind, self.job, self.snapshot, self.builder
        policy, options = job.spec.policy, self.options
        if conditions.is_finished(builder.status):
            return self._finished()
        builder.created()
        stopping = conditions.is_true(builder.status, ConditionType.SUSPENDED) and snapshot.pods
        if policy.suspend or stopping:
            return self._suspended()
        invalid = [*malformed] or _problems(kind, job, options)
        if invalid:
            _record_problems(job, invalid, builder)
        if invalid and (malformed or not _is_under_way(builder)):
            return builder.plan()
        if builder.resumed():
            # Stored before there is a pod: a reconcile that still reads the suspension would delete the pod as one from before it.
            return builder.plan(requeue_after_seconds=0)
        roles = self.roles = kind.roles(job)
        over = limits.exceeded(policy, job.metadata.name, roles, snapshot, builder.status, self.now)
        if over:
            is_late = not limits.out_of_tries(policy, limits.restarts(roles, snapshot.pods, builder.status))
            builder.failed(over, cause=FailureReason.DEADLINE if is_late else None)
            return builder.plan()
        if waits := attempts.begin(job, snapshot, builder, kind.while_idle(job)):
            return waits
        if gang.is_waiting(options.gang_scheduler, snapshot):
            builder.waits()
            if builder.status.start_time is None and not snapshot.pods:
                wait = self._gang_wait()
                self._record_wait(wait.message)
                return builder.plan(create=self._job_children(), requeue_after_seconds=wait.due_seconds)
        builder.started()
        in_place.warn(policy, options, builder)
        by_label = {role.label: role for role in roles.values()}
        placed = ((by_label[pod.role], pod) for pod in snapshot.pods if pod.role in by_label)
        if restarted := in_place.record(job, placed, builder):
            return restarted
        observed = self._observe_roles()
        verdict = self._verdict(observed)
        self._record_missed_running()
        if (decisive := observed.decisive) and not verdict.succeeded:
            if invalid and decisive.action in recovery.RESTARTS:
                # No pod of a new attempt could be created. The restart follows when the spec is valid.
                return builder.plan(requeue_after_seconds=_deadline_in(job, builder))
            return attempts.end(job, decisive, builder, snapshot.all_pods)
        if _record_end(job, observed, verdict, builder):
            return builder.plan()
        if invalid:
            return builder.plan(requeue_after_seconds=_deadline_in(job, builder))
        replicas = self._replicas()
        if late := pending.checked(job, builder, replicas):
            return late
        return pending.in_time(policy, builder, replicas, self._keep_running(observed, verdict))

    def _replicas(self) -> list[pending.Replica]:
        """Return the pods that must run in time; none if the job need not, or waits for its gang."""
        kind, job, snapshot, options = self.kind, self.job, self.snapshot, self.options
        is_waiting = gang.is_waiting(options.gang_scheduler, snapshot)
        if job.spec.policy.pending_timeout_seconds is None or is_waiting:
            return []
        pods = {pod.name: pod for pod in snapshot.pods}
        tried = bool(pods) or snapshot.is_blocked
        due = {role.name for role in self.roles.values() if kind.can_create(job, role, snapshot, options)}
        return [
            pending.Replica(role.name, child.name, pods.get(child.name), tried and role.name in due)
            for role, _, child in kind.wanted(job, self.roles, options, Present())
            if child.resource == PODS
        ]

    def _observe_roles(self) -> _Observation:
        counted: dict[str, Counts] = {}
        deciding: dict[str, Counts] = {}
        slots: dict[str, count.Slots] = {}
        replace: dict[str, tuple[Pod, ...]] = {}
        permanent = ""
        matches: list[recovery.Match] = []
        roles = dict(self.roles)
        policy = self.job.spec.policy.failure_policy
        for role in self.roles.values():
            before = self.builder.before(role.name)
            filled = slots[role.name] = count.slots(role, self.pods)
            counted[role.name] = deciding[role.name] = count.counts(role, filled, before, role.container)
            for pod in filled.values():
                if pod.exits or pod.troubles:
                    _record_pod_events(role, pod, self.builder)
            reactions = {
                pod: reaction(role.restart_policy, pod, role.container)
                for pod in filled.values()
                if pod.phase == "Failed"
            }
            if policy:
                found = attempts.matches(
                    policy, self.job.metadata.name, role, filled, counted[role.name].vanished
                )
                matches += found
                reactions |= recovery.reactions(filled.values(), found)
                roles[role.name], deciding[role.name] = recovery.adjusted(
                    role, counted[role.name], filled.values(), found
                )
            if any(what is Reaction.FAIL and not pod.deleting for pod, what in reactions.items()):
                permanent = permanent or role.name
            replace[role.name] = tuple(pod for pod, what in reactions.items() if what is Reaction.REPLACE)
        matches += hangs.ending(self.job, self.roles, self.snapshot.hang)
        counts = self.kind.counted(counted)
        lost = tuple(
            name
            for name, count in counts.items()
            if count.failed + count.vanished > _failed(self.builder, name)
        )
        self.builder.count_roles(self.roles, counts)
        return _Observation(
            counts=self.kind.counted(deciding) if matches else counts,
            lost=lost,
            replace=replace,
            permanent=permanent,
            roles=roles,
            decisive=recovery.decisive(matches),
            ignored=attempts.record_ignored(matches, self.builder),
            filled=slots,
        )

    def _verdict(self, observed: _Observation) -> Verdict:
        """Return the verdict of the kind's rule, in which the success policy decides about success if there is one.

        A job that cannot succeed without the pods that a rule ignores has failed.
        """
        kind, job, roles, counts = self.kind, self.job, observed.roles, observed.counts
        if policy := job.spec.policy.success_policy:
            verdict = kind.completion_rule(job, roles, success.unfinished(counts))
            pods = self.roles, observed.filled, observed.ignored
            if number := success.first_met(policy, *pods):
                text = f"{job.kind} {job.metadata.name} is successfully completed: rule {number} of successPolicy is met."
                return dataclasses.replace(verdict, succeeded=text)
            can_succeed = not observed.ignored or success.can_be_met(policy, *pods)
        else:
            verdict = kind.completion_rule(job, roles, counts)
            can_succeed = (
                not observed.ignored or kind.completion_rule(job, roles, success.best(roles)).succeeded != ""
            )
        if can_succeed:
            return verdict
        text = f"job {job.metadata.name} has failed because it cannot succeed without the failed pods that its failurePolicy ignores."
        return dataclasses.replace(verdict, failed=text, reason=ConditionReason.FAILURE_POLICY)

    def _record_missed_running(self) -> None:
        """A job whose pods have run and finished before a reconcile observed them was Running, too; the pods' times say since when.

        Differs: the original goes from Created to the end. See docs/decisions/0010-status-writes.md.
        """
        conditions_ = self.builder.status.conditions or ()
        if any(
            conditions.find(conditions_, type_) for type_ in (ConditionType.RUNNING, ConditionType.RESTARTING)
        ):
            return
        ran = sorted(
            (done.started_at, role.name)
            for role in self.roles.values()
            for pod in count.slots(role, self.pods).values()
            if (done := pod.exit_of(role.container)) and done.started_at
        )
        active = dict.fromkeys((role.name for role in self.roles.values()), 0)
        for moment, started in groupby(ran, key=itemgetter(0)):
            for _, name in started:
                active[name] += 1
            running = self.kind.completion_rule(
                self.job, self.roles, {name: Counts(active=many) for name, many in active.items()}
            ).running
            if running:
                self.builder.running(running, since=moment)
                return

    def _keep_running(self, observed: _Observation, verdict: Verdict) -> Plan:
        """Replace lost pods, create missing children, delete surplus ones, and record whether the job restarts or runs."""
        name = self.job.metadata.name
        replaced = {
            role: f"job {name} is restarting because {role} replica(s) failed."
            for role, pods in observed.replace.items()
            if pods
        }
        for role in observed.lost:
            if role in replaced:
                self.builder.record_restart(replaced[role])
        if verdict.restarting and observed.lost and verdict.restarting not in replaced.values():
            self.builder.record_restart(verdict.restarting)
        losing = any(count.failed for count in observed.counts.values())
        failed = [pod for pods in observed.replace.values() for pod in pods]
        held = replacement.described(self.snapshot.failures, failed, self.builder.now)
        is_replacing = conditions.is_true(self.builder.status, ConditionType.RESTARTING) and any(
            pod.deleting for pods in observed.filled.values() for pod in pods.values()
        )
        if verdict.restarting and (losing or not verdict.running):
            self.builder.restarting(next(iter(replaced.values()), verdict.restarting), held)
        elif (
            verdict.running
            and not is_replacing
            and not in_place.is_restarting(self.builder.status, self.snapshot.pods, self.builder.now)
        ):
            self.builder.running(verdict.running)
            self.builder.update(recovery.recovered(self.builder.status, self.builder.now))
        deletions, waiting = self._pods_to_replace(observed)
        if not self.snapshot.is_blocked:
            self.builder.unblocked()
        wait = self._gang_wait()
        waits_for = self.kind.waits_for(self.job, self.snapshot, self.builder.now, self.options)
        self._record_wait(wait.message, waits_for)
        due_in = earliest(
            wait.due_seconds,
            replacement.next_due_in(self.snapshot.failures, failed, self.builder.now),
            _deadline_in(self.job, self.builder),
            in_place.due_in(self.builder.status, self.builder.now),
            self.kind.due_in(self.job, self.snapshot, self.builder.now, self.options),
        )
        makeable = {
            name
            for name, role in self.roles.items()
            if self.kind.can_create(self.job, role, self.snapshot, self.options)
        }
        whole = self._job_children()
        missing, is_partial = limited(self._missing_children(makeable), self.options.most_missing)
        return self.builder.plan(
            create=whole + missing,
            delete=deletions + self._surplus_children(),
            requeue_after_seconds=0 if waiting else due_in,
            again=len(makeable) < len(self.roles),
            is_partial=is_partial,
        )

    def _gang_wait(self) -> gang.GangWait:
        scheduler, status = self.options.gang_scheduler, self.builder.status
        return gang.gang_wait(scheduler, self.job, status, self.snapshot, self.builder.now)

    def _record_wait(self, gang_message: str, message: str = "") -> None:
        """A blocked job reports that instead: it may have no PodGroup."""
        if not self.snapshot.is_blocked:
            self.builder.waits_for_start(gang_message, message)

    def _pods_to_replace(self, observed: _Observation) -> tuple[tuple[Deletion, ...], bool]:
        """Return the failed pods to delete now, and whether others must wait until the status contains them.

        A replica that fails repeatedly keeps its failed pod until its pause is over. A failure is stored before its pod is deleted, so that it
        is reported and counted once. For jobs with a limit, the status also stores which pods ``restarts`` has counted.
        """
        deletions: list[Deletion] = []
        waiting = False
        for role, pods in observed.replace.items():
            before = ((self.job.status and self.job.status.replica_statuses) or {}).get(
                role
            ) or ReplicaStatus()
            left = 0
            if observed.ignored:
                left = sum(pod.uid in observed.ignored for pod in observed.filled[role].values())
            counted, known = before.replacing or (), min(max((before.failed or 0) - left, 0), len(pods))
            fresh = [pod for pod in pods if pod.uid not in counted]
            if self.job.spec.policy.backoff_limit is not None and self.options.keeps_ledger:
                self.builder.use_restarts(
                    role, sum(1 + pod.restarts for pod in fresh), [pod.uid for pod in pods]
                )
                ready = [pod for pod in pods if pod.uid in counted]
            else:
                ready = list(pods)
            if role in observed.lost:
                self.builder.counted += [Count.RESTARTED] * (len(pods) - known)
                ready = []
            deletions += [
                Deletion(PODS, pod.name, pod.uid)
                for pod in ready
                if not (
                    pod.deleting or replacement.wait_seconds(self.snapshot.failures, pod, self.builder.now)
                )
            ]
            waiting = waiting or len(ready) < len(pods)
        return tuple(deletions), waiting

    def _job_children(self) -> tuple[Child, ...]:
        """Return the children of the job as a whole: its PodGroup, and the extra children of the kind."""
        scheduler = self.options.gang_scheduler
        extras = [*self.kind.extras(self.job, self.snapshot, self.builder.now, self.options)]
        if agents := in_place.Agents.of(self.kind, self.job, self.roles, self.options):
            extras += agents.children()
        if not scheduler:
            return tuple(extras)
        later = self.kind.later(self.job, self.snapshot, self.options)
        return (
            *gang.group(scheduler, self.kind.resource, self.job, self.roles, self.snapshot, later=later),
            *extras,
        )

    def _missing_children(self, makeable: Container[str]) -> Iterator[Child]:
        """Yield the missing children of these roles; none while the gang waits.

        Differs: only indices below ``replicas`` are filled, so a role of zero has no pod. See docs/decisions/0008-pods-and-replicas.md.
        """
        scheduler = self.options.gang_scheduler
        if gang.is_waiting(scheduler, self.snapshot):
            return
        later = self.kind.later(self.job, self.snapshot, self.options) if scheduler else ()
        membership = gang.Membership(scheduler, self.job, self.roles, self.snapshot, later)
        agents = in_place.Agents.of(self.kind, self.job, self.roles, self.options)
        present = Present(self.pods, self.services)
        for role, _, child in self.kind.wanted(self.job, self.roles, self.options, present):
            if role.name not in makeable:
                continue
            if child.resource == PODS:
                self._record_template_warnings(role)
                if scheduler:
                    child = membership.of(role, child)
                child = replacement.marked(self.snapshot.failures, child)
                if recovery.has_attempts(self.job.spec.policy, self.builder.status):
                    child = recovery.marked(child, self.builder.status)
                if agents:
                    child = agents.added(child, role, self.builder.status)
            yield child

    def _surplus_children(self) -> tuple[Deletion, ...]:
        """Return pods and Services beyond the replicas of their role, and those of roles that the spec no longer has."""
        sizes = {role.label: role.replicas for role in self.roles.values()}
        rows: tuple[tuple[Resource, Mapping[str, Mapping[int, Owned]]], ...] = (
            (PODS, self.pods),
            (SERVICES, self.services),
        )
        return tuple(
            Deletion(resource, child.name, child.uid)
            for resource, children in rows
            for label, of_role in children.items()
            if max(of_role) >= sizes.get(label, 0)
            for index, child in of_role.items()
            if index >= sizes.get(label, 0) and not child.deleting
        )

    def _finished(self) -> Plan:
        """Clean up by policy, and delete the job when its TTL has expired.

        A job that hung or exceeded a limit, ``pendingTimeoutSeconds`` included, or whose children the API server refused, keeps no children, whatever
        its policy.

        Source: training-operator 1.9, pkg/controller.v1/common/job.go, ReconcileJobs.
        """
        policy = self.job.spec.policy
        failure = conditions.find(self.builder.status.conditions or (), ConditionType.FAILED)
        if conditions.is_true(self.builder.status, ConditionType.SUCCEEDED):
            self.builder.fold_active()
        if failure and _leaves_nothing(self.job, self.builder.status, failure):
            deletions = cleanup.everything(self.snapshot)
        else:
            wanted = cleanup.clean_pod_policy(
                policy, self.builder.status, cleans_failed=self.options.clean_finished_pods
            )
            deletions = cleanup.after_finish(wanted, self.snapshot)
        left = cleanup.expires_in(policy, self.builder.status, self.builder.now)
        if left is not None and left <= 0:
            self.builder.counted.append(Count.DELETED)
            return self.builder.plan(delete_job=True)
        return self.builder.plan(
            create=tuple(self.kind.while_idle(self.job)),
            delete=deletions + self._delete_group(),
            requeue_after_seconds=left,
        )

    def _suspended(self) -> Plan:
        """Delete all pods while the job is suspended. A resumed job stays here until the last earlier pod is gone.

        Differs: ``active`` decreases, and so frees quota, when the pods are gone, not before. The original resumes at once and treats terminating
        pods as failed. See docs/decisions/0008-pods-and-replicas.md.

        Source: training-operator 1.9, pkg/controller.v1/common/job.go, ReconcileJobs.
        """
        left = dict.fromkeys(self.builder.status.replica_statuses or {}, 0)
        for pod in self.snapshot.pods:
            name = next((name for name in left if name.lower() == pod.role), None)
            if name and pod.phase == "Running":
                left[name] += 1
        self.builder.recount_active(left)
        self.builder.suspended()
        if self.snapshot.pods and not conditions.is_true(
            self.job.status or JobStatus(), ConditionType.SUSPENDED
        ):
            # Stored before a pod is deleted: a reconcile that reads no suspension, because it ended meanwhile, would count the pod as lost.
            return self.builder.plan(requeue_after_seconds=0)
        extras = tuple(
            Deletion(child.resource, child.name)
            for child in self.kind.extras(self.job, self.snapshot, self.builder.now, self.options)
            if not child.lasting
        )
        return self.builder.plan(
            create=tuple(self.kind.while_idle(self.job)),
            delete=cleanup.everything(self.snapshot) + extras + self._delete_group(),
        )

    def _delete_group(self) -> tuple[Deletion, ...]:
        """Return the PodGroup to delete, independent of the pods, because it may hold a queue's quota."""
        deletions = gang.remains(self.options.gang_scheduler, self.snapshot)
        for deletion in deletions:
            text = "Job has been terminated. Deleting PodGroup"
            self.builder.record_event(
                Severity.NORMAL, EventReason.JOB_TERMINATED, text, once=f"{deletion.uid}{text}"
            )
        return deletions

    def _record_template_warnings(self, role: Role) -> None:
        word, scheduler = self.kind.settings_word, self.options.gang_scheduler
        is_unnamed = self.kind.warns_of_unnamed_scheduler and not gang.is_named(scheduler, self.roles)
        if scheduler and (is_unnamed or gang.is_elsewhere(scheduler, role)):
            text = "Another scheduler is specified when gang-scheduling is enabled and it will not be overwritten"
            self.builder.record_event(
                Severity.WARNING, f"{word}{EventReason.POD_TEMPLATE_SCHEDULER_NAME}", text, once=text
            )
        spec: Mapping[str, Any] = role.template.get("spec") or {}
        if spec.get("restartPolicy"):
            text = "Restart policy in pod template will be overwritten by restart policy in replica spec"
            self.builder.record_event(
                Severity.WARNING, f"{word}{EventReason.POD_TEMPLATE_RESTART_POLICY}", text, once=text
            )


def _failed(builder: StatusBuilder, role: str) -> int:
    """Return how many failed pods of a role the status contains."""
    before = builder.before(role)
    return (before.failed or 0) if before else 0


def _record_end(job: Job, observed: _Observation, verdict: Verdict, builder: StatusBuilder) -> bool:
    """Return the verdict of the job. One verdict for the whole reconcile: success precedes failure.

    Differs: the original iterates over the roles in random order and may reach both. See docs/decisions/0004-cleanup.md.
    """
    if verdict.succeeded:
        builder.succeeded(verdict.succeeded)
    elif observed.permanent:
        text = f'job "{job.metadata.name}" is failing because "{observed.permanent}" replica(s) failed.'
        builder.failed(text, Severity.WARNING)
    elif verdict.failed:
        is_by_policy = verdict.reason == ConditionReason.FAILURE_POLICY
        severity = Severity.WARNING if is_by_policy else Severity.NORMAL
        builder.failed(verdict.failed, severity, suffix=verdict.reason)
    return conditions.is_finished(builder.status)


def _deadline_in(job: Job, builder: StatusBuilder) -> float | None:
    """Return the seconds until the deadline.

    Differs: the original sets no timer, so nothing happens at its deadlines. See docs/decisions/0003-limits.md.
    """
    return limits.deadline_in(job.spec.policy, builder.status.start_time, builder.now)


def _record_problems(job: Job, found: Sequence[Problem], builder: StatusBuilder) -> None:
    """Record the problems of an invalid job: it fails, with every problem named.

    A job that has started continues, with an event: its pods still count, but none is created, replaced or deleted.
    """
    if _has_started(job.status):
        text = no_effect_text(found)
        builder.record_event(
            Severity.WARNING, f"{job.kind}{ConditionReason.FAILED_VALIDATION}", text, once=text
        )
    else:
        text = _unrunnable_text(job.kind, found)
        builder.failed(text, Severity.WARNING, ConditionReason.FAILED_VALIDATION, FailureReason.INVALID)


def _unrunnable_text(kind: str, found: Sequence[Problem]) -> str:
    return f"{kind} failed validation because {'; '.join(map(str, found))}"


def _record_pod_events(role: Role, pod: Pod, builder: StatusBuilder) -> None:
    """Record events about exit codes and about causes that prevent a pod from running.

    Differs: each is recorded once, even if its numbers change, and exit code 0 never. See docs/decisions/0011-events.md.
    """
    done = pod.exit_of(role.container)
    if done and done.code:
        text = f"Pod: {pod.namespace}.{pod.name} exited with code {done.code}"
        builder.record_event(
            Severity.NORMAL,
            EventReason.EXITED_WITH_CODE,
            text,
            once=f"{pod.uid}{text}{pod.restarts}",
            similar=f"{role.container} {done.code}",
        )
    if pod.deleting:
        return
    for trouble in pod.troubles:
        builder.record_event(
            Severity.WARNING,
            trouble.reason,
            trouble.message,
            once=f"{pod.uid}{trouble.reason}{trouble.similar}",
            similar=trouble.similar,
        )


def _leaves_nothing(job: Job, status: JobStatus, failure: JobCondition) -> bool:
    return limits.was_exceeded(job.metadata.name, failure.message) or cleanup.leaves_nothing(job.kind, status)


def _has_started(status: JobStatus | None) -> bool:
    return status is not None and status.start_time is not None


def _is_under_way(builder: StatusBuilder) -> bool:
    """Return whether the job has started and is not suspended."""
    return _has_started(builder.status) and not conditions.is_true(builder.status, ConditionType.SUSPENDED)
