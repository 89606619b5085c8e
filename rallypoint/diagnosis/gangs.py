"""Causes in the PodGroup of a job: its queue, what its scheduler reports, and the members that it lacks."""

from collections.abc import Iterator

from api.children import FINAL_PHASES, STARTED_PHASES, UNADMITTED_PHASES, UNSCHEDULED
from api.job import ConditionType
from api.messages import first_of
from api.meta import NATIVE_POD_GROUPS
from api.queues import queue_of, queue_problem
from controller.kind.idle import IdleReason
from controller.policy import native_gang
from rallypoint.diagnosis.objects import (
    Object,
    condition,
    is_condition_true,
    missing_pod_names,
    name_of,
    parse_timestamp,
    spec_of,
    status_of,
    transition_time,
)
from rallypoint.diagnosis.snapshot import Cause, JobSnapshot

_MAX_NAMED_MEMBERS = 3
"""The largest number of missing gang members to name."""
_QUEUE_STEP = "ask an administrator to create, open or enlarge the queue, or create the job again with another schedulingPolicy.queue"


def causes(snapshot: JobSnapshot) -> Iterator[Cause]:
    """Yield the PodGroups that have not started: their queue, the last message of their scheduler, and missing members.

    What the operator has found out about the queue follows if the user may not read the queue.
    """
    waiting = [gang for gang in snapshot.gangs if not _has_started(snapshot, gang)]
    for gang in waiting:
        problem = problem_of_queue(snapshot, gang)
        parts = [problem, "" if problem else _last_message(snapshot, gang)]
        text = ": ".join([_description(gang), *filter(None, parts)])
        text = "; ".join(filter(None, (text, _missing_members(snapshot, gang))))
        at = parse_timestamp(gang["metadata"].get("creationTimestamp"))
        yield Cause((name_of(gang),), text, at, next_step=_QUEUE_STEP if problem else "")
    if not waiting or any(_is_queue_unread(snapshot, gang) for gang in waiting):
        yield from _reported_wait(snapshot)


def is_unadmitted(gang: Object) -> bool:
    """Return whether Volcano has not admitted the PodGroup to its queue."""
    return _phase(gang) in UNADMITTED_PHASES


def _is_native(gang: Object) -> bool:
    """Return whether the PodGroup is that of Kubernetes itself, which has no phase."""
    return str(gang.get("apiVersion", "")).startswith(f"{NATIVE_POD_GROUPS.group}/")


def _has_started(snapshot: JobSnapshot, gang: Object) -> bool:
    if _is_native(gang):
        return is_condition_true(gang, "PodGroupInitiallyScheduled")
    if _phase(gang) in FINAL_PHASES and snapshot.pods_known:
        started = sum(status_of(pod).get("phase") in {"Running", "Succeeded"} for pod in snapshot.pods)
        return started >= int(spec_of(gang).get("minMember") or 0)
    return _phase(gang) in STARTED_PHASES | FINAL_PHASES


def _is_queue_unread(snapshot: JobSnapshot, gang: Object) -> bool:
    return bool(spec_of(gang).get("queue")) and queue_of(spec_of(gang)) not in snapshot.queues


def _phase(gang: Object) -> str:
    return str(status_of(gang).get("phase") or "")


def _description(gang: Object) -> str:
    if _is_native(gang):
        deleting = gang["metadata"].get("deletionTimestamp")
        return "PodGroup is being deleted" if deleting else "PodGroup is not scheduled"
    if _phase(gang) in FINAL_PHASES:
        return "PodGroup is starting again"
    queue = spec_of(gang).get("queue")
    phase = _phase(gang) or "has no status from its scheduler"
    return f"PodGroup {phase}" + (f" in queue {queue}" if queue else "")


def problem_of_queue(snapshot: JobSnapshot, gang: Object) -> str:
    """Return why the queue does not take an unadmitted PodGroup; empty if it does, or if it could not be read."""
    spec = spec_of(gang)
    name = queue_of(spec)
    queue = snapshot.queues.get(name) if is_unadmitted(gang) else None
    return "" if queue is None else queue_problem(name, queue, spec.get("minResources") or {})


def _last_message(snapshot: JobSnapshot, gang: Object) -> str:
    """Return the message of the newest condition if the group waits by it: Volcano keeps it when it has scheduled the group since.

    Volcano reports a group that it does not admit to its queue only by events.
    """
    conditions = status_of(gang).get("conditions") or ()
    newest: Object = max(
        conditions, key=lambda condition: str(condition.get("lastTransitionTime")), default={}
    )
    if (newest.get("type"), newest.get("status", "True")) in UNSCHEDULED and newest.get("message"):
        return str(newest["message"])
    events = snapshot.events_of(gang) if gang["metadata"].get("uid") else ()
    return next((str(event["message"]) for event in events if event.get("message")), "")


def _missing_members(snapshot: JobSnapshot, gang: Object) -> str:
    """Name the missing pods of an incomplete gang. The scheduler starts no pod of it before it is complete."""
    min_member = spec_of(gang).get("minMember") or native_gang.min_count(spec_of(gang))
    existing = [pod for pod in snapshot.pods if pod["metadata"]["uid"] not in snapshot.replaced_pod_uids]
    if not snapshot.pods_known or not 0 < len(existing) < min_member:
        return ""
    names = missing_pod_names(snapshot.job, existing)
    missing = f", missing: {first_of(names, _MAX_NAMED_MEMBERS)}" if names else ""
    return f"{len(existing)} of its {min_member} pods exist{missing}"


def _reported_wait(snapshot: JobSnapshot) -> Iterator[Cause]:
    """Yield the operator's message about the waiting gang."""
    suffixes = IdleReason.WAITING_FOR_GANG.suffixes
    for type_, status in ((ConditionType.RUNNING, "False"), (ConditionType.RESTARTING, "True")):
        found = condition(snapshot.job, type_)
        if str(found.get("reason", "")).endswith(suffixes) and found.get("status") == status:
            yield Cause(
                (), str(found.get("message") or found["reason"]), transition_time(snapshot.job, type_)
            )
