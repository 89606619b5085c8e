"""The next step for a job and its Workload. Each step is one write, and the next one follows from what is then there.

Quota is released only when no pod of the job is left: Kueue leaves that to whoever integrates a kind.

Source: kueue 0.19, pkg/controller/jobframework/reconciler.go, ReconcileGenericJob. Differs: Kueue releases the quota of its own integrations
when a status has no active pod, which may be before a pod is reported; here the pods themselves count. It finishes a Workload when the
job has finished; here when the pods have ended, too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from typing import Any, Final

import msgspec

from api import workloads
from api.job import ConditionType
from api.times import format_time, parse_time
from api.workloads import Workload
from controller.kueue.pod_sets import Object, QueuedJob

LONGEST_MESSAGE: Final = 32 * 1024
"""The API server refuses longer messages of conditions."""
FAILED_TO_START: Final = "FailedToStart"
"""The reason of a Workload that finished because its job contradicts what was admitted."""
_STARTING: Final = "WaitForStart"
_RECOVERING: Final = "WaitForRecovery"
_REQUEUED_AT_ONCE: Final = frozenset({"Preempted", "NodeFailures"})
"""Reasons of evictions after which Kueue may admit the Workload again at once; for the others it decides itself when."""


class Action(Enum):
    """What a step does."""

    SUSPEND = auto()
    """Suspend the job, and take away what the admission added."""
    CREATE = auto()
    """Create the Workload."""
    UPDATE = auto()
    """Make the spec of a Workload without quota equal to the job."""
    REPRIORITIZE = auto()
    """Give the Workload the priority class that the job's label names now."""
    START = auto()
    """Resume the job with what was admitted."""
    REPORT = auto()
    """Write which pods are ready and which ones need no quota any more."""
    RELEASE = auto()
    """Return the quota of an evicted Workload, which is then queued again."""
    FINISH = auto()
    """Mark the Workload as finished, which returns its quota."""
    REMOVE_FINALIZER = auto()
    """Remove the finalizer of a Workload that is finished or being deleted."""
    DELETE = auto()
    """Delete the Workload, whose job has changed or left the queue."""


@dataclass(frozen=True, slots=True)
class Step:
    """One write. With ``after_pods`` it waits until no pod of the Workload's owner, or of the job, runs or may run."""

    action: Action
    workload: Workload | None = None
    text: str = ""
    """Why, for people."""
    after_pods: bool = False


def is_held(job: QueuedJob, workload: Workload | None, *, is_known: bool) -> bool:
    """Return whether a job that is not suspended must be treated as if it were: it names a queue and holds no quota for its pods.

    Args:
        is_known: whether the Workloads are known. If they are not, a job that an admission has marked continues.
    """
    if not job.queue or job.is_suspended or job.is_finished or not job.is_ours:
        return False
    if not is_known:
        return not job.is_marked
    if workload is None or workload.is_evicted or workload.deleting:
        return True
    return not (workload.is_admitted and job.has_shape_of(workload))


def own_workload(job: QueuedJob, found: Sequence[Workload]) -> Workload | None:
    """Return the job's Workload. If there are several, the one with quota counts, otherwise the first by name."""
    own = [workload for workload in found if workload.owner_uid == job.row.uid]
    return min(own, key=lambda workload: (not workload.is_reserved, workload.name), default=None)


def decide(job: QueuedJob | None, found: Sequence[Workload], now: datetime) -> Step | None:
    """Return the next step, None if there is none.

    Args:
        job: None if it is deleted or being deleted.
        found: the Workloads of jobs of that name.

    Raises:
        Unqueueable: no Workload can be made of the job.
    """
    uid = job.row.uid if job else ""
    for workload in found:
        if workload.owner_uid != uid and workload.deleting and workload.has_finalizer:
            return Step(Action.REMOVE_FINALIZER, workload, after_pods=True)
    if job is None:
        return None
    own = own_workload(job, found)
    return _queued(job, own, now) if own else _unqueued(job)


