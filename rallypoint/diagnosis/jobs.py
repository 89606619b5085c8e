"""Causes in the job as a whole: its manager, suspension, failed creations; or why it failed."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from api.job import ConditionType
from controller.kind.idle import IdleReason
from rallypoint.diagnosis import kueue, terminations, validation
from rallypoint.diagnosis.objects import (
    Object,
    condition,
    desired_pods,
    event_time,
    is_being_deleted,
    is_condition_true,
    is_pod_name,
    is_suspended,
    name_of,
    other_manager,
    parse_timestamp,
    reason_and_message,
    status_of,
    transition_time,
)
from rallypoint.diagnosis.snapshot import Cause, JobSnapshot, group_by_text
from rallypoint.diagnosis.terminations import Failure, failures
from rallypoint.documentation import DOCS_URL

_START_GRACE = timedelta(seconds=10)
"""A job this young needs no explanation yet."""
_CREATION_REASONS = ("FailedCreate", "MissingPermissions", "ErrResourceExists")
"""Prefixes of event reasons that report a failed creation."""
_CREATION_STEPS = {
    "already exists": (
        "delete the object with that name, or create the job under another name",
        None,
    ),
    "": (
        "fix what the message names; the operator retries within two minutes",
        "fix what the message names and create the job again",
    ),
}
"""By parts of messages about failed creations; the second one is for a job that has been deleted."""
_EVICTION_REASONS = ("Preempted", "TaintManagerEviction", "Evicted")
"""Event reasons of pods that were evicted or preempted."""


def failure_causes(snapshot: JobSnapshot) -> Iterator[Cause]:
    """Yield why a job failed: the operator's message, the pods that failed first, and the later failures."""
    failed = transition_time(snapshot.job, ConditionType.FAILED)
    text = reason_and_message(condition(snapshot.job, ConditionType.FAILED))
    again = f"fix the cause, delete the job ({_kubectl(snapshot, 'delete')}) and create it again; a failed job is never restarted"
    quote = "" if failures(snapshot.pods) else _quote_of(snapshot, text)
    yield Cause(
        (),
        text,
        failed,
        quote=quote,
        next_step=again,
        step_when_deleted="fix the cause and create the job again",
    )
    found, reported = failures(snapshot.pods), terminations.causes_from_events(snapshot)
    first = [failure for failure in found if failure.is_own and failure.at and failure.at == found[0].at]
    failed_at = first[0].at if first else failed
    earlier = [cause for cause in reported if first and cause.since and failed_at and cause.since < failed_at]
    gone = _events_of_deleted_pods(snapshot, failed_at or snapshot.now) if snapshot.pods_known else []
    gone = [event for event in gone if not (event.get("reason") == "BackOff" and _names_pod(text, event))]
    if first or reported:
        yield from (
            _cause_of_deleted_pod(snapshot, event)
            for event in gone
            if event.get("reason") in _EVICTION_REASONS
        )
    yield from (replace(cause, blocks=True) for cause in earlier)
    how = _first_failure_text(
        first, unsure=bool(earlier) or any(failure.is_own and not failure.at for failure in found)
    )
    yield from (
        Cause(
            (name_of(failure.pod),),
            f"{how}, on {failure.node}: {failure.text}",
            failure.at,
            next_step=terminations.next_step(failure.text),
        )
        for failure in first
    )
    yield from (replace(cause, blocks=not first) for cause in reported if cause not in earlier)
    yield from group_by_text(map(_later_failure, found[len(first) :]))
    if not first and not reported:
        yield from (_cause_of_deleted_pod(snapshot, event) for event in gone)


def _quote_of(snapshot: JobSnapshot, text: str) -> str:
    """Return the last log line of the deleted pod that the operator's message names; empty if it names none."""
    names = (name for name, _ in snapshot.lines_of_deleted_pods if f" {name}: " in text)
    return snapshot.last_line_of_deleted_pod(next(names, ""))


def _first_failure_text(first: Sequence[Failure], *, unsure: bool) -> str:
    """Return the text for the pods that failed at the earliest known time."""
    if len(first) > 1:
        return "failed first, in the same second"
    return "was the first known to fail" if unsure else "was the first to fail"


def _later_failure(failure: Failure) -> Cause:
    if not failure.is_own:
        how = "ended after its deletion was requested"
    else:
        how = "failed after that" if failure.at else "failed at an unknown time"
    return Cause((name_of(failure.pod),), f"{how}: {failure.text}", failure.at)


