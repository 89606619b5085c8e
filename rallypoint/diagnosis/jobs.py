"""What holds a job up as a whole: who may start it, what of it cannot be made, whom its pods wait for together; or why it failed."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from api.job import ConditionType
from api.labels import MANAGED_BY_MPI_OPERATOR, MANAGED_BY_US
from rallypoint.diagnosis import exits
from rallypoint.diagnosis.case import Case, Cause, together
from rallypoint.diagnosis.exits import Failure, failures
from rallypoint.diagnosis.objects import (
    Object,
    condition,
    event_time,
    holds,
    is_suspended,
    is_told_to_go,
    missing_pods,
    moment,
    name_of,
    reason_and_message,
    roles,
    run_policy,
    since,
    status_of,
    wanted_pods,
)

_SOON = timedelta(seconds=10)
"""What takes no longer than this needs no explanation."""
_OPERATORS = (MANAGED_BY_US, MANAGED_BY_MPI_OPERATOR)
"""Whom the run policy may name without leaving the job to somebody else: of MPIJobs each version has its own."""
_QUEUE = "kueue.x-k8s.io/queue-name"
_EVICTED = "Evicted"
_BLOCKED, _WAITS = "Blocked", "WaitsForPods"
"""How the reasons of a condition end that says that others are in the way, or that the job's own pods are not far enough."""
_CREATION = ("FailedCreate", "MissingPermissions", "ErrResourceExists")
"""How the reasons of events begin that say why an object is not made."""
_TAKEN = ("Preempted", "TaintManagerEviction", "Evicted")
"""Reasons of events of pods that somebody took away."""
_NAMED = 3
"""Members of a gang that are named."""
_GATHERED = {"Running", "Scheduled", "Finished", "Completed", "Failed"}
"""Phases of a PodGroup that waits for nothing: Volcano's and those of scheduler-plugins."""


def of_failed(case: Case) -> Iterator[Cause]:
    """Why a job has failed: what the operator has said, which pods were the first to fail, and what followed."""
    failed = since(case.job, ConditionType.FAILED)
    yield Cause((), reason_and_message(condition(case.job, ConditionType.FAILED)), failed)
    found, told = failures(case.pods), exits.by_events(case)
    first = [one for one in found if one.is_own and one.at and one.at == found[0].at]
    began = first[0].at if first else failed
    before = [one for one in told if first and one.since and began and one.since < began]
    gone = _gone(case, began or case.now) if case.pods_known else []
    if first or told:
        yield from (_told_of_gone(one) for one in gone if one.get("reason") in _TAKEN)
    yield from (replace(one, blocks=True) for one in before)
    ways = _ways(first, unsure=bool(before) or any(one.is_own and not one.at for one in found))
    yield from (Cause((name_of(one.pod),), f"{ways}, on {one.node}: {one.text}", one.at) for one in first)
    yield from (replace(one, blocks=not first) for one in told if one not in before)
    yield from together(map(_later, found[len(first) :]))
    if not first and not told:
        yield from map(_told_of_gone, gone)


def _ways(first: Sequence[Failure], *, unsure: bool) -> str:
    """What is said of those who failed at the earliest time that is known."""
    if len(first) > 1:
        return "failed first, in the same second"
    return "was the first to fail of which that is known" if unsure else "was the first to fail"


def _later(failure: Failure) -> Cause:
    if not failure.is_own:
        how = "ended after it was told to go"
    else:
        how = "failed after that" if failure.at else "failed at an unknown time"
    return Cause((name_of(failure.pod),), f"{how}: {failure.text}", failure.at)


def _gone(case: Case, until: datetime) -> list[Object]:
    """Events of pods that are gone: the last of each before then; after that the operator cleans up."""
    there = {pod["metadata"]["uid"] for pod in case.pods}
    newest: dict[str, Object] = {}
    for event in reversed(case.newest_events):
        is_gone = event["involvedObject"].get("uid") not in there and _is_of_pod(event, case.job)
        at = moment(event_time(event))
        if is_gone and _ends(event) and at and case.created <= at < until:
            newest[str(event["involvedObject"]["name"])] = event
    return list(newest.values())