def _queued(job: QueuedJob, workload: Workload, now: datetime) -> Step | None:
    """Return the next step of a job with a Workload."""
    if workload.is_finished:
        return _finished(job, workload)
    if workload.deleting:
        if not (job.is_finished or job.is_suspended):
            return Step(Action.SUSPEND, workload, "The Workload is deleted")
        return Step(Action.REMOVE_FINALIZER, workload, after_pods=True) if workload.has_finalizer else None
    if job.end is not None:
        return Step(Action.FINISH, workload, str(job.end.get("message") or ""), after_pods=True)
    if workload.is_evicted and not job.is_suspended:
        evicted = _condition(msgspec.json.decode(workload.status), workloads.EVICTED)
        return Step(Action.SUSPEND, workload, evicted.get("message", ""))
    if workload.is_evicted and workload.is_reserved:
        return Step(Action.RELEASE, workload, after_pods=True)
    if job.is_suspended:
        return _suspended(job, workload)
    return _running(job, workload, now)


def _unqueued(job: QueuedJob) -> Step | None:
    """Return the next step of a job without a Workload."""
    if job.is_finished or not job.queue:
        return None
    if not job.is_suspended:
        return Step(Action.SUSPEND, text="The job has no Workload")
    return Step(Action.CREATE, after_pods=True)


def _finished(job: QueuedJob, workload: Workload) -> Step | None:
    """Return the next step of a job whose Workload is finished. It needs a new one if somebody has corrected the job."""
    if not (job.is_finished or job.is_suspended):
        return Step(Action.SUSPEND, workload, "The Workload is finished")
    if not job.is_finished and job.queue and workload.pod_sets and workload.pod_sets != job.fingerprint:
        return Step(Action.DELETE, workload, "The job has changed", after_pods=True)
    return Step(Action.REMOVE_FINALIZER, workload) if workload.has_finalizer else None


def _suspended(job: QueuedJob, workload: Workload) -> Step | None:
    """Return the next step of a suspended job, whose Workload waits or was just admitted."""
    if not job.queue:
        return Step(Action.DELETE, workload, "The job no longer names a queue", after_pods=True)
    if not workload.is_reserved:
        return Step(Action.UPDATE, workload) if _is_outdated(job, workload) else None
    is_same = workload.pod_sets == job.fingerprint if workload.pod_sets else job.has_shape_of(workload)
    if not is_same:
        return Step(Action.DELETE, workload, "The job has changed", after_pods=True)
    return Step(Action.START, workload) if workload.is_admitted else None


def _running(job: QueuedJob, workload: Workload, now: datetime) -> Step | None:
    """Return the next step of a job that is not suspended."""
    if not workload.is_admitted:
        return Step(Action.SUSPEND, workload, "Not admitted by a ClusterQueue")
    if not job.has_shape_of(workload):
        return Step(Action.SUSPEND, workload, "The number or the containers of the pods have changed")
    if job.queue and not all(role.is_marked for role in job.roles):
        return Step(Action.START, workload)  # somebody has replaced the templates
    if _is_reprioritized(job, workload):
        return Step(Action.REPRIORITIZE, workload)
    return Step(Action.REPORT, workload) if report(job, workload, now) else None


def _is_outdated(job: QueuedJob, workload: Workload) -> bool:
    """Return whether a Workload without quota says something else than the job."""
    spec = msgspec.json.decode(workload.spec)
    return (
        workload.pod_sets != job.fingerprint
        or spec.get("queueName", "") != job.queue
        or spec.get("maximumExecutionTimeSeconds") != job.max_execution_seconds
        or dict(workload.annotations) != job.passed_on
        or _has_other_class(job, spec.get("priorityClassRef") or {})
    )


def _has_other_class(job: QueuedJob, current: Mapping[str, Any]) -> bool:
    """Return whether the Workload's priority class is not the job's. The default PriorityClass is unknown here, and counts as equal."""
    if label := job.labels.get(workloads.PRIORITY_CLASS):
        return (current.get("group"), current.get("name")) != (workloads.GROUP, label)
    if name := job.priority_class:
        return (current.get("group"), current.get("name")) != (workloads.PRIORITY_CLASSES.group, name)
    return current.get("group") == workloads.GROUP


def _is_reprioritized(job: QueuedJob, workload: Workload) -> bool:
    """Return whether the label names another WorkloadPriorityClass than the admitted Workload has; it must have had one before."""
    current = msgspec.json.decode(workload.spec).get("priorityClassRef") or {}
    label = job.labels.get(workloads.PRIORITY_CLASS)
    return bool(label) and current.get("group") == workloads.GROUP and current.get("name") != label