def _events_of_deleted_pods(snapshot: JobSnapshot, until: datetime) -> list[Object]:
    """Return the last termination event of each deleted pod before ``until``. Later deletions are the operator's cleanup."""
    there = {pod["metadata"]["uid"] for pod in snapshot.pods}
    newest: dict[str, Object] = {}
    for event in reversed(snapshot.newest_events):
        is_gone = event["involvedObject"].get("uid") not in there and _is_event_of_job_pod(
            event, snapshot.job
        )
        at = parse_timestamp(event_time(event))
        if is_gone and _is_termination(event) and at and snapshot.created <= at < until:
            newest[str(event["involvedObject"]["name"])] = event
    return list(newest.values())


def _names_pod(text: str, event: Object) -> bool:
    """Return whether the operator's message names the pod of an event, and thus says how it failed."""
    return f" {event['involvedObject']['name']}: " in text


def _cause_of_deleted_pod(snapshot: JobSnapshot, event: Object) -> Cause:
    """Return how the pod failed by its last state, if local mode has kept it; else the event."""
    name, uid = str(event["involvedObject"]["name"]), event["involvedObject"].get("uid")
    states = (pod.last_state for pod in snapshot.archived_pods if pod.uid == uid and pod.last_state)
    is_disruption = event.get("reason") in _EVICTION_REASONS
    failure = "" if is_disruption else terminations.failure_before_deletion(next(states, {}))
    text = f"no longer exists: {failure or reason_and_message(event)}"
    quote = snapshot.last_line_of_deleted_pod(name)
    return Cause((name,), text, parse_timestamp(event_time(event)), quote=quote)


def _is_event_of_job_pod(event: Object, job: Object) -> bool:
    """Return whether the event is about a pod with a name of this job's pods."""
    about = event["involvedObject"]
    near = about.get("namespace") in {None, job["metadata"].get("namespace")}
    return near and about.get("kind") == "Pod" and is_pod_name(job, str(about.get("name")))


def _is_termination(event: Object) -> bool:
    return event.get("type") == "Warning" or event.get("reason") in {"Killing", *_EVICTION_REASONS}


def waiting_causes(snapshot: JobSnapshot) -> Iterator[Cause]:
    """Yield the causes in an unfinished job that precede the causes in single pods."""
    yield from _deletion(snapshot)
    yield from _managed_elsewhere(snapshot) or _not_reconciled(snapshot)
    yield from _suspended(snapshot)
    yield from _creation_failures(snapshot)


def _kubectl(snapshot: JobSnapshot, verb: str) -> str:
    return f"kubectl {verb} {snapshot.job['kind'].lower()} {name_of(snapshot.job)} -n {snapshot.namespace}"


def restarting_causes(snapshot: JobSnapshot) -> Iterator[Cause]:
    """Yield the operator's message about a restart. The pods show its cause."""
    if is_condition_true(snapshot.job, ConditionType.RESTARTING):
        restarting = condition(snapshot.job, ConditionType.RESTARTING)
        yield Cause(
            (), reason_and_message(restarting), transition_time(snapshot.job, ConditionType.RESTARTING)
        )


def _deletion(snapshot: JobSnapshot) -> Iterator[Cause]:
    if is_being_deleted(snapshot.job):
        metadata = snapshot.job["metadata"]
        finalizers = ", ".join(metadata.get("finalizers") or ()) or "none"
        at = parse_timestamp(metadata["deletionTimestamp"])
        text = f"being deleted; waits for its finalizers: {finalizers}"
        yield Cause((), text, at, next_step="the controllers that set the finalizers must remove them")


def _managed_elsewhere(snapshot: JobSnapshot) -> list[Cause]:
    owner = other_manager(snapshot.job)
    if not owner:
        return []
    text = f"left to {owner} by its run policy (managedBy); operators here ignore it"
    return [Cause((), text, next_step="to run it here, create it again without managedBy")]


def _not_reconciled(snapshot: JobSnapshot) -> list[Cause]:
    """An operator sets a condition as soon as it sees a job."""
    if status_of(snapshot.job).get("conditions") or snapshot.now - snapshot.created <= _START_GRACE:
        return []
    text = "no operator has reconciled it; is an operator that serves this kind running in this cluster?"
    step = f"check that the operator is running, and its flags --namespace and --enable-scheme; see {DOCS_URL}/how-to/install.md"
    return [Cause((), text, snapshot.created, next_step=step)]


