"""The time at which a job reached each phase, from the objects that still exist. Kubernetes records whole seconds."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from api.job import ConditionType
from rallypoint.diagnosis.objects import (
    FINISHED,
    Object,
    container_statuses,
    desired_pods,
    is_condition_true,
    is_finished,
    parse_timestamp,
    spec_of,
    state_of,
    status_of,
    transition_time,
)
from rallypoint.diagnosis.snapshot import JobSnapshot

_STATES = (ConditionType.RUNNING, ConditionType.RESTARTING, ConditionType.SUSPENDED)


@dataclass(frozen=True, slots=True)
class Phase:
    """``done`` of ``total`` pods have reached the phase, the last of them ``at``. In a phase of the job itself both are 0."""

    name: str
    at: datetime | None
    done: int = 0
    total: int = 0


def timeline(snapshot: JobSnapshot) -> list[Phase]:
    """Return the phases in order. Deleted pods of a finished job do not count."""
    return list(_phases(snapshot))


def _phases(snapshot: JobSnapshot) -> Iterator[Phase]:
    yield Phase("created", snapshot.created)
    started_at = parse_timestamp(status_of(snapshot.job).get("startTime"))
    if started_at and started_at > snapshot.created:
        yield Phase("started", started_at)
    yield from _of_pods(snapshot)
    for type_ in _STATES:
        if is_condition_true(snapshot.job, type_):
            yield Phase(str(type_), transition_time(snapshot.job, type_))
    for type_ in FINISHED:
        if is_condition_true(snapshot.job, type_):
            ended = parse_timestamp(status_of(snapshot.job).get("completionTime"))
            yield Phase(str(type_), ended or transition_time(snapshot.job, type_))


def _of_pods(snapshot: JobSnapshot) -> Iterator[Phase]:
    pods = [pod for pod in snapshot.pods if pod["metadata"]["uid"] not in snapshot.replaced_pod_uids]
    if not pods:
        return
    total = len(pods) if is_finished(snapshot.job) else max(desired_pods(snapshot.job), len(pods))
    yield _reached("created", pods, _created, total)
    yield _reached("scheduled", pods, _scheduled, total)
    if any(spec_of(pod).get("initContainers") for pod in pods):
        yield _reached("initialized", pods, _initialized, total)
    yield _reached("started", pods, _started, total)


def _reached(
    name: str, pods: Sequence[Object], when: Callable[[Object], datetime | None], total: int
) -> Phase:
    found = [at for pod in pods if (at := when(pod))]
    return Phase(name, max(found, default=None), len(found), total)


def _created(pod: Object) -> datetime | None:
    return parse_timestamp(pod["metadata"].get("creationTimestamp"))


def _scheduled(pod: Object) -> datetime | None:
    """Without a condition PodScheduled, a pod that was created for a node counts as scheduled from its creation."""
    if not spec_of(pod).get("nodeName"):
        return None
    return (
        transition_time(pod, "PodScheduled") if is_condition_true(pod, "PodScheduled") else None
    ) or _created(pod)


def _initialized(pod: Object) -> datetime | None:
    return transition_time(pod, "Initialized") if is_condition_true(pod, "Initialized") else None


def _started(pod: Object) -> datetime | None:
    """Return when the last of its containers started, in this run or the previous one."""
    found: list[datetime] = []
    for status in container_statuses(pod):
        state = state_of(status, "running") or state_of(status, "terminated")
        at, made = parse_timestamp(state.get("startedAt")), _created(pod)
        if at is None or (
            made and at < made
        ):  # The kubelet writes 1970 for a container that could not start.
            return None
        found.append(at)
    return max(found, default=None)