def _told_of_gone(event: Object) -> Cause:
    name = str(event["involvedObject"]["name"])
    return Cause((name,), f"gone: {reason_and_message(event)}", moment(event_time(event)))


def _is_of_pod(event: Object, job: Object) -> bool:
    """Whether it is of a pod that has the name of one of the job's."""
    about, places = event["involvedObject"], "|".join(re.escape(role.lower()) for role in roles(job))
    name = rf"{re.escape(name_of(job))}-({places})(-[0-9]+|-[a-z0-9]{{5}})?"
    near = about.get("namespace") in {None, job["metadata"].get("namespace")}
    return near and about.get("kind") == "Pod" and bool(re.fullmatch(name, str(about.get("name"))))


def _ends(event: Object) -> bool:
    return event.get("type") == "Warning" or event.get("reason") in {"Killing", *_TAKEN}


def of_waiting(case: Case) -> Iterator[Cause]:
    """What concerns no single pod of a job that is not finished, and is nearer to the root than what does."""
    yield from _deleted(case)
    yield from _left_to_others(case) or _untouched(case)
    yield from _suspended(case)
    yield from _unmade(case)


def of_restarting(case: Case) -> Iterator[Cause]:
    """What the operator says of it; what it does that for is seen in the pods."""
    if holds(case.job, ConditionType.RESTARTING):
        told = condition(case.job, ConditionType.RESTARTING)
        yield Cause((), reason_and_message(told), since(case.job, ConditionType.RESTARTING))


def _deleted(case: Case) -> Iterator[Cause]:
    if is_told_to_go(case.job):
        metadata = case.job["metadata"]
        finalizers = ", ".join(metadata.get("finalizers") or ()) or "none"
        at = moment(metadata["deletionTimestamp"])
        yield Cause((), f"deleted, and there until its finalizers are gone: {finalizers}", at)


def _left_to_others(case: Case) -> list[Cause]:
    owner = run_policy(case.job, "managedBy")
    if not owner or owner in _OPERATORS:
        return []
    return [Cause((), f"left to {owner} by its run policy (managedBy); no operator touches it here")]


def _untouched(case: Case) -> list[Cause]:
    """An operator says at once that it has seen a job."""
    if status_of(case.job).get("conditions") or case.now - case.created <= _SOON:
        return []
    return [Cause((), "taken up by no operator: does one run that serves this kind here?", case.created)]


def _suspended(case: Case) -> Iterator[Cause]:
    """Who holds it back, as far as that is Kueue; else it was a person."""
    if not is_suspended(case.job):
        return
    yield from (_queued(workload) for workload in case.workloads)
    if not case.workloads:
        queue = (case.job["metadata"].get("labels") or {}).get(_QUEUE)
        who = f"; Kueue has made no Workload for its queue {queue}" if queue and case.workloads_known else ""
        at = since(case.job, ConditionType.SUSPENDED)
        yield Cause((), f"suspended by its run policy (suspend: true){who}", at)


def _queued(workload: Object) -> Cause:
    """What it waits for now, before what happened to it earlier."""
    about = (name_of(workload),)
    evicted = (
        f"evicted: {reason_and_message(condition(workload, _EVICTED))}" if holds(workload, _EVICTED) else ""
    )
    waits = condition(workload, "QuotaReserved")
    if waits.get("status") == "False":
        same = waits.get("message") == condition(workload, _EVICTED).get("message")
        told = "; ".join(
            filter(None, (reason_and_message(waits) or "no quota reserved", "" if same else evicted))
        )
        return Cause(about, f"Kueue: {told}", since(workload, "QuotaReserved"))
    if evicted:
        return Cause(about, f"Kueue: {evicted}", since(workload, _EVICTED))
    for check in status_of(workload).get("admissionChecks") or ():
        if check.get("state") != "Ready":
            what = reason_and_message(
                {"reason": f"{check.get('name')} {check.get('state')}", "message": check.get("message")}
            )
            return Cause(about, f"Kueue: admission check {what}", moment(check.get("lastTransitionTime")))
    if holds(workload, "Admitted"):
        return Cause(about, "Kueue has admitted it, and not resumed it yet", since(workload, "Admitted"))
    return Cause(about, "Kueue has not decided on it")


