"""What holds a job up as a whole: who may start it, what of it cannot be made, whom its pods wait for together."""

from collections.abc import Iterator
from datetime import timedelta

from api.job import ConditionType
from api.labels import MANAGED_BY_US
from controller.diagnosis.case import (
    Case,
    Cause,
    Object,
    condition,
    event_time,
    moment,
    name_of,
    roles,
    run_policy,
    status_of,
    together,
)
from controller.diagnosis.exits import failures

SOON = timedelta(seconds=10)
"""What takes no longer than this needs no explanation."""
_OPERATORS = (MANAGED_BY_US, "kubeflow.org/mpi-operator")
_QUEUE = "kueue.x-k8s.io/queue-name"
_HELD_UP = ("HeldUp", "WaitsForPods")
"""How the reasons of a condition end that says what a job waits for."""
_CREATION = ("FailedCreate", "RightsMissing", "ErrResourceExists")
"""How the reasons of events begin that say why an object is not made."""
_ENDS = {"Killing", "Preempted", "TaintManagerEviction"}
"""Reasons of events of the type Normal that tell why a pod ended."""
_GATHERED = {"Running", "Scheduled", "Finished", "Completed", "Failed"}
"""Phases of a PodGroup that waits for nothing: Volcano's and those of scheduler-plugins."""


def of_failed(case: Case) -> Iterator[Cause]:
    """Why a job has failed: what the operator has said, which pod was the first to fail, and what followed."""
    told = condition(case.job, ConditionType.FAILED)
    yield Cause((), f"{told.get('reason')}: {told.get('message')}", moment(told.get("lastTransitionTime")))
    found = failures(case.pods)
    for first in found[:1]:
        node = first.pod["spec"].get("nodeName") or "no node"
        yield Cause((name_of(first.pod),), f"was the first to fail, on {node}: {first.text}", first.at)
    after = (Cause((name_of(one.pod),), f"failed after that: {one.text}", one.at) for one in found[1:])
    yield from together(after)
    if not found:
        yield from _last_seen(case)


def _last_seen(case: Case) -> Iterator[Cause]:
    """What events still tell of pods that are gone."""
    there = {name_of(pod) for pod in case.pods}
    newest: dict[str, Object] = {}
    for event in sorted(case.events, key=event_time):
        about = event["involvedObject"]
        if about.get("kind") == "Pod" and about["name"] not in there and _ends(event):
            newest[about["name"]] = event
    for name, event in newest.items():
        yield Cause((name,), f"is gone: {event['reason']}: {event['message']}", moment(event_time(event)))


def _ends(event: Object) -> bool:
    return event.get("type") == "Warning" or event.get("reason") in _ENDS


def of_waiting(case: Case) -> Iterator[Cause]:
    """What concerns no single pod of a job that is not finished."""
    yield from _deleted(case)
    yield from _others(case)
    yield from _suspended(case)
    yield from _untouched(case)
    yield from _gangs(case)
    yield from _refused(case)


def _deleted(case: Case) -> Iterator[Cause]:
    metadata = case.job["metadata"]
    if "deletionTimestamp" in metadata:
        finalizers = ", ".join(metadata.get("finalizers") or ()) or "none"
        since = moment(metadata["deletionTimestamp"])
        yield Cause((), f"it is deleted, and goes when its finalizers do: {finalizers}", since)


def _others(case: Case) -> Iterator[Cause]:
    owner = run_policy(case.job, "managedBy")
    if owner not in {None, *_OPERATORS}:
        yield Cause((), f"its run policy leaves it to {owner} (managedBy); no operator touches it here", None)


def _suspended(case: Case) -> Iterator[Cause]:
    """Who holds it back, as far as that is Kueue; else it was a person."""
    if run_policy(case.job, "suspend") is not True:
        return
    since = moment(condition(case.job, ConditionType.SUSPENDED).get("lastTransitionTime"))
    yield from (_queued(workload) for workload in case.workloads)
    if not case.workloads:
        queue = (case.job["metadata"].get("labels") or {}).get(_QUEUE)
        who = f"; Kueue has made no Workload for its queue {queue}" if queue else ""
        yield Cause((), f"its run policy says suspend: true{who}", since)


def _queued(workload: Object) -> Cause:
    for type_, bad in (
        ("Finished", "True"),
        ("Evicted", "True"),
        ("QuotaReserved", "False"),
        ("Admitted", "False"),
    ):
        told = condition(workload, type_)
        if told.get("status") == bad:
            text = f"Kueue: {told.get('reason')}: {told.get('message')}"
            return Cause((name_of(workload),), text, moment(told.get("lastTransitionTime")))
    return Cause((name_of(workload),), "Kueue has not decided on it", None)


def _untouched(case: Case) -> Iterator[Cause]:
    """An operator says at once that it has seen a job."""
    if not status_of(case.job).get("conditions") and case.now - case.created > SOON:
        yield Cause((), "no operator has taken it up: does one run that serves this kind here?", case.created)


def _gangs(case: Case) -> Iterator[Cause]:
    for gang in case.gangs:
        status = status_of(gang)
        phase = str(status.get("phase") or "")
        if phase not in _GATHERED:
            told = [str(one["message"]) for one in status.get("conditions") or () if one.get("message")]
            text = ": ".join([f"PodGroup {phase or 'not seen by its scheduler'}", *told[:1]])
            yield Cause((name_of(gang),), text, moment(gang["metadata"]["creationTimestamp"]))


def _refused(case: Case) -> Iterator[Cause]:
    """Pods that do not exist, and what the operator has last said of that."""
    missing = _missing(case)
    running = condition(case.job, ConditionType.RUNNING)
    told = [f"{one['reason']}: {one['message']}" for one in _creation_warnings(case)]
    if str(running.get("reason", "")).endswith(_HELD_UP) and running.get("status") != "True":
        told.insert(0, str(running["message"]))
    if told and missing:
        yield Cause((), f"{missing}: {told[0]}", None)
    elif told and not case.pods_known:
        yield Cause((), told[0], None, blocks=False)


def of_missing(case: Case) -> Iterator[Cause]:
    """Pods that do not exist, when nothing else says why."""
    if (missing := _missing(case)) and case.now - case.created > SOON:
        yield Cause((), f"{missing}, and nobody says why", None)


def _missing(case: Case) -> str:
    wanted, made = wanted_pods(case.job), len(case.pods)
    if made >= wanted or not case.pods_known or run_policy(case.job, "suspend") is True:
        return ""
    return f"{wanted - made} of {wanted} pods do not exist"


def _creation_warnings(case: Case) -> list[Object]:
    """The newest first; also those of the batch Jobs that make pods of a job."""
    found = [
        one
        for one in case.events
        if one.get("type") == "Warning"
        and one["involvedObject"].get("kind") != "Pod"
        and str(one.get("reason", "")).startswith(_CREATION)
    ]
    return sorted(found, key=event_time, reverse=True)


def wanted_pods(job: Object) -> int:
    """How many the spec asks for."""
    return sum(1 if (count := role.get("replicas")) is None else count for role in roles(job).values())
