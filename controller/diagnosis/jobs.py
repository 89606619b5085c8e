"""What holds a job up as a whole: who may start it, what of it cannot be made, whom its pods wait for together; or why it failed."""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

from api.job import ConditionType
from api.labels import MANAGED_BY_US
from controller.diagnosis import exits
from controller.diagnosis.case import Case, Cause, together
from controller.diagnosis.exits import failures
from controller.diagnosis.objects import (
    Object,
    condition,
    event_time,
    holds,
    is_suspended,
    is_told_to_go,
    moment,
    name_of,
    reason_and_message,
    roles,
    run_policy,
    since,
    status_of,
    superseded,
    wanted_pods,
)

SOON = timedelta(seconds=10)
"""What takes no longer than this needs no explanation."""
_OPERATORS = (MANAGED_BY_US, "kubeflow.org/mpi-operator")
"""Whom the run policy may name without leaving the job to somebody else: of MPIJobs each version has its own."""
_QUEUE = "kueue.x-k8s.io/queue-name"
_EVICTED = "Evicted"
_HELD_UP = ("HeldUp", "WaitsForPods")
"""How the reasons of a condition end that says what a job waits for."""
_CREATION = ("FailedCreate", "RightsMissing", "ErrResourceExists")
"""How the reasons of events begin that say why an object is not made."""
_ENDS = {"Killing", "Preempted", "TaintManagerEviction"}
"""Reasons of events of the type Normal that tell why a pod ended."""
_GATHERED = {"Running", "Scheduled", "Finished", "Completed", "Failed"}
"""Phases of a PodGroup that waits for nothing: Volcano's and those of scheduler-plugins."""


def of_failed(case: Case) -> Iterator[Cause]:
    """Why a job has failed: what the operator has said, which pods were the first to fail, and what followed."""
    failed = condition(case.job, ConditionType.FAILED)
    yield Cause((), reason_and_message(failed), since(case.job, ConditionType.FAILED))
    found = failures(case.pods)
    first = [one for one in found if one.is_own and one.at and one.at == found[0].at]
    ways = "was the first to fail" if len(first) == 1 else "failed first, in the same second"
    for one in first:
        yield Cause((name_of(one.pod),), f"{ways}, {one.place.partition(' ')[2]}: {one.text}", one.at)
    told = list(exits.by_events(case))
    yield from (replace(one, blocks=not first) for one in told)
    known = {name for one in told for name in one.about} | {name_of(one.pod) for one in found}
    after = "failed after that" if first else "failed"
    yield from together(
        Cause((name_of(one.pod),), f"{after if one.at else 'failed at an unknown time'}: {one.text}", one.at)
        for one in found[len(first) :]
    )
    if not first and not told:
        yield from _gone(case, known)


def _gone(case: Case, known: set[str]) -> Iterator[Cause]:
    """What events still tell of pods that are gone: the last of each before the job failed, after which the operator cleans up."""
    there = known | {name_of(pod) for pod in case.pods}
    failed = since(case.job, ConditionType.FAILED) or case.now
    newest: dict[str, Object] = {}
    for event in sorted(case.events, key=event_time):
        name, at = str(event["involvedObject"].get("name")), moment(event_time(event))
        if (
            _is_of_pod(event, case.job)
            and name not in there
            and _ends(event)
            and at
            and case.created <= at < failed
        ):
            newest[name] = event
    for name, event in newest.items():
        yield Cause((name,), f"gone: {reason_and_message(event)}", moment(event_time(event)))


def _is_of_pod(event: Object, job: Object) -> bool:
    """Whether it is of a pod that has the name of one of the job's."""
    about, places = event["involvedObject"], "|".join(re.escape(role.lower()) for role in roles(job))
    name = rf"{re.escape(name_of(job))}-({places})(-[0-9]+|-[a-z0-9]{{5}})?"
    near = about.get("namespace") in {None, job["metadata"].get("namespace")}
    return near and about.get("kind") == "Pod" and bool(re.fullmatch(name, str(about.get("name"))))


def _ends(event: Object) -> bool:
    return event.get("type") == "Warning" or event.get("reason") in _ENDS


def of_waiting(case: Case) -> Iterator[Cause]:
    """What concerns no single pod of a job that is not finished."""
    yield from _deleted(case)
    yield from _left_to_others(case) or _untouched(case)
    yield from _suspended(case)
    yield from _gangs(case)
    yield from _unmade(case)
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
    if status_of(case.job).get("conditions") or case.now - case.created <= SOON:
        return []
    return [Cause((), "taken up by no operator: does one run that serves this kind here?", case.created)]


def _suspended(case: Case) -> Iterator[Cause]:
    """Who holds it back, as far as that is Kueue; else it was a person."""
    if not is_suspended(case.job):
        return
    yield from (_queued(workload) for workload in case.workloads)
    if not case.workloads:
        queue = (case.job["metadata"].get("labels") or {}).get(_QUEUE)
        who = f"; Kueue has made no Workload for its queue {queue}" if queue else ""
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
        told = "; ".join(filter(None, (reason_and_message(waits) or "no quota reserved", evicted)))
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


def _gangs(case: Case) -> Iterator[Cause]:
    for gang in case.gangs:
        status = status_of(gang)
        phase = str(status.get("phase") or "")
        if phase not in _GATHERED:
            told = [str(one["message"]) for one in status.get("conditions") or () if one.get("message")]
            text = ": ".join([f"PodGroup {phase or 'not seen by its scheduler'}", *told[:1]])
            yield Cause((name_of(gang),), text, moment(gang["metadata"].get("creationTimestamp")))


def _unmade(case: Case) -> Iterator[Cause]:
    """Pods that do not exist, and what the operator has last said of that."""
    missing = _missing(case)
    running = condition(case.job, ConditionType.RUNNING)
    told = [reason_and_message(one) for one in _creation_warnings(case)]
    if str(running.get("reason", "")).endswith(_HELD_UP) and running.get("status") != "True":
        told.insert(0, str(running.get("message") or running["reason"]))
    if told and missing:
        yield Cause((), f"{missing}: {told[0]}")
    elif told and not case.pods_known:
        yield Cause((), told[0], blocks=False)


def of_missing(case: Case) -> Iterator[Cause]:
    """Pods that do not exist, when nothing else says why."""
    if (missing := _missing(case)) and case.now - case.created > SOON:
        yield Cause((), f"{missing}, and nobody says why")


def _missing(case: Case) -> str:
    wanted, made = wanted_pods(case.job), len(case.pods) - len(superseded(case.pods))
    if made >= wanted or not case.pods_known or is_suspended(case.job):
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