def of_gangs(case: Case) -> Iterator[Cause]:
    """PodGroups that do not gather, with what their scheduler said last."""
    for gang in case.gangs:
        status = status_of(gang)
        phase = str(status.get("phase") or "")
        if phase not in _GATHERED:
            said = [
                one
                for one in status.get("conditions") or ()
                if one.get("message") and one.get("status") != "False"
            ]
            last = sorted(said, key=lambda one: str(one.get("lastTransitionTime")))[-1:]
            text = f"PodGroup {phase or 'not seen by its scheduler'}"
            text = ": ".join([text, *(str(one["message"]) for one in last)])
            text = "; ".join(filter(None, (text, _members_missing(case, gang))))
            yield Cause((name_of(gang),), text, moment(gang["metadata"].get("creationTimestamp")))


def _members_missing(case: Case, gang: Object) -> str:
    """Who of a gang does not exist, if others of it do: no scheduler starts them before it is complete."""
    least = (gang.get("spec") or {}).get("minMember") or 0
    there = [pod for pod in case.pods if pod["metadata"]["uid"] not in case.superseded]
    if not case.pods_known or not 0 < len(there) < least:
        return ""
    names = missing_pods(case.job, there)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    who = f", without {', '.join(names[:_NAMED])}{more}" if names else ""
    return f"it is of {least} pods, and {len(there)} exist{who}"


def _unmade(case: Case) -> Iterator[Cause]:
    """Pods that do not exist because they are refused, in the words of the operator."""
    missing, running = _missing(case), condition(case.job, ConditionType.RUNNING)
    told = [reason_and_message(one) for one in _creation_warnings(case)]
    if str(running.get("reason", "")).endswith(_BLOCKED) and running.get("status") != "True":
        told.insert(0, str(running.get("message") or running["reason"]))
    if told and missing:
        yield Cause((), f"{missing}: {told[0]}")
    elif told and not case.pods_known:
        yield Cause((), told[0], blocks=False)


def of_missing(case: Case) -> Iterator[Cause]:
    """Pods that do not exist, when nothing else says why; a launcher may wait for others that do not answer."""
    running = condition(case.job, ConditionType.RUNNING)
    if str(running.get("reason", "")).endswith(_WAITS) and running.get("status") != "True":
        yield Cause(
            (), str(running.get("message") or running["reason"]), since(case.job, ConditionType.RUNNING)
        )
    elif (missing := _missing(case)) and case.now - case.created > _SOON:
        yield Cause((), f"{missing}, and nobody says why")


def _missing(case: Case) -> str:
    wanted, made = wanted_pods(case.job), len(case.pods) - len(case.superseded)
    if made >= wanted or not case.pods_known or is_suspended(case.job):
        return ""
    return f"{wanted - made} of {wanted} pods do not exist"


def _creation_warnings(case: Case) -> list[Object]:
    """The newest first; also those of the batch Jobs that make pods of a job. What was said before the last pod was made is over."""
    times = (moment(pod["metadata"].get("creationTimestamp")) for pod in case.pods)
    last = max(filter(None, times), default=None)
    return [
        one
        for one in case.newest_events
        if one.get("type") == "Warning"
        and one["involvedObject"].get("kind") != "Pod"
        and str(one.get("reason", "")).startswith(_CREATION)
        and (last is None or (moment(event_time(one)) or case.now) >= last)
    ]
