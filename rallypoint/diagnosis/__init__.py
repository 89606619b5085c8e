"""Why a job does not go on: a plain function from what the API server tells to causes, the nearest to the root first.

Whoever asks the API server is elsewhere (``rallypoint.cli.why``). No kind is named here: of a job only what all kinds share is read, so
jobs of the Go operators are understood as well.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from api.job import ConditionType
from rallypoint.diagnosis import jobs, pods, terminations
from rallypoint.diagnosis.objects import (
    FINISHED,
    Object,
    container_statuses,
    is_being_deleted,
    is_condition_true,
    is_pod_terminal,
    name_of,
    running_init_statuses,
    spec_of,
    state_of,
    transition_time,
)
from rallypoint.diagnosis.snapshot import Cause, JobSnapshot, LastLines
from rallypoint.diagnosis.terminations import failures
from rallypoint.diagnosis.timeline import Phase, timeline

__all__ = [
    "Cause",
    "Diagnosis",
    "JobSnapshot",
    "LastLines",
    "LogRequest",
    "Phase",
    "diagnose",
    "log_requests",
    "nodes_to_read",
]

MAX_READS = 64
"""How many containers of a job are asked for their last words, and how many nodes how they are, so that one of thousands is answered in
seconds."""
_MAX_DETAILED_FAILURES = 4
_LINES_OF_FAILURE = 10


@dataclass(frozen=True, slots=True)
class LogRequest:
    """Of a container: its last ``lines``, those of the run before this one if ``previous``."""

    pod: str
    container: str
    lines: int = 1
    previous: bool = False


@dataclass(frozen=True, slots=True)
class Diagnosis:
    state: str
    """``Succeeded``, ``Failed``, ``Suspended``, ``Restarting``, ``Running`` or ``Waiting``."""
    since: datetime | None
    causes: Sequence[Cause]
    timeline: Sequence[Phase]

    @property
    def blocked(self) -> bool:
        """Whether something has been found that the job waits for, or that failed it."""
        return any(cause.blocks for cause in self.causes)


def diagnose(snapshot: JobSnapshot) -> Diagnosis:
    state, at = _state(snapshot)
    return Diagnosis(state, at, list(_causes(snapshot, state)), timeline(snapshot))


def _state(snapshot: JobSnapshot) -> tuple[str, datetime | None]:
    types = (*FINISHED, ConditionType.SUSPENDED, ConditionType.RESTARTING, ConditionType.RUNNING)
    for type_ in types:
        if is_condition_true(snapshot.job, type_):
            return str(type_), transition_time(snapshot.job, type_)
    return "Waiting", snapshot.created


def _causes(snapshot: JobSnapshot, state: str) -> Iterator[Cause]:
    """A PodGroup that does not gather is the root unless nodes refuse one of its pods. That pods are missing follows from whatever holds
    the others up, so it is told only if nothing else is."""
    if state == ConditionType.FAILED:
        yield from jobs.failure_causes(snapshot)
    elif state != ConditionType.SUCCEEDED:
        gangs, of_pods = list(jobs.gang_causes(snapshot)), list(pods.causes(snapshot))
        unschedulable = any(map(pods.is_unschedulable, snapshot.pods))
        ordered = of_pods + gangs if unschedulable else gangs + of_pods
        found = [*jobs.waiting_causes(snapshot), *ordered, *jobs.restarting_causes(snapshot)]
        yield from found
        if not any(cause.blocks for cause in found):
            yield from jobs.missing_pod_causes(snapshot)
        yield from terminations.causes_from_events(snapshot)


def nodes_to_read(found: Sequence[Object]) -> list[str]:
    """Names of the nodes that are to be looked at: whose pods are not Ready, or do not go."""
    names = (
        spec_of(pod).get("nodeName")
        for pod in found
        if not is_pod_terminal(pod) and (is_being_deleted(pod) or not is_condition_true(pod, "Ready"))
    )
    return list(dict.fromkeys(name for name in names if name))[:MAX_READS]


def log_requests(job: Object, found: Sequence[Object]) -> list[LogRequest]:
    """Which containers are to be asked for what they wrote: those that failed first, that end again and again, that others wait for,
    that are not Ready; last those that run."""
    if is_condition_true(job, ConditionType.SUCCEEDED):
        return []
    requests = [*_requests_of_failed(found), *(request for pod in found for request in _requests_of_pod(pod))]
    unique: dict[tuple[str, str], LogRequest] = {}
    for _, request in sorted(requests, key=lambda ranked: ranked[0]):
        unique.setdefault((request.pod, request.container), request)
    return list(unique.values())[:MAX_READS]


def _requests_of_failed(found: Sequence[Object]) -> Iterator[tuple[int, LogRequest]]:
    """Each with its rank; the first of them are worth more than one line."""
    for number, failure in enumerate(failures(found)):
        if failure.container:
            lines = _LINES_OF_FAILURE if number < _MAX_DETAILED_FAILURES else 1
            yield (
                number >= _MAX_DETAILED_FAILURES,
                LogRequest(name_of(failure.pod), failure.container, lines, failure.starts_again),
            )


def _requests_of_pod(pod: Object) -> Iterator[tuple[int, LogRequest]]:
    """Each with its rank."""
    for status in running_init_statuses(pod):
        yield 2, LogRequest(name_of(pod), status["name"])
    for status in container_statuses(pod):
        if state_of(status, "running"):
            yield 4 if is_condition_true(pod, "Ready") else 3, LogRequest(name_of(pod), status["name"])
