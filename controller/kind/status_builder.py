"""Builds the new status of a job, with the events and counts that report its changes.

The contract defines the reasons and messages. The builder starts with a copy and never changes the job's own status.

Source: training-operator 1.9, pkg/util/status.go and pkg/common/util/util.go.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from api import conditions
from api.conditions import FALSE, TRUE
from api.job import ConditionType, Job, JobStatus, ReplicaStatus
from api.messages import without_numbers
from api.meta import Resource
from api.names import role_selector
from controller.domain import (
    Child,
    Count,
    Counts,
    Deletion,
    Event,
    FailureReason,
    Plan,
    Probe,
    Role,
    Severity,
    shortened,
)
from controller.kind.idle import IdleReason, has_run, is_blocked, is_waiting_for_gang
from controller.kind.reasons import ConditionReason

LONGEST_MESSAGE = 4096
"""Maximum length of a condition's message, so that the API server can store the status."""


class Named(Protocol):
    """What the builder requires of a job's kind."""

    @property
    def resource(self) -> Resource: ...
    @property
    def controller_name(self) -> str: ...
    @property
    def scalable(self) -> bool: ...


class StatusBuilder:
    """Builds the status of one job. ``now`` is truncated to whole seconds, as in serialized timestamps."""

    def __init__(self, kind: Named, job: Job, now: datetime) -> None:
        self.now = now.replace(microsecond=0)
        self.status = job.status.model_copy() if job.status else JobStatus()
        self.events: list[Event] = []
        self.counted: list[Count] = []
        self.failure_reason: FailureReason | None = None
        self.restart_action = ""
        self._kind = kind.resource.kind
        self._controller = kind.controller_name
        self._scalable = kind.scalable
        self._name = job.metadata.name

    def plan(
        self,
        *,
        create: tuple[Child, ...] = (),
        delete: tuple[Deletion, ...] = (),
        probes: tuple[Probe, ...] = (),
        delete_job: bool = False,
        requeue_after_seconds: float | None = None,
        again: bool = False,
        is_partial: bool = False,
    ) -> Plan:
        """Return the plan that writes this status, records its events and counts, and contains the given actions."""
        return Plan(
            status=self.status,
            events=tuple(self.events),
            counts=tuple(self.counted),
            failure_reason=self.failure_reason or "",
            restart_action=self.restart_action,
            create=create,
            delete=delete,
            probes=probes,
            delete_job=delete_job,
            requeue_after_seconds=requeue_after_seconds,
            again=again,
            is_partial=is_partial,
        )

    def before(self, role: str) -> ReplicaStatus | None:
        """Return the status of a role so far."""
        return (self.status.replica_statuses or {}).get(role)

    def created(self) -> None:
        if not conditions.find(self.status.conditions or (), ConditionType.CREATED):
            self._set(
                ConditionType.CREATED, TRUE, ConditionReason.CREATED, f"{self._kind} {self._name} is created."
            )
            self.counted.append(Count.CREATED)

    def started(self) -> None:
        if self.status.start_time is None:
            self.status.start_time = self.now

    def waits(self) -> None:
        """Record that the scheduler has not admitted the job's gang. The time is written once, not in each reconcile.

        Source: training-operator 1.9, pkg/controller.v1/common/job.go, ReconcileJobs.
        """
        since, started = self.status.last_reconcile_time, self.status.start_time
        if since is None or (started and since <= started):
            self.status.last_reconcile_time = self.now

    def suspended(self) -> None:
        message = f"{self._kind} {self._name} is suspended."
        if conditions.is_true(self.status, ConditionType.RUNNING):
            self._set(ConditionType.RUNNING, FALSE, ConditionReason.SUSPENDED, message)
        if self._set(ConditionType.SUSPENDED, TRUE, ConditionReason.SUSPENDED, message):
            self._record_event(Severity.NORMAL, ConditionReason.SUSPENDED, message)

    def resumed(self) -> bool:
        """Record that the job is not suspended, and return whether that ends a suspension.

        If so, the start time is set anew and earlier pods do not count as lost.
        """
        if not conditions.is_true(self.status, ConditionType.SUSPENDED):
            return False
        message = f"{self._kind} {self._name} is resumed."
        self._set(ConditionType.SUSPENDED, FALSE, ConditionReason.RESUMED, message)
        self._record_event(Severity.NORMAL, ConditionReason.RESUMED, message)
        self.status.start_time = self.now
        self.status.assembled_time = None
        self.recount_active({})
        return True

    def running(self, message: str, since: datetime | None = None) -> None:
        """``since`` is when the job started to run, if that was earlier. A wrong node clock makes no job older than it is."""
        created = conditions.find(self.status.conditions or (), ConditionType.CREATED)
        earliest = (created and created.last_transition_time) or self.now
        self._set(
            ConditionType.RUNNING,
            TRUE,
            ConditionReason.RUNNING,
            message,
            min(max(since or self.now, earliest), self.now),
        )

    def restarting(self, message: str, held: str = "") -> None:
        """Record that the job restarts. ``held`` says which failed pods are replaced later, and when; the message follows its changes.

        A restarting job that waits for its PodGroup continues to say so.
        """
        if not held and self._restart_waits_for_gang:
            return
        text = f"{message} {held}".rstrip()
        self._set(ConditionType.RESTARTING, TRUE, ConditionReason.RESTARTING, text, rewords=bool(held))

    def restart_whole(self, fields: Mapping[str, Any], message: str, *, keeps_pods: bool = False) -> None:
        """Record that the job restarts as a whole. Unless it keeps its pods, no pod of the new attempt exists yet: all counters begin again."""
        self.status = self.status.model_copy(update=dict(fields))
        self._set(ConditionType.RESTARTING, TRUE, ConditionReason.RESTARTING, message, rewords=True)
        self._record_event(Severity.WARNING, ConditionReason.RESTARTING, message)
        self.counted.append(Count.RESTARTED)
        self.restart_action = (self.status.attempts or [])[-1].action or ""
        if keeps_pods:
            return
        self._replace(
            {
                name: ReplicaStatus(selector=role.selector)
                for name, role in (self.status.replica_statuses or {}).items()
            }
        )

    def update(self, fields: Mapping[str, Any]) -> None:
        """Set these fields of the status."""
        if fields:
            self.status = self.status.model_copy(update=dict(fields))

    def succeeded(self, message: str) -> None:
        """Record that the job succeeded. Pods that still run count as succeeded, as in the original."""
        if self._set(ConditionType.SUCCEEDED, TRUE, ConditionReason.SUCCEEDED, message):
            self._record_event(Severity.NORMAL, ConditionReason.SUCCEEDED, message)
            self.counted.append(Count.SUCCESSFUL)
        self._complete()
        self.fold_active()

    def failed(
        self,
        message: str,
        severity: Severity = Severity.NORMAL,
        suffix: str = ConditionReason.FAILED,
        cause: FailureReason | None = None,
    ) -> None:
        """Record that the job failed. ``cause`` is None if pods of it failed.

        Differs: every failure sets completionTime; without one a TTL would never end. See docs/decisions/0004-cleanup.md.
        """
        if self._set(ConditionType.FAILED, TRUE, suffix, message):
            self._record_event(severity, suffix, message)
            self.counted.append(Count.FAILED)
            self.failure_reason = cause
        self._complete()

    def blocked(self, message: str) -> None:
        """Record that a job that does not run yet is blocked; a running job continues."""
        self._idle(IdleReason.BLOCKED, message)

    def unreadable(self, message: str) -> None:
        """Record that no decision about the job is possible, whatever its state. The current condition stays true and its message says so.

        The condition of a finished job does not change.
        """
        if conditions.is_finished(self.status):
            return
        holding = (ConditionType.SUSPENDED, ConditionType.RUNNING, ConditionType.RESTARTING)
        for type_ in holding:
            if conditions.is_true(self.status, type_):
                self._set(type_, TRUE, IdleReason.BLOCKED, message, rewords=True)
                return
        self.blocked(message)

    def unblocked(self) -> None:
        """Record that nothing blocks the job's pods any more; they may still need time to start."""
        if is_blocked(self._kind, self.status):
            self.waits_for(f"{self._kind} {self._name} waits for its pods to run.")

    def waits_for(self, message: str) -> None:
        """Record that pods of the job have not been created, or do not start, for a while."""
        self._idle(IdleReason.WAITING_FOR_PODS, message)

    def waits_for_start(self, gang_message: str, message: str = "") -> None:
        """Record why the scheduler does not start the job's PodGroup, or else what its pods wait for.

        With neither message, a job that waited for its PodGroup only waits for its pods.
        """
        if gang_message:
            self._waits_for_gang(gang_message)
        elif message:
            self.waits_for(message)
        elif is_waiting_for_gang(self._kind, self.status):
            text = f"{self._kind} {self._name} waits for its pods to run."
            self._reword_restart(ConditionReason.RESTARTING, text)
            self.waits_for(text)

    @property
    def _restart_waits_for_gang(self) -> bool:
        return is_waiting_for_gang(self._kind, self.status) and conditions.is_true(
            self.status, ConditionType.RESTARTING
        )

    def _waits_for_gang(self, message: str) -> None:
        """The event is recorded again only if more than numbers changes in the message, as they do whenever a node changes.

        The condition of a restarting job stays true, and its message says what the job waits for.
        """
        before = self.status.conditions
        self._reword_restart(IdleReason.WAITING_FOR_GANG.after_resume, message)
        self._idle(IdleReason.WAITING_FOR_GANG, message)
        if self.status.conditions != before:
            reason = f"{self._kind}{IdleReason.WAITING_FOR_GANG}"
            text = without_numbers(message)
            self.record_event(Severity.WARNING, reason, message, once=f"{reason}{text}", similar=text)

    def _reword_restart(self, suffix: str, message: str) -> None:
        """Say this in the condition of a restarting job, whose times remain those of the restart."""
        changes = {"reason": f"{self._kind}{suffix}", "message": shortened(message, LONGEST_MESSAGE)}
        self.status.conditions = [
            condition.model_copy(update=changes)
            if (condition.type, condition.status) == (ConditionType.RESTARTING, TRUE)
            else condition
            for condition in self.status.conditions or ()
        ]

    def record_restart(self, message: str) -> None:
        self._record_event(Severity.WARNING, ConditionReason.RESTARTING, message)

    def record_event(
        self, severity: Severity, reason: str, message: str, once: str = "", similar: str = ""
    ) -> None:
        self.events.append(Event(severity, reason, message, once, similar))

    def count_roles(self, roles: Mapping[str, Role], counts: Mapping[str, Counts]) -> None:
        """Rewrite the replica statuses. Zero counters are omitted; used restarts are kept.

        Differs: the status omits roles that the spec no longer has, whereas the original keeps their last counters forever. The
        selector of a scalable kind is always present. See docs/reference/differences-from-training-operator.md.
        """
        self.status.replica_statuses = {
            name: ReplicaStatus(
                active=counts[name].active or None,
                succeeded=counts[name].succeeded or None,
                failed=counts[name].failed or None,
                selector=role_selector(self._controller, self._name, role.label) if self._scalable else None,
                restarts=before.restarts if (before := self.before(name)) else None,
                replacing=before.replacing if before else None,
            )
            for name, role in roles.items()
        }

    def use_restarts(self, role: str, count: int, replacing: Sequence[str]) -> None:
        """Add restarts of pods that are about to be deleted, and record which counted pods still exist."""
        statuses = self.status.replica_statuses or {}
        used = ((statuses[role].restarts or 0) + count) or None
        update = {"restarts": used, "replacing": list(replacing) or None}
        self._replace({**statuses, role: statuses[role].model_copy(update=update)})

    def fold_active(self) -> None:
        statuses = self.status.replica_statuses or {}
        for name, status in statuses.items():
            if status.active:
                update = {"active": None, "succeeded": (status.succeeded or 0) + status.active}
                statuses = {**statuses, name: status.model_copy(update=update)}
        self._replace(statuses)

    def recount_active(self, active: Mapping[str, int]) -> None:
        """Set only the active counters."""
        statuses = self.status.replica_statuses or {}
        self._replace(
            {
                name: status.model_copy(update={"active": active.get(name) or None})
                for name, status in statuses.items()
            }
        )

    def _replace(self, statuses: dict[str, ReplicaStatus]) -> None:
        if statuses:
            self.status.replica_statuses = statuses

    def _idle(self, reason: IdleReason, message: str) -> None:
        """Record why the job does not run. Does nothing if the job runs, restarts, is suspended or has finished.

        The true condition stays last, because kubectl shows the last condition as the job's state.
        """
        statuses = (
            ConditionType.RUNNING,
            ConditionType.RESTARTING,
            ConditionType.SUSPENDED,
            ConditionType.SUCCEEDED,
        )
        if not any(conditions.is_true(self.status, type_) for type_ in statuses):
            suffix = reason.after_resume if has_run(self._kind, self.status) else reason.value
            self._set(ConditionType.RUNNING, FALSE, suffix, message, rewords=True)
            given = self.status.conditions or []
            self.status.conditions = sorted(given, key=lambda condition: condition.status == TRUE)

    def _complete(self) -> None:
        if self.status.completion_time is None:
            self.status.completion_time = self.now

    def _set(
        self,
        type_: ConditionType,
        status: str,
        suffix: str,
        message: str,
        at: datetime | None = None,
        *,
        rewords: bool = False,
    ) -> bool:
        """Set a condition, and return whether that changed anything."""
        before = self.status.conditions or []
        text = shortened(message, LONGEST_MESSAGE)
        reason = f"{self._kind}{suffix}"
        after = conditions.merge(before, type_, status, reason, text, at or self.now, rewords=rewords)
        self.status.conditions = after
        return after != before

    def _record_event(self, severity: Severity, suffix: str, message: str) -> None:
        self.events.append(Event(severity, f"{self._kind}{suffix}", message))
