"""What a batch/v1 Job needs next: pods to make and to delete, and its status. Pure; ``jobs`` acts.

As far as a launcher needs it: no indexes, no failure or success policies.

Source: kubernetes, pkg/controller/job/job_controller.go (syncJob, manageJob, trackJobStatusAndRemoveFinalizers). Its
back-off counts failures in a row; here all of them count, which is the same as long as one success ends the job.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from api.times import parse_time
from rallypoint.local.manifest import Manifest

FINALIZER = "batch.kubernetes.io/job-tracking"
FIRST_BACKOFF_SECONDS = 10.0
LONGEST_BACKOFF_SECONDS = 600.0

REACHED = ("CompletionsReached", "Reached expected number of succeeded pods")
BACKOFF = ("BackoffLimitExceeded", "Job has reached the specified backoff limit")
DEADLINE = ("DeadlineExceeded", "Job was active longer than specified deadline")

Status = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Event:
    reason: str
    message: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """What to do, in this order: discard, delete, make, write the status, release, tell."""

    status: Status
    make: int = 0
    delete: tuple[Manifest, ...] = ()
    discard: tuple[Manifest, ...] = ()
    """Pods to delete that nobody wants any more: they do not count as failed."""
    release: tuple[Manifest, ...] = ()
    """Pods that have been counted in the status and need not be kept for that any more."""
    wake: datetime | None = None
    events: tuple[Event, ...] = ()
    expired: bool = False
    """The job has been finished for as long as it is kept; it is to be deleted."""


@dataclass(frozen=True, slots=True)
class _Pods:
    """The pods of a job by what has become of them."""

    active: tuple[Manifest, ...]
    terminating: int
    ready: int
    succeeded: frozenset[str]
    """UIDs of those that are still kept for being counted."""
    failed: frozenset[str]
    tracked: tuple[Manifest, ...]
    last_failure: datetime | None


def judge(job: Manifest, pods: Sequence[Manifest], now: datetime) -> Step:
    """Decide for a job that is wanted, or that is finished; ``pods`` are those that it controls."""
    status: Status = {**(job.get("status") or {})}
    finished = finished_at(job)
    if finished is not None:
        return _afterwards(job, status, pods, finished, now)
    found = _sorted(pods, replaces_failed_only=job["spec"].get("podReplacementPolicy") == "Failed")
    status = _counted(status, found)
    if not _suspended(job) and "startTime" not in status:
        status["startTime"] = _spell(now)
    succeeded = status.get("succeeded", 0) + len(status["uncountedTerminatedPods"].get("succeeded", ()))
    failed = status.get("failed", 0) + len(status["uncountedTerminatedPods"].get("failed", ()))
    aim = _aim(job, status, found, succeeded, failed, now)
    if aim is not None:
        return _ending(status, found, aim, now)
    return _going_on(job, status, found, succeeded, failed, now)


def finished_at(job: Manifest) -> datetime | None:
    """When the job was over; None while it is not."""
    for one in (job.get("status") or {}).get("conditions") or ():
        if one["type"] in ("Complete", "Failed") and one["status"] == "True":
            return parse_time(one.get("lastTransitionTime") or job["metadata"]["creationTimestamp"])
    return None


def _afterwards(
    job: Manifest, status: Status, pods: Sequence[Manifest], finished: datetime, now: datetime
) -> Step:
    left = tuple(pod for pod in pods if FINALIZER in (pod["metadata"].get("finalizers") or ()))
    seconds = job["spec"].get("ttlSecondsAfterFinished")
    if seconds is None:
        return Step(status, release=left)
    end = finished + timedelta(seconds=seconds)
    return Step(status, release=left, wake=None if end <= now else end, expired=end <= now)


def _sorted(pods: Sequence[Manifest], *, replaces_failed_only: bool) -> _Pods:
    active: list[Manifest] = []
    terminating, ready = 0, 0
    succeeded: set[str] = set()
    failed: set[str] = set()
    tracked = [pod for pod in pods if FINALIZER in (pod["metadata"].get("finalizers") or ())]
    failures = [end for pod in pods if (end := _failed_at(pod)) is not None]
    for pod in pods:
        phase, goes = (pod.get("status") or {}).get("phase"), "deletionTimestamp" in pod["metadata"]
        is_over = phase in ("Succeeded", "Failed")
        terminating += goes and not is_over
        if not goes and not is_over:
            active.append(pod)
            ready += _is_ready(pod)
        if pod in tracked:
            uid = pod["metadata"]["uid"]
            if phase == "Succeeded":
                succeeded.add(uid)
            elif phase == "Failed" or (goes and not replaces_failed_only):
                failed.add(uid)
    return _Pods(
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
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _counted(status: Status, found: _Pods) -> Status:
    """The status with those that were released moved from its list to its counters, and those newly over in its list."""
    listed: Mapping[str, Any] = status.get("uncountedTerminatedPods") or {}
    kept = {pod["metadata"]["uid"] for pod in found.tracked}
    lists: dict[str, list[str]] = {}
    counted: Status = {**status, "uncountedTerminatedPods": lists}
    for name, over in (("succeeded", found.succeeded), ("failed", found.failed)):
        before: Sequence[str] = listed.get(name) or ()
        waits = [uid for uid in before if uid in kept]
        if released := len(before) - len(waits):
            counted[name] = status.get(name, 0) + released
        elsewhere = {uid for other in listed.values() for uid in other or ()}
        if waits := [*waits, *sorted(over - elsewhere)]:
            lists[name] = waits
    return counted


def _aim(
    job: Manifest, status: Status, found: _Pods, succeeded: int, failed: int, now: datetime
) -> tuple[str, tuple[str, str]] | None:
    """The condition that the job is on its way to, with its reason and message."""
    for kind in ("SuccessCriteriaMet", "FailureTarget"):
        if (told := _condition(status, kind)) is not None and told["status"] == "True":
            return kind, (told["reason"], told["message"])
    spec = job["spec"]
    if failed > spec["backoffLimit"] or _restarted_too_often(spec, found.active):
        return "FailureTarget", BACKOFF
    deadline = _deadline(job, status)
    if deadline is not None and now >= deadline:
        return "FailureTarget", DEADLINE
    wanted = spec.get("completions")
    if not found.active and (succeeded > 0 if wanted is None else succeeded >= wanted):
        return "SuccessCriteriaMet", REACHED
    return None


def _deadline(job: Manifest, status: Status) -> datetime | None:
    seconds, start = job["spec"].get("activeDeadlineSeconds"), status.get("startTime")
    if seconds is None or start is None or _suspended(job):
        return None
    return parse_time(start) + timedelta(seconds=seconds)


def _restarted_too_often(spec: Manifest, active: Sequence[Manifest]) -> bool:
    if spec["template"]["spec"].get("restartPolicy") != "OnFailure":
        return False
    restarts = 0
    for pod in active:
        status = pod.get("status") or {}
        for name in ("initContainerStatuses", "containerStatuses"):
            restarts += sum(one["restartCount"] for one in status.get(name) or ())
    return restarts > 0 if spec["backoffLimit"] == 0 else restarts >= spec["backoffLimit"]


def _ending(status: Status, found: _Pods, aim: tuple[str, tuple[str, str]], now: datetime) -> Step:
    """First it is said what will be, and no pod stays; once all are gone and counted, what is."""
    target, (reason, message) = aim
    listed = status["uncountedTerminatedPods"]
    if target == "FailureTarget":
        known = {uid for uids in listed.values() for uid in uids}
        rest = [pod["metadata"]["uid"] for pod in found.tracked if pod["metadata"]["uid"] not in known]
        if rest:
            listed["failed"] = [*listed.get("failed", ()), *rest]
    status = _with(status, target, "True", reason, message, now)
    terminating = found.terminating + len(found.active)
    step = Step(_numbers(status, 0, 0, terminating), delete=found.active, release=found.tracked)
    if terminating or found.tracked or listed:
        return step
    succeeds = target == "SuccessCriteriaMet"
    status = _with(step.status, "Complete" if succeeds else "Failed", "True", reason, message, now)
    if succeeds:
        status["completionTime"] = _spell(now)
    event = Event("Completed", "Job completed") if succeeds else Event(reason, message, warning=True)
    return Step(status, events=(event,))


def _going_on(
    job: Manifest, status: Status, found: _Pods, succeeded: int, failed: int, now: datetime
) -> Step:
    spec = job["spec"]
    active, ready = list(found.active), found.ready
    wanted = _wanted(spec, len(active), succeeded)
    if _suspended(job):
        wanted = 0
    doomed = sorted(active, key=lambda pod: (_is_ready(pod), pod["metadata"]["creationTimestamp"]))
    doomed = doomed[: max(len(active) - wanted, 0)]
    ready -= sum(map(_is_ready, doomed))
    terminating = found.terminating + len(doomed)
    holds_back = found.terminating if spec.get("podReplacementPolicy") == "Failed" else 0
    make = max(wanted - holds_back - len(active), 0)
    wakes = [moment for moment in (_deadline(job, status),) if moment is not None]
    if make and (until := _backed_off(found, failed, now)) > now:
        make, wakes = 0, [*wakes, until]
    status, events = _suspension(status, now, suspended=_suspended(job))
    known = {uid for uids in status["uncountedTerminatedPods"].values() for uid in uids}
    return Step(
        _numbers(status, len(active) - len(doomed) + make, ready, terminating),
        make=make,
        discard=tuple(doomed),
        release=tuple(pod for pod in found.tracked if pod["metadata"]["uid"] in known),
        wake=min(wakes, default=None),
        events=events,
    )


def _wanted(spec: Manifest, active: int, succeeded: int) -> int:
    if spec.get("completions") is None:
        return active if succeeded else int(spec["parallelism"])
    return max(int(min(spec["completions"] - succeeded, spec["parallelism"])), 0)


def _backed_off(found: _Pods, failed: int, now: datetime) -> datetime:
    """Until when no pod is made: later after each failure."""
    if not failed or found.last_failure is None:
        return now
    seconds = min(FIRST_BACKOFF_SECONDS * 2.0 ** min(failed - 1, 10), LONGEST_BACKOFF_SECONDS)
    return found.last_failure + timedelta(seconds=seconds)


def _failed_at(pod: Manifest) -> datetime | None:
    if (pod.get("status") or {}).get("phase") != "Failed":
        return None
    told = pod["status"].get("containerStatuses") or ()
    ended = [((one.get("state") or {}).get("terminated") or {}).get("finishedAt") for one in told]
    fallback = pod["metadata"].get("deletionTimestamp") or pod["metadata"]["creationTimestamp"]
    return max(map(parse_time, filter(None, ended)), default=parse_time(fallback))


def _suspension(status: Status, now: datetime, *, suspended: bool) -> tuple[Status, tuple[Event, ...]]:
    before = _condition(status, "Suspended")
    was = before is not None and before["status"] == "True"
    if suspended and not was:
        rest = {name: value for name, value in status.items() if name != "startTime"}
        told = _with(rest, "Suspended", "True", "JobSuspended", "Job suspended", now)
        return told, (Event("Suspended", "Job suspended"),)
    if was and not suspended:
        told = _with(status, "Suspended", "False", "JobResumed", "Job resumed", now)
        return {**told, "startTime": _spell(now)}, (Event("Resumed", "Job resumed"),)
    return status, ()


def _suspended(job: Manifest) -> bool:
    return bool(job["spec"].get("suspend"))


def _numbers(status: Status, active: int, ready: int, terminating: int) -> Status:
    """Zero is left out where the API leaves it out."""
    rest = {name: value for name, value in status.items() if name != "active"}
    return {**rest, **({"active": active} if active else {}), "ready": ready, "terminating": terminating}


def _condition(status: Status, kind: str) -> Mapping[str, Any] | None:
    return next((one for one in status.get("conditions") or () if one["type"] == kind), None)


def _with(status: Status, kind: str, value: str, reason: str, message: str, now: datetime) -> Status:
    made = {
        "type": kind,
        "status": value,
        "lastProbeTime": _spell(now),
        "lastTransitionTime": _spell(now),
        "reason": reason,
        "message": message,
    }
    return {**status, "conditions": list(_replaced(status.get("conditions") or (), made))}


def _replaced(
    conditions: Sequence[Mapping[str, Any]], made: Mapping[str, Any]
) -> Iterator[Mapping[str, Any]]:
    """What is said already stays as it was said."""
    found = False
    for one in conditions:
        if one["type"] != made["type"]:
            yield one
            continue
        found = True
        yield one if one["status"] == made["status"] and one["reason"] == made["reason"] else made
    if not found:
        yield made


def _spell(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
