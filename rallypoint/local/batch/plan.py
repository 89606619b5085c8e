"""Plans the next step of a batch/v1 Job: pods to create and to delete, and its status. Pure; ``jobs`` carries it out.

It supports what launchers need: no indexes, no failure or success policies.

Source: kubernetes, pkg/controller/job/job_controller.go (syncJob, manageJob, trackJobStatusAndRemoveFinalizers). There
the back-off counts consecutive failures; here all failures count, which is equal while one success ends the job.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from api.times import format_time, parse_time
from rallypoint.local.manifest import Manifest

FINALIZER = "batch.kubernetes.io/job-tracking"
FIRST_BACKOFF_SECONDS = 10.0
MAX_BACKOFF_SECONDS = 600.0

COMPLETIONS_REACHED = ("CompletionsReached", "Reached expected number of succeeded pods")
BACKOFF_LIMIT_EXCEEDED = ("BackoffLimitExceeded", "Job has reached the specified backoff limit")
DEADLINE_EXCEEDED = ("DeadlineExceeded", "Job was active longer than specified deadline")

Status = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Event:
    reason: str
    message: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """The actions in their order: discard and delete pods, create pods, write the status, release pods, record events."""

    status: Status
    make: int = 0
    delete: tuple[Manifest, ...] = ()
    discard: tuple[Manifest, ...] = ()
    """Surplus pods to delete; they do not count as failed."""
    release: tuple[Manifest, ...] = ()
    """Counted pods whose finalizer can be removed."""
    reconcile_at: datetime | None = None
    events: tuple[Event, ...] = ()
    expired: bool = False
    """The TTL after the end of the job has passed; delete it."""


@dataclass(frozen=True, slots=True)
class _PodSummary:
    """The pods of a job by state."""

    active: tuple[Manifest, ...]
    terminating: int
    ready: int
    succeeded: frozenset[str]
    """The UIDs of succeeded pods that still have the finalizer."""
    failed: frozenset[str]
    tracked: tuple[Manifest, ...]
    last_failure: datetime | None


def plan(job: Manifest, pods: Sequence[Manifest], now: datetime) -> Plan:
    """Plan the next step of a job that is not being deleted. ``pods`` are those that it controls."""
    status: Status = {**(job.get("status") or {})}
    finished = finished_at(job)
    if finished is not None:
        return _plan_finished(job, status, pods, finished, now)
    found = _summarize(pods, replaces_failed_only=job["spec"].get("podReplacementPolicy") == "Failed")
    status = _move_counted(status, found)
    if not _is_suspended(job) and "startTime" not in status:
        status["startTime"] = format_time(now)
    succeeded = status.get("succeeded", 0) + len(status["uncountedTerminatedPods"].get("succeeded", ()))
    failed = status.get("failed", 0) + len(status["uncountedTerminatedPods"].get("failed", ()))
    target_condition = _target_condition(job, status, found, succeeded, failed, now)
    if target_condition is not None:
        return _plan_ending(status, found, target_condition, now)
    return _plan_running(job, status, found, succeeded, failed, now)


def finished_at(job: Manifest) -> datetime | None:
    """Return when the job finished; None if it has not."""
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
            return parse_time(condition.get("lastTransitionTime") or job["metadata"]["creationTimestamp"])
    return None


def _plan_finished(
    job: Manifest, status: Status, pods: Sequence[Manifest], finished: datetime, now: datetime
) -> Plan:
    left = tuple(pod for pod in pods if FINALIZER in (pod["metadata"].get("finalizers") or ()))
    seconds = job["spec"].get("ttlSecondsAfterFinished")
    if seconds is None:
        return Plan(status, release=left)
    end = finished + timedelta(seconds=seconds)
    return Plan(status, release=left, reconcile_at=None if end <= now else end, expired=end <= now)


def _summarize(pods: Sequence[Manifest], *, replaces_failed_only: bool) -> _PodSummary:
    active: list[Manifest] = []
    terminating, ready = 0, 0
    succeeded: set[str] = set()
    failed: set[str] = set()
    tracked = [pod for pod in pods if FINALIZER in (pod["metadata"].get("finalizers") or ())]
    failures = [end for pod in pods if (end := _failed_at(pod)) is not None]
    for pod in pods:
        phase, is_deleted = (pod.get("status") or {}).get("phase"), "deletionTimestamp" in pod["metadata"]
        is_over = phase in ("Succeeded", "Failed")
        terminating += is_deleted and not is_over
        if not is_deleted and not is_over:
            active.append(pod)
            ready += _is_ready(pod)
        if pod in tracked:
            uid = pod["metadata"]["uid"]
            if phase == "Succeeded":
                succeeded.add(uid)
            elif phase == "Failed" or (is_deleted and not replaces_failed_only):
                failed.add(uid)
    return _PodSummary(
        tuple(active),
        terminating,
        ready,
        frozenset(succeeded),
        frozenset(failed),
        tuple(tracked),
        max(failures, default=None),
    )


def _is_ready(pod: Manifest) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _move_counted(status: Status, found: _PodSummary) -> Status:
    """Move released pods from the uncounted lists to the counters and add newly ended pods to the lists."""
    listed: Mapping[str, Any] = status.get("uncountedTerminatedPods") or {}
    tracked = {pod["metadata"]["uid"] for pod in found.tracked}
    lists: dict[str, list[str]] = {}
    counted: Status = {**status, "uncountedTerminatedPods": lists}
    for name, over in (("succeeded", found.succeeded), ("failed", found.failed)):
        before: Sequence[str] = listed.get(name) or ()
        uncounted = [uid for uid in before if uid in tracked]
        if released := len(before) - len(uncounted):
            counted[name] = status.get(name, 0) + released
        elsewhere = {uid for other in listed.values() for uid in other or ()}
        if uncounted := [*uncounted, *sorted(over - elsewhere)]:
            lists[name] = uncounted
    return counted


def _target_condition(
    job: Manifest, status: Status, found: _PodSummary, succeeded: int, failed: int, now: datetime
) -> tuple[str, tuple[str, str]] | None:
    """Return the interim condition that decides how the job will end, with its reason and message."""
    for kind in ("SuccessCriteriaMet", "FailureTarget"):
        if (condition := _condition(status, kind)) is not None and condition["status"] == "True":
            return kind, (condition["reason"], condition["message"])
    spec = job["spec"]
    if failed > spec["backoffLimit"] or _exceeds_restarts(spec, found.active):
        return "FailureTarget", BACKOFF_LIMIT_EXCEEDED
    deadline = _deadline(job, status)
    if deadline is not None and now >= deadline:
        return "FailureTarget", DEADLINE_EXCEEDED
    desired = spec.get("completions")
    if not found.active and (succeeded > 0 if desired is None else succeeded >= desired):
        return "SuccessCriteriaMet", COMPLETIONS_REACHED
    return None


def _deadline(job: Manifest, status: Status) -> datetime | None:
    seconds, start = job["spec"].get("activeDeadlineSeconds"), status.get("startTime")
    if seconds is None or start is None or _is_suspended(job):
        return None
    return parse_time(start) + timedelta(seconds=seconds)


def _exceeds_restarts(spec: Manifest, active: Sequence[Manifest]) -> bool:
    if spec["template"]["spec"].get("restartPolicy") != "OnFailure":
        return False
    restarts = 0
    for pod in active:
        status = pod.get("status") or {}
        for name in ("initContainerStatuses", "containerStatuses"):
            restarts += sum(container["restartCount"] for container in status.get(name) or ())
    return restarts > 0 if spec["backoffLimit"] == 0 else restarts >= spec["backoffLimit"]


def _plan_ending(
    status: Status, found: _PodSummary, target_condition: tuple[str, tuple[str, str]], now: datetime
) -> Plan:
    """Set the interim condition and delete all pods; after all are counted, set the final condition."""
    target, (reason, message) = target_condition
    listed = status["uncountedTerminatedPods"]
    if target == "FailureTarget":
        uncounted_uids = {uid for uids in listed.values() for uid in uids}
        rest = [
            pod["metadata"]["uid"] for pod in found.tracked if pod["metadata"]["uid"] not in uncounted_uids
        ]
        if rest:
            listed["failed"] = [*listed.get("failed", ()), *rest]
    status = _with_condition(status, target, "True", reason, message, now)
    terminating = found.terminating + len(found.active)
    step = Plan(_with_counts(status, 0, 0, terminating), delete=found.active, release=found.tracked)
    if terminating or found.tracked or listed:
        return step
    succeeds = target == "SuccessCriteriaMet"
    status = _with_condition(step.status, "Complete" if succeeds else "Failed", "True", reason, message, now)
    if succeeds:
        status["completionTime"] = format_time(now)
    event = Event("Completed", "Job completed") if succeeds else Event(reason, message, warning=True)
    return Plan(status, events=(event,))


def _plan_running(
    job: Manifest, status: Status, found: _PodSummary, succeeded: int, failed: int, now: datetime
) -> Plan:
    spec = job["spec"]
    active, ready = list(found.active), found.ready
    desired = _desired_pods(spec, len(active), succeeded)
    if _is_suspended(job):
        desired = 0
    excess = sorted(active, key=lambda pod: (_is_ready(pod), pod["metadata"]["creationTimestamp"]))
    excess = excess[: max(len(active) - desired, 0)]
    ready -= sum(map(_is_ready, excess))
    terminating = found.terminating + len(excess)
    reserved = found.terminating if spec.get("podReplacementPolicy") == "Failed" else 0
    make = max(desired - reserved - len(active), 0)
    times = [time for time in (_deadline(job, status),) if time is not None]
    if make and (until := _backoff_end(found, failed, now)) > now:
        make, times = 0, [*times, until]
    status, events = _suspension(status, now, suspended=_is_suspended(job))
    uncounted_uids = {uid for uids in status["uncountedTerminatedPods"].values() for uid in uids}
    return Plan(
        _with_counts(status, len(active) - len(excess) + make, ready, terminating),
        make=make,
        discard=tuple(excess),
        release=tuple(pod for pod in found.tracked if pod["metadata"]["uid"] in uncounted_uids),
        reconcile_at=min(times, default=None),
        events=events,
    )


def _desired_pods(spec: Manifest, active: int, succeeded: int) -> int:
    if spec.get("completions") is None:
        return active if succeeded else int(spec["parallelism"])
    return max(int(min(spec["completions"] - succeeded, spec["parallelism"])), 0)


def _backoff_end(found: _PodSummary, failed: int, now: datetime) -> datetime:
    """Return until when to create no pod; the delay grows with each failure."""
    if not failed or found.last_failure is None:
        return now
    seconds = min(FIRST_BACKOFF_SECONDS * 2.0 ** min(failed - 1, 10), MAX_BACKOFF_SECONDS)
    return found.last_failure + timedelta(seconds=seconds)


def _failed_at(pod: Manifest) -> datetime | None:
    if (pod.get("status") or {}).get("phase") != "Failed":
        return None
    containers = pod["status"].get("containerStatuses") or ()
    ended = [
        ((container.get("state") or {}).get("terminated") or {}).get("finishedAt") for container in containers
    ]
    fallback = pod["metadata"].get("deletionTimestamp") or pod["metadata"]["creationTimestamp"]
    return max(map(parse_time, filter(None, ended)), default=parse_time(fallback))


def _suspension(status: Status, now: datetime, *, suspended: bool) -> tuple[Status, tuple[Event, ...]]:
    before = _condition(status, "Suspended")
    was = before is not None and before["status"] == "True"
    if suspended and not was:
        rest = {name: value for name, value in status.items() if name != "startTime"}
        suspended_status = _with_condition(rest, "Suspended", "True", "JobSuspended", "Job suspended", now)
        return suspended_status, (Event("Suspended", "Job suspended"),)
    if was and not suspended:
        resumed = _with_condition(status, "Suspended", "False", "JobResumed", "Job resumed", now)
        return {**resumed, "startTime": format_time(now)}, (Event("Resumed", "Job resumed"),)
    return status, ()


def _is_suspended(job: Manifest) -> bool:
    return bool(job["spec"].get("suspend"))


def _with_counts(status: Status, active: int, ready: int, terminating: int) -> Status:
    """Return the status with the counters; ``active: 0`` is omitted as in the API."""
    rest = {name: value for name, value in status.items() if name != "active"}
    return {**rest, **({"active": active} if active else {}), "ready": ready, "terminating": terminating}


def _condition(status: Status, kind: str) -> Mapping[str, Any] | None:
    return next(
        (condition for condition in status.get("conditions") or () if condition["type"] == kind), None
    )


def _with_condition(
    status: Status, kind: str, value: str, reason: str, message: str, now: datetime
) -> Status:
    """Return the status with a condition. A condition with the same status and reason stays unchanged."""
    made = {
        "type": kind,
        "status": value,
        "lastProbeTime": format_time(now),
        "lastTransitionTime": format_time(now),
        "reason": reason,
        "message": message,
    }
    conditions: list[Mapping[str, Any]] = list(status.get("conditions") or ())
    old = _condition(status, kind)
    if old is None:
        conditions.append(made)
    elif (old["status"], old["reason"]) != (value, reason):
        conditions[conditions.index(old)] = made
    return {**status, "conditions": conditions}
