"""Builds the status of an MPIJob with the reasons and messages of mpi-operator.

Source: mpi-operator 0.8, pkg/controller/mpi_job_controller_status.go.
"""

from collections.abc import Mapping
from datetime import datetime

from typing_extensions import override

from api import conditions
from api.conditions import FALSE, TRUE
from api.job import ConditionType, Job, ReplicaStatus
from controller.domain import Count, Event, FailureReason, Severity
from controller.kind.idle import has_run
from controller.kind.reasons import ConditionReason, EventReason
from controller.kind.status_builder import Named, StatusBuilder
from controller.kinds.mpi.launcher_job import DEADLINE_EXCEEDED
from controller.policy import cleanup

MAX_MESSAGE_BYTES = 1024
"""The longest event message that the API server accepts."""


class MPIStatusBuilder(StatusBuilder):
    """Builds the status of one job whose launcher is a batch Job."""

    def __init__(self, kind: Named, job: Job, now: datetime) -> None:
        super().__init__(kind, job, now)
        self._name = f"{job.metadata.namespace}/{job.metadata.name}"

    @property
    def leaves_nothing(self) -> bool:
        """Whether the job failed because it hung, its pods did not run in time, or its spec or that of a child is invalid."""
        return cleanup.leaves_nothing("MPIJob", self.status)

    @property
    def is_over(self) -> bool:
        """Whether the job has finished and has a completion time. mpi-operator marks evicted workers as failures without one."""
        return conditions.is_finished(self.status) and self.status.completion_time is not None

    @override
    def created(self, note: str = "") -> None:
        if conditions.find(self.status.conditions or (), ConditionType.CREATED):
            return
        text = f"MPIJob {self._name} is created.{note}"
        self._set(ConditionType.CREATED, TRUE, ConditionReason.CREATED, text)
        self._record_event(Severity.NORMAL, ConditionReason.CREATED, text)
        self.counted.append(Count.CREATED)

    @override
    def suspended(self) -> None:
        """Differs: Suspended comes last, as training-operator has it, since kubectl shows the last condition as the job's state.

        See docs/decisions/0018-mpijob-v2beta1.md.
        """
        text = f"MPIJob {self._name} is suspended."
        created = conditions.find(self.status.conditions or (), ConditionType.CREATED)
        at = None if has_run(self._kind, self.status) or created is None else created.last_transition_time
        self._set(ConditionType.RUNNING, FALSE, ConditionReason.SUSPENDED, text, at)
        if self._set(ConditionType.SUSPENDED, TRUE, ConditionReason.SUSPENDED, "MPIJob suspended"):
            self._record_event(Severity.NORMAL, ConditionReason.SUSPENDED, "MPIJob suspended")

    @override
    def resumed(self) -> bool:
        if not conditions.is_true(self.status, ConditionType.SUSPENDED):
            return False
        self._set(ConditionType.SUSPENDED, FALSE, ConditionReason.RESUMED, "MPIJob resumed")
        self._record_event(Severity.NORMAL, ConditionReason.RESUMED, "MPIJob resumed")
        self.status.start_time = self.now
        self.status.assembled_time = None
        return True

    def launcher_running(self) -> None:
        text = f"MPIJob {self._name} is running"
        if self._set(ConditionType.RUNNING, TRUE, ConditionReason.RUNNING, f"{text}."):
            self._record_event(Severity.NORMAL, ConditionReason.RUNNING, text)

    def launcher_restarting(self) -> None:
        self.restarting(f"MPIJob {self._name} is restarting.")

    def workers_evicted(self, text: str, delayed: str, *, is_new: bool) -> bool:
        """Record that workers were evicted and will be replaced, and return whether this changes the condition.

        A restarting job that waits for its PodGroup continues to say so until more workers fail.

        Args:
            delayed: describes the replacements that wait for a back-off.
            is_new: whether more workers have failed than the status says.

        Differs: mpi-operator sets Failed, and continues all the same. See docs/decisions/0018-mpijob-v2beta1.md.
        """
        if self._restart_waits_for_gang and not is_new:
            return False
        changed = self._set(ConditionType.RESTARTING, TRUE, ConditionReason.EVICTED, text)
        if changed:
            self._record_event(Severity.WARNING, ConditionReason.EVICTED, text)
        elif delayed:
            self._set(
                ConditionType.RESTARTING, TRUE, ConditionReason.EVICTED, f"{text}. {delayed}", rewords=True
            )
        return changed

    def launcher_completed(self, at: datetime) -> None:
        """Record that the launcher succeeded."""
        text = f"MPIJob {self._name} successfully completed."
        self.status.completion_time = at.replace(microsecond=0)
        self._remove_failed_condition()
        self._set_never_running()
        if self._set(ConditionType.SUCCEEDED, TRUE, ConditionReason.SUCCEEDED, text):
            self._record_event(Severity.NORMAL, ConditionReason.SUCCEEDED, text)
            self.counted.append(Count.SUCCESSFUL)

    def launcher_failed(self, reason: str, text: str) -> None:
        """Record that the launcher failed for good, with the reason that its Job gives."""
        self._complete()
        self._remove_failed_condition()
        self._set_never_running()
        self.status.conditions = conditions.merge(
            self.status.conditions or (), ConditionType.FAILED, TRUE, reason, _truncated(text), self.now
        )
        self.record_event(Severity.WARNING, reason, _truncated(text))
        self.counted.append(Count.FAILED)
        self.failure_reason = FailureReason.DEADLINE if reason == DEADLINE_EXCEEDED else None

    @override
    def failed(
        self,
        message: str,
        severity: Severity = Severity.NORMAL,
        suffix: str = ConditionReason.FAILED,
        cause: FailureReason | None = None,
    ) -> None:
        self._complete()
        self._remove_failed_condition()
        self._set_never_running()
        super().failed(message, severity, suffix, cause)

    def invalid(self, text: str) -> None:
        """Record that the spec is invalid.

        Differs: mpi-operator sets no condition. See docs/decisions/0018-mpijob-v2beta1.md.
        """
        super().created()  # without the event, as in mpi-operator
        self.record_event(Severity.WARNING, EventReason.VALIDATION_ERROR, _truncated(text), once=text)
        if self._set(ConditionType.FAILED, TRUE, ConditionReason.FAILED_VALIDATION, text):
            self.counted.append(Count.FAILED)
            self.failure_reason = FailureReason.INVALID
        self._complete()

    def set_replica_statuses(self, roles: Mapping[str, ReplicaStatus]) -> None:
        self.status.replica_statuses = dict(roles)

    def _set_never_running(self) -> None:
        if conditions.find(self.status.conditions or (), ConditionType.RUNNING):
            return
        text = f"MPIJob {self._name} is finished but Running condition was never set."
        self._set(ConditionType.RUNNING, FALSE, ConditionReason.RUNNING, text, self.status.completion_time)

    def _remove_failed_condition(self) -> None:
        """Remove the Failed condition that mpi-operator sets for an evicted worker."""
        remaining = [
            condition for condition in self.status.conditions or () if condition.type != ConditionType.FAILED
        ]
        self.status.conditions = remaining


def _truncated(text: str) -> str:
    """Shorten the text as mpi-operator does."""
    raw = text.encode()
    return (
        text
        if len(raw) <= MAX_MESSAGE_BYTES
        else f"{raw[: MAX_MESSAGE_BYTES - 3].decode(errors='ignore')}..."
    )


def warning_event(reason: str, text: str) -> Event:
    return Event(Severity.WARNING, reason, _truncated(text))
