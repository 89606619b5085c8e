"""When a job reached which phase, as far as its objects that are still there tell; Kubernetes writes whole seconds."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from api.job import ConditionType
from rallypoint.diagnosis.case import Case
from rallypoint.diagnosis.objects import (
    FINISHED,
    Object,
    holds,
    is_finished,
    moment,
    since,
    spec_of,
    state_of,
    status_of,
    statuses,
    wanted_pods,
)

_STATES = (ConditionType.RUNNING, ConditionType.RESTARTING, ConditionType.SUSPENDED)


@dataclass(frozen=True, slots=True)
class Phase:
    """``done`` of ``wanted`` pods have reached it, the last of them ``at``; of a phase of the job itself both are 0."""

    what: str
    at: datetime | None
    done: int = 0
    wanted: int = 0


def timeline(case: Case) -> list[Phase]:
    """In the order in which jobs go through them. Of a job that is over, pods may have been cleaned up; they are not counted."""
    return list(_phases(case))


def _phases(case: Case) -> Iterator[Phase]:
    yield Phase("created", case.created)
    begun = moment(status_of(case.job).get("startTime"))
    if begun and begun > case.created:
        yield Phase("begun", begun)
    yield from _of_pods(case)
    for type_ in _STATES:
        if holds(case.job, type_):
            yield Phase(str(type_), since(case.job, type_))
    for type_ in FINISHED:
        if holds(case.job, type_):
            ended = moment(status_of(case.job).get("completionTime"))
            yield Phase(str(type_), ended or since(case.job, type_))


def _of_pods(case: Case) -> Iterator[Phase]:
    pods = [pod for pod in case.pods if pod["metadata"]["uid"] not in case.superseded]
    if not pods:
        return
    wanted = len(pods) if is_finished(case.job) else max(wanted_pods(case.job), len(pods))
    yield _reached("made", pods, _made, wanted)
    yield _reached("on a node", pods, _placed, wanted)
    if any(spec_of(pod).get("initContainers") for pod in pods):
        yield _reached("through their init containers", pods, _prepared, wanted)
    yield _reached("started", pods, _started, wanted)


def _reached(
    what: str, pods: Sequence[Object], when: Callable[[Object], datetime | None], wanted: int
) -> Phase:
    found = [at for pod in pods if (at := when(pod))]
    return Phase(what, max(found, default=None), len(found), wanted)


def _made(pod: Object) -> datetime | None:
    return moment(pod["metadata"].get("creationTimestamp"))


def _placed(pod: Object) -> datetime | None:
    """One that was made for a node has nobody to say so."""
    if not spec_of(pod).get("nodeName"):
        return None
    return (since(pod, "PodScheduled") if holds(pod, "PodScheduled") else None) or _made(pod)


def _prepared(pod: Object) -> datetime | None:
    return since(pod, "Initialized") if holds(pod, "Initialized") else None


def _started(pod: Object) -> datetime | None:
    """When the last of its containers was started, this time or before."""
    found: list[datetime] = []
    for one in statuses(pod):
        state = state_of(one, "running") or state_of(one, "terminated")
        at, made = moment(state.get("startedAt")), _made(pod)
        if at is None or (made and at < made):  # of one that could not be started, 1970 is written
            return None
        found.append(at)
    return max(found, default=None)
