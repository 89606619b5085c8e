"""When a job reached which phase, as far as its objects that are still there tell; Kubernetes writes whole seconds."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from api.job import ConditionType
from controller.diagnosis.case import Case, Object, condition, holds, moment, state_of, status_of, statuses
from controller.diagnosis.jobs import wanted_pods


@dataclass(frozen=True, slots=True)
class Phase:
    """``done`` of ``wanted`` pods have reached it, the last of them ``at``; of a phase of the job itself there are no numbers."""

    what: str
    at: datetime | None
    done: int = 0
    wanted: int = 0


def timeline(case: Case) -> list[Phase]:
    """In the order in which jobs go through them. Of a job that is over, pods may have been cleaned up; they are not counted."""
    return list(_phases(case))


def _phases(case: Case) -> Iterator[Phase]:
    yield Phase("created", case.created)
    started = moment(status_of(case.job).get("startTime"))
    if started and started > case.created:
        yield Phase("begun", started)
    if case.pods:
        over = holds(case.job, ConditionType.SUCCEEDED) or holds(case.job, ConditionType.FAILED)
        wanted = len(case.pods) if over else max(wanted_pods(case.job), len(case.pods))
        yield _of_pods("made", case.pods, _made, wanted)
        yield _of_pods("on a node", case.pods, _met("PodScheduled"), wanted)
        if any(pod["spec"].get("initContainers") for pod in case.pods):
            yield _of_pods("through their init containers", case.pods, _met("Initialized"), wanted)
        yield _of_pods("started", case.pods, _started, wanted)
    for type_ in (ConditionType.RUNNING, ConditionType.RESTARTING, ConditionType.SUSPENDED):
        told = condition(case.job, type_)
        if told.get("status") == "True":
            yield Phase(str(type_), moment(told.get("lastTransitionTime")))
    for type_ in (ConditionType.SUCCEEDED, ConditionType.FAILED):
        told = condition(case.job, type_)
        if told.get("status") == "True":
            ended = status_of(case.job).get("completionTime") or told.get("lastTransitionTime")
            yield Phase(str(type_), moment(ended))


def _of_pods(
    what: str, pods: Sequence[Object], reached: Callable[[Object], datetime | None], wanted: int
) -> Phase:
    times = [at for pod in pods if (at := reached(pod))]
    return Phase(what, max(times, default=None), len(times), wanted)


def _made(pod: Object) -> datetime | None:
    return moment(pod["metadata"]["creationTimestamp"])


def _met(type_: str) -> Callable[[Object], datetime | None]:
    def reached(pod: Object) -> datetime | None:
        told = condition(pod, type_)
        return moment(told.get("lastTransitionTime")) if told.get("status") == "True" else None

    return reached


def _started(pod: Object) -> datetime | None:
    """When the last of its containers was started, this time or before."""
    times: list[datetime] = []
    for one in statuses(pod):
        state = state_of(one, "running") or state_of(one, "terminated")
        if (at := moment(state.get("startedAt"))) is None:
            return None
        times.append(at)
    return max(times, default=None)
