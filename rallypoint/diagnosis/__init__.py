"""Why a job does not progress: pure functions from API objects to causes, root causes first.

``rallypoint.cli.job_reader`` reads the API server. This package reads only the fields that all kinds share, so it also understands jobs of the
Go operators.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from api.job import ConditionType
from rallypoint.diagnosis import (
    gangs,
    hangs,
    jobs,
    kueue,
    output,
    pods,
    rendezvous,
    resources,
    terminations,
    validation,
)
from rallypoint.diagnosis.objects import (
    FINISHED,
    Object,
    container_statuses,
    is_being_deleted,
    is_condition_true,
    is_pod_terminal,
    name_of,
    parse_timestamp,
    running_init_statuses,
    spec_of,
    state_of,
    transition_time,
)
from rallypoint.diagnosis.snapshot import ArchivedPod, Cause, JobSnapshot, LastLines
from rallypoint.diagnosis.terminations import failures
from rallypoint.diagnosis.timeline import Phase, Restart, Span, Timeline, phases_and_timeline, timeline

__all__ = [
    "LINES_OF_FAILURE",
    "MAX_DETAILED_FAILURES",
    "MAX_READS",
    "ArchivedPod",
    "Cause",
    "Diagnosis",
    "JobSnapshot",
    "LastLines",
    "LogRequest",
    "Phase",
    "Restart",
    "Span",
    "Timeline",
    "diagnose",
    "log_requests",
    "nodes_to_read",
    "state_of_job",
    "timeline",
]

MAX_READS = 64
"""The largest number of container logs, and of nodes, to read for a job, so that a job of thousands of pods takes seconds."""
MAX_DETAILED_FAILURES = 4
LINES_OF_FAILURE = 10
NO_CAUSE = "No cause found in the cluster's objects."


@dataclass(frozen=True, slots=True)
class LogRequest:
    """A request for the last ``lines`` of a container's log, of its previous run if ``previous``."""

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
    phases: Sequence[Phase]
    timeline: Timeline = field(default_factory=lambda: Timeline((), ()))
    summary: str = NO_CAUSE
    """What to say of the job if no cause blocks it."""

    @property
    def blocked(self) -> bool:
        """Whether a cause blocks the job or failed it."""
        return any(cause.blocks for cause in self.causes)


def diagnose(snapshot: JobSnapshot) -> Diagnosis:
    state, at = state_of_job(snapshot.job)
    causes = list(_causes(snapshot, state))
    if snapshot.is_deleted:
        causes = list(map(_as_of_deleted_job, causes))
    return Diagnosis(state, at, causes, *phases_and_timeline(snapshot), _summary(snapshot, state))


def _summary(snapshot: JobSnapshot, state: str) -> str:
    """Return ``Diagnosis.summary``."""
    if state == ConditionType.SUCCEEDED:
        return "The job succeeded."
    if state != ConditionType.RUNNING:
        return NO_CAUSE
    # The notes about a rendezvous say more of silent pods.
    progress = "" if any(rendezvous.causes(snapshot)) else output.progress(snapshot)
    return "; ".join(filter(None, ("The job is running, and its objects show no problem", progress))) + "."


def _as_of_deleted_job(cause: Cause) -> Cause:
    return cause if cause.step_when_deleted is None else replace(cause, next_step=cause.step_when_deleted)


def state_of_job(job: Object) -> tuple[str, datetime | None]:
    """Return the state as in ``Diagnosis``, and since when; for a job that waits, its creation."""
    types = (*FINISHED, ConditionType.SUSPENDED, ConditionType.RESTARTING, ConditionType.RUNNING)
    for type_ in types:
        if is_condition_true(job, type_):
            return str(type_), transition_time(job, type_)
    return "Waiting", parse_timestamp(job["metadata"].get("creationTimestamp"))


def _causes(snapshot: JobSnapshot, state: str) -> Iterator[Cause]:
    """Yield the causes, root causes first.

    A PodGroup that cannot start is the root cause, unless no node fits one of its pods. Missing pods follow from what blocks the others,
    so they count only if nothing else blocks. Silent pods count only if all others run.
    """
    if state == ConditionType.FAILED:
        yield from jobs.failure_causes(snapshot)
        yield from hangs.causes(snapshot)
    elif state != ConditionType.SUCCEEDED:
        too_large = resources.too_large_requests(snapshot)
        of_gangs, of_pods = list(gangs.causes(snapshot)), _without_vain_steps(snapshot, too_large.values())
        unschedulable = any(map(pods.is_unschedulable, snapshot.pods))
        ordered = of_pods + of_gangs if unschedulable else of_gangs + of_pods
        found = [
            *jobs.waiting_causes(snapshot),
            *validation.causes(snapshot),
            *ordered,
            *resources.causes(snapshot, too_large),
        ]
        if not any(cause.blocks for cause in found):
            found += rendezvous.causes(snapshot)
        found += [*jobs.restarting_causes(snapshot), *kueue.unmanaged_causes(snapshot)]
        found += hangs.causes(snapshot)
        yield from found
        if not any(cause.blocks for cause in found):
            yield from jobs.missing_pod_causes(snapshot)
        yield from terminations.causes_from_events(snapshot)


def _without_vain_steps(snapshot: JobSnapshot, too_large: Iterable[Cause]) -> list[Cause]:
    """Return the causes in pods. Nothing helps pods that no node can hold but what ``resources`` says of them."""
    names = {name for cause in too_large for name in cause.about}
    return [
        replace(cause, next_step="") if cause.about and names.issuperset(cause.about) else cause
        for cause in pods.causes(snapshot)
    ]


def nodes_to_read(found: Sequence[Object]) -> list[str]:
    """Return the names of the nodes to read: those with pods that are not Ready or are being deleted."""
    names = (
        spec_of(pod).get("nodeName")
        for pod in found
        if not is_pod_terminal(pod) and (is_being_deleted(pod) or not is_condition_true(pod, "Ready"))
    )
    return list(dict.fromkeys(name for name in names if name))[:MAX_READS]


def log_requests(job: Object, found: Sequence[Object]) -> list[LogRequest]:
    """Return the logs to read, the most important first.

    Containers that failed first come first, then crash-looping containers, running init containers, containers of pods that are not Ready,
    and the other running containers.
    """
    if is_condition_true(job, ConditionType.SUCCEEDED):
        return []
    requests = [*_requests_of_failed(found), *(request for pod in found for request in _requests_of_pod(pod))]
    unique: dict[tuple[str, str], LogRequest] = {}
    for _, request in sorted(requests, key=lambda ranked: ranked[0]):
        unique.setdefault((request.pod, request.container), request)
    return list(unique.values())[:MAX_READS]


def _requests_of_failed(found: Sequence[Object]) -> Iterator[tuple[int, LogRequest]]:
    """Yield each request with its rank. The first failures get more than one line."""
    for number, failure in enumerate(failures(found)):
        if failure.container:
            lines = LINES_OF_FAILURE if number < MAX_DETAILED_FAILURES else 1
            yield (
                number >= MAX_DETAILED_FAILURES,
                LogRequest(name_of(failure.pod), failure.container, lines, failure.starts_again),
            )


def _requests_of_pod(pod: Object) -> Iterator[tuple[int, LogRequest]]:
    """Yield each request with its rank."""
    for status in running_init_statuses(pod):
        yield 2, LogRequest(name_of(pod), status["name"])
    for status in container_statuses(pod):
        if state_of(status, "running"):
            yield 4 if is_condition_true(pod, "Ready") else 3, LogRequest(name_of(pod), status["name"])
