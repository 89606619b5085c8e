"""``pendingTimeoutSeconds``: a job whose pods do not all run in time gives up what it holds, and fails or restarts.

A pod has the time since it was created; one that cannot be created, since the attempt began. Nothing counts while the job waits in a queue:
suspended, before its PodGroup is admitted, or behind scheduling gates. Once all pods ran together, only pods that exist count: whether the
others were deleted a moment ago is unknown.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from api import conditions
from api.children import Pod
from api.job import ConditionType, Job, JobStatus, RunPolicy
from api.pod_problems import is_gang_refusal
from controller.domain import FailureReason, Plan, Problem, Severity, earliest
from controller.kind.idle import is_blocked
from controller.kind.reasons import ConditionReason
from controller.kind.status_builder import StatusBuilder
from controller.policy import attempts, recovery

_GATED: Final = "SchedulingGated"


@dataclass(frozen=True, slots=True)
class Replica:
    """A pod of the current attempt that must run. ``pod`` is None if it does not exist."""

    role: str
    name: str
    pod: Pod | None = None
    is_due: bool = True
    """Whether it should exist. No pod does before the first reconcile, and the launcher of some jobs is created when the workers run."""

    @property
    def is_waiting(self) -> bool:
        return self.pod is None or (self.pod.phase in {"", "Pending"} and not self.pod.deleting)


def problems(policy: RunPolicy) -> Iterator[Problem]:
    """Return the problem of a time that no pod could keep."""
    if (limit := policy.pending_timeout_seconds) is not None and limit < 1:
        yield Problem("spec.runPolicy.pendingTimeoutSeconds", f"Invalid value: {limit}: must be at least 1")


def checked(job: Job, builder: StatusBuilder, replicas: Sequence[Replica]) -> Plan | None:
    """Return the plan that ends the attempt of a job whose pods do not run in time, None if it continues.

    Record when all pods run for the first time.
    """
    policy = job.spec.policy
    limit = policy.pending_timeout_seconds
    if limit is None or _is_queued(replicas):
        return None
    is_new = builder.status.assembled_time is None and len(replicas) > 0
    if is_new and not any(replica.is_waiting for replica in replicas):
        builder.update({"assembled_time": builder.now})
    waits = _waits(builder.status, builder.now, replicas)
    late = [replica for replica, seconds in waits if seconds >= limit]
    if not late:
        return None
    failure = _failure(job, builder.status, late, len(waits), len(replicas))
    rules = policy.failure_policy
    if rules and (matched := recovery.match(rules, failure, recovery.ENDS)):
        return attempts.end(job, matched, builder)
    text = f"job {job.metadata.name} has failed because {failure.message}"
    builder.failed(text, Severity.WARNING, ConditionReason.PENDING_TIMEOUT, FailureReason.PENDING_TIMEOUT)
    return builder.plan()


def in_time(policy: RunPolicy, builder: StatusBuilder, replicas: Sequence[Replica], plan: Plan) -> Plan:
    """Return the plan with a reconcile at the time when the next pod is late."""
    limit = policy.pending_timeout_seconds
    if limit is None or _is_queued(replicas):
        return plan
    waits = _waits(builder.status, builder.now, replicas)
    dues = [max(limit - seconds, 1.0) for _, seconds in waits]
    if sum(replica.is_waiting for replica in replicas) > len(waits):
        # The others are about to be created, which triggers no reconcile.
        dues.append(float(limit))
    return replace(plan, requeue_after_seconds=earliest(plan.requeue_after_seconds, *dues))


def _waits(status: JobStatus, now: datetime, replicas: Sequence[Replica]) -> list[tuple[Replica, float]]:
    """Return the replicas that wait to run, and for how many seconds they have."""
    began = recovery.began(status) or now
    can_be_lost = status.assembled_time is not None
    created = [replica.pod.created_at for replica in replicas if replica.pod and replica.pod.created_at]
    # A missing pod counts from the creation of the attempt's first pod: before that, the whole gang may have waited in a queue.
    missing_since = max(began, min(created, default=began))
    return [
        (replica, (now - max(since, began)).total_seconds())
        for replica in replicas
        if replica.is_waiting
        and replica.is_due
        and (since := (replica.pod.created_at if replica.pod else None if can_be_lost else missing_since))
    ]


def _failure(
    job: Job, status: JobStatus, late: Sequence[Replica], waiting: int, total: int
) -> recovery.PodFailure:
    """Return the failure of the first late pod that says why it waits, else of the first late pod."""
    first = min(late, key=_vagueness)
    troubles = first.pod.troubles if first.pod else ()
    cause = "; ".join(trouble.message for trouble in troubles)
    if not cause and is_blocked(job.kind, status):
        blocked = conditions.find(status.conditions or (), ConditionType.RUNNING)
        cause = (blocked and blocked.message) or ""
    cause = cause or ("no reason reported" if first.pod else "it could not be created")
    limit = job.spec.policy.pending_timeout_seconds
    return recovery.PodFailure(
        role=first.role,
        pod=first.name,
        reasons=frozenset({recovery.PENDING_TIMEOUT, *(trouble.reason for trouble in troubles)}),
        conditions=frozenset(first.pod.conditions if first.pod else ()),
        reason=recovery.PENDING_TIMEOUT,
        message=f"{waiting} of {total} pods did not run within pendingTimeoutSeconds ({limit} s); {first.name}: {cause}",
        uid=first.pod.uid if first.pod else "",
    )


def _vagueness(replica: Replica) -> int:
    """Order replicas by what is known of their cause: one that waits only for the rest of its gang says little, one without a word nothing."""
    messages = [trouble.message for trouble in (replica.pod.troubles if replica.pod else ())]
    if not messages:
        return 2
    return int(all(map(is_gang_refusal, messages)))


def _is_queued(replicas: Iterable[Replica]) -> bool:
    return any(
        trouble.reason == _GATED
        for replica in replicas
        if replica.pod and replica.is_waiting
        for trouble in replica.pod.troubles
    )
