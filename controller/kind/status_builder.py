"""A status being rewritten, with the events and counts that tell of its changes.

The reasons and messages are the contract's. The draft starts as a copy; the job's own status is never touched.

Source: training-operator 1.9, pkg/util/status.go and pkg/common/util/util.go.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from api import conditions
from api.conditions import FALSE, TRUE
from api.job import ConditionType, Job, JobStatus, ReplicaStatus
from api.meta import Resource
from api.names import role_selector
from controller.domain import Child, Count, Counts, Deletion, Event, Plan, Probe, Role, Severity, shortened
from controller.kind.idle import IdleReason, has_run, is_blocked

LONGEST_MESSAGE = 4096
"""Characters of a condition's message: a status that nobody can store tells nobody anything."""


class Named(Protocol):
    """What a draft needs to know of a job's kind."""

    @property
    def resource(self) -> Resource: ...
    @property
    def controller_name(self) -> str: ...
    @property
    def scalable(self) -> bool: ...


class StatusBuilder:
    """What the status of one job shall become. ``now`` is cut to whole seconds, as times on the wire are."""

    def __init__(self, kind: Named, job: Job, now: datetime) -> None:
        self.now = now.replace(microsecond=0)
        self.status = job.status.model_copy() if job.status else JobStatus()
        self.events: list[Event] = []
        self.counted: list[Count] = []
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
    ) -> Plan:
        """Return the plan that writes this status, records its events and counts, and does the rest."""
        return Plan(
            status=self.status,
            events=tuple(self.events),
            counts=tuple(self.counted),
            create=create,
            delete=delete,
            probes=probes,
            delete_job=delete_job,
            requeue_after_seconds=requeue_after_seconds,
            again=again,
        )

    def before(self, role: str) -> ReplicaStatus | None:
        """What the status says of a role so far."""
        return (self.status.replica_statuses or {}).get(role)

    def created(self) -> None:
        if not conditions.find(self.status.conditions or (), ConditionType.CREATED):
            self._set(ConditionType.CREATED, TRUE, "Created", f"{self._kind} {self._name} is created.")
            self.counted.append(Count.CREATED)

    def started(self) -> None:
        if self.status.start_time is None:
            self.status.start_time = self.now

    def waits(self) -> None:
        """The job's gang is not admitted; since when is written once, not in each pass.

        Source: training-operator 1.9, pkg/controller.v1/common/job.go, ReconcileJobs.
        """
        since, started = self.status.last_reconcile_time, self.status.start_time
        if since is None or (started and since <= started):
            self.status.last_reconcile_time = self.now

    def suspended(self) -> None:
        message = f"{self._kind} {self._name} is suspended."
        if conditions.is_true(self.status, ConditionType.RUNNING):
            self._set(ConditionType.RUNNING, FALSE, "Suspended", message)
        if self._set(ConditionType.SUSPENDED, TRUE, "Suspended", message):
            self._record_event(Severity.NORMAL, "Suspended", message)

    def resumed(self) -> bool:
        """Whether that ends a suspension; then the job's clock starts anew, and no pod of before is missed."""
        if not conditions.is_true(self.status, ConditionType.SUSPENDED):
            return False
        message = f"{self._kind} {self._name} is resumed."
        self._set(ConditionType.SUSPENDED, FALSE, "Resumed", message)
        self._record_event(Severity.NORMAL, "Resumed", message)
        self.status.start_time = self.now
        self.recount_active({})
        return True

    def running(self, message: str, since: datetime | None = None) -> None:
        """``since`` is when that began, if it was before now; a node's clock makes no job older than it is."""
        created = conditions.find(self.status.conditions or (), ConditionType.CREATED)
        earliest = (created and created.last_transition_time) or self.now
        self._set(
            ConditionType.RUNNING, TRUE, "Running", message, min(max(since or self.now, earliest), self.now)
        )

    def restarting(self, message: str, held: str = "") -> None:
        """``held`` says which failed pods are replaced later, and when. It is reworded as that changes."""
        text = f"{message} {held}".rstrip()
        self._set(ConditionType.RESTARTING, TRUE, "Restarting", text, rewords=bool(held))

    def succeeded(self, message: str) -> None:
        """The job is done; pods that still run count as succeeded, as the original has it."""
        if self._set(ConditionType.SUCCEEDED, TRUE, "Succeeded", message):
            self._record_event(Severity.NORMAL, "Succeeded", message)
            self.counted.append(Count.SUCCESSFUL)
        self._complete()
        self.fold_active()

    def failed(self, message: str, severity: Severity = Severity.NORMAL, suffix: str = "Failed") -> None:
        """The job has failed.

        Differs: completionTime is set with every failure; without one a TTL could never end. See docs/decisions/0004-cleanup.md.
        """
        if self._set(ConditionType.FAILED, TRUE, suffix, message):
            self._record_event(severity, suffix, message)
            self.counted.append(Count.FAILED)
        self._complete()

    def blocked(self, message: str) -> None:
        """A job that does not run yet waits for somebody; one that runs goes on meanwhile."""
        self._idle(IdleReason.BLOCKED, message)

    def unreadable(self, message: str) -> None:
        """Nothing is decided for the job, whatever it does. What holds goes on holding, and says so in its message.

        The condition of a job that has ended stays as it is.
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
        """Nothing is in the way of its pods any more; they may take their time to run."""
        if is_blocked(self._kind, self.status):
            self.waits_for(f"{self._kind} {self._name} waits for its pods to run.")

    def waits_for(self, message: str) -> None:
        """Pods of the job are not made yet, or do not start, and that for a while."""
        self._idle(IdleReason.WAITING_FOR_PODS, message)

    def record_restart(self, message: str) -> None:
        self._record_event(Severity.WARNING, "Restarting", message)

    def record_event(
        self, severity: Severity, reason: str, message: str, once: str = "", similar: str = ""
    ) -> None:
        self.events.append(Event(severity, reason, message, once, similar))

    def count_roles(self, roles: Mapping[str, Role], counts: Mapping[str, Counts]) -> None:
        """Write the replica statuses anew. Zero counters stay off the wire; used restarts are kept.

        Differs: roles that the spec no longer has are left out, where the original keeps their last counters for ever, and the
        selector of a kind that can be scaled is always there. See docs/reference/differences-from-training-operator.md.
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
        """Add restarts whose pods are about to go, and say which pods have been added so far and are still there."""
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
        """Set only the active counters; the rest stays as it was."""
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
        """Why the job does not run, as it is now. Not said over that it runs, restarts, is suspended or has ended.

        What holds stays last, since the last condition is what kubectl shows as the job's state.
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
        """Whether that changed anything."""
        before = self.status.conditions or []
        text = shortened(message, LONGEST_MESSAGE)
        reason = f"{self._kind}{suffix}"
        after = conditions.merge(before, type_, status, reason, text, at or self.now, rewords=rewords)
        self.status.conditions = after
        return after != before

    def _record_event(self, severity: Severity, suffix: str, message: str) -> None:
        self.events.append(Event(severity, f"{self._kind}{suffix}", message))