def report(job: QueuedJob, workload: Workload, now: datetime) -> Object:
    """Return the changes of the status of an admitted Workload: whether its pods are ready, and how many need no quota any more.

    Pods of a job with a failure policy may run again after they have succeeded, and keep their quota. The status of a job that has just
    been resumed still counts the pods from before its suspension.
    """
    if job.condition(ConditionType.SUSPENDED):
        return {}
    status = msgspec.json.decode(workload.status)
    change: Object = {}
    ready = _condition(status, workloads.PODS_READY)
    was_ready, is_ready = ready.get("status") == "True", job.condition(ConditionType.RUNNING) is not None
    if is_ready and not was_ready:
        reason = "Recovered" if ready.get("reason") == _RECOVERING else "Started"
        text = "All pods reached readiness and the workload is running"
        change |= _with_condition(status, workloads.PODS_READY, "True", reason, text, now)
    elif was_ready and not is_ready:
        text = "At least one pod has failed, waiting for recovery"
        change |= _with_condition(status, workloads.PODS_READY, "False", _RECOVERING, text, now)
    if not job.policy.get("failurePolicy"):
        before = {item["name"]: item["count"] for item in status.get("reclaimablePods") or ()}
        counts = {
            role.name: max(min(role.succeeded, role.count), before.get(role.name, 0)) for role in job.roles
        }
        counts = {name: count for name, count in counts.items() if count}
        if counts != {name: count for name, count in before.items() if count}:
            change["reclaimablePods"] = [{"name": name, "count": count} for name, count in counts.items()]
    return change


def release(workload: Workload, now: datetime) -> Object:
    """Return the changes of the status that return the quota of an evicted Workload.

    Source: kueue 0.19, pkg/workload, UnsetQuotaReservationWithCondition, SetRequeuedCondition and SyncAdmittedCondition.
    """
    status = msgspec.json.decode(workload.status)
    evicted, admitted = _condition(status, workloads.EVICTED), _condition(status, workloads.ADMITTED)
    reason, message = evicted.get("reason", ""), evicted.get("message", "")
    at_once = "True" if reason in _REQUEUED_AT_ONCE else "False"
    change = _with_condition(status, workloads.REQUEUED, at_once, reason, message, now)
    change |= _with_condition(status | change, workloads.QUOTA_RESERVED, "False", "Pending", message, now)
    if admitted.get("status") == "True":
        text = "The workload has no reservation"
        change |= _with_condition(status | change, workloads.ADMITTED, "False", "NoReservation", text, now)
        ran = int((now - parse_time(admitted["lastTransitionTime"])).total_seconds())
        past = status.get("accumulatedPastExecutionTimeSeconds") or 0
        change["accumulatedPastExecutionTimeSeconds"] = past + max(ran, 0)
    if _condition(status, workloads.PODS_READY).get("reason", _STARTING) != _STARTING:
        # Also of pods that were recovering: from the time of that condition on, Kueue counts its timeout for a recovery.
        fields = "False", _STARTING, "Not all pods are ready or succeeded"
        change |= _with_condition(status | change, workloads.PODS_READY, *fields, now)
    # The pods that had succeeded are gone, too, and run again.
    return change | {"admission": None, "reclaimablePods": []}


def finish(workload: Workload, reason: str, message: str, now: datetime) -> Object:
    """Return the changes of the status of a Workload that is finished."""
    status = msgspec.json.decode(workload.status)
    return _with_condition(status, workloads.FINISHED, "True", reason, message, now)


def _condition(status: Mapping[str, Any], type_: str) -> Object:
    """Return a condition, empty if there is none."""
    conditions = status.get("conditions") or ()
    return next((condition for condition in conditions if condition.get("type") == type_), {})


def _with_condition(
    status: Mapping[str, Any], type_: str, value: str, reason: str, message: str, now: datetime
) -> Object:
    """Return the list of conditions with one set. Source: apimachinery, pkg/api/meta, SetStatusCondition."""
    conditions = list(status.get("conditions") or ())
    old = _condition(status, type_)
    is_same = old.get("status") == value
    new = {
        "type": type_,
        "status": value,
        "reason": reason,
        "message": message[:LONGEST_MESSAGE],
        "lastTransitionTime": old.get("lastTransitionTime") if is_same else format_time(now),
    }
    return {"conditions": [condition for condition in conditions if condition is not old] + [new]}