def _suspended(snapshot: JobSnapshot) -> Iterator[Cause]:
    """Name Kueue's Workload if Kueue suspended the job; otherwise a user did."""
    if not is_suspended(snapshot.job):
        return
    if snapshot.workloads:
        yield from kueue.workload_causes(snapshot)
    else:
        text = "; ".join(
            filter(None, ("suspended by its run policy (suspend: true)", kueue.missing_workload(snapshot)))
        )
        at = transition_time(snapshot.job, ConditionType.SUSPENDED)
        patch = """--type merge -p '{"spec":{"runPolicy":{"suspend":false}}}'"""
        step = f"to resume it: {_kubectl(snapshot, 'patch')} {patch}"
        if kueue.local_queue_of(snapshot.job) and snapshot.is_kueue_served:
            step = kueue.management_step(snapshot.job["kind"]) if snapshot.workloads_known else ""
        yield Cause((), text, at, next_step=step, step_when_deleted="")


def _creation_failures(snapshot: JobSnapshot) -> Iterator[Cause]:
    """Yield the operator's message about pods, or else Services, that the API server refuses."""
    missing, running = _missing(snapshot), condition(snapshot.job, ConditionType.RUNNING)
    warnings = _creation_warnings(snapshot)
    messages = [reason_and_message(event) for event in warnings]
    services = [
        event
        for event in _creation_warnings(snapshot, _START_GRACE)
        if event["reason"] == "FailedCreateService"
    ]
    if (
        str(running.get("reason", "")).endswith(IdleReason.BLOCKED.suffixes)
        and running.get("status") != "True"
    ):
        messages.insert(0, str(running.get("message") or running["reason"]))
    if messages and missing:
        step, later = next(steps for part, steps in _CREATION_STEPS.items() if part in messages[0])
        yield Cause((), f"{missing}: {messages[0]}", next_step=step, step_when_deleted=later)
    elif services:
        step = "delete the Service with that name, or create the job under another name"
        at, blocks = parse_timestamp(event_time(services[0])), running.get("status") != "True"
        yield Cause((), reason_and_message(services[0]), at, blocks, next_step=step)
    elif messages and not snapshot.pods_known:
        yield Cause((), messages[0], blocks=False)


def missing_pod_causes(snapshot: JobSnapshot) -> Iterator[Cause]:
    """Yield the missing pods if there is no other cause. A launcher may wait for workers that do not answer."""
    running = condition(snapshot.job, ConditionType.RUNNING)
    if (
        str(running.get("reason", "")).endswith(IdleReason.WAITING_FOR_PODS.suffixes)
        and running.get("status") != "True"
    ):
        yield Cause(
            (),
            str(running.get("message") or running["reason"]),
            transition_time(snapshot.job, ConditionType.RUNNING),
        )
    elif (missing := _missing(snapshot)) and snapshot.now - snapshot.created > _START_GRACE:
        event = validation.report(snapshot)
        why = f": {reason_and_message(event)}" if event else ", and no condition or event says why"
        yield Cause((), f"{missing}{why}")


def _missing(snapshot: JobSnapshot) -> str:
    wanted, made = desired_pods(snapshot.job), len(snapshot.pods) - len(snapshot.replaced_pod_uids)
    if made >= wanted or not snapshot.pods_known or is_suspended(snapshot.job):
        return ""
    return f"{wanted - made} of {wanted} pods do not exist"


def _creation_warnings(snapshot: JobSnapshot, before: timedelta = timedelta()) -> list[Object]:
    """Return the warnings about failed creations since ``before`` the last pod was created, the newest first.

    Warnings of batch Jobs that create pods of the job count too.
    """
    times = (parse_timestamp(pod["metadata"].get("creationTimestamp")) for pod in snapshot.pods)
    last = max(filter(None, times), default=None)
    return [
        event
        for event in snapshot.newest_events
        if event.get("type") == "Warning"
        and event["involvedObject"].get("kind") != "Pod"
        and str(event.get("reason", "")).startswith(_CREATION_REASONS)
        and (last is None or (parse_timestamp(event_time(event)) or snapshot.now) >= last - before)
    ]
