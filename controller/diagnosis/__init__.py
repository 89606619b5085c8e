"""Why a job does not go on: a plain function from what the API server tells to causes, the nearest to the root first.

Whoever asks the API server is elsewhere (``controller.cli.why``). Nothing here depends on a kind: of a job only what all kinds share is
read, so jobs of the Go operators are understood as well.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from api.job import ConditionType
from controller.diagnosis import jobs, pods
from controller.diagnosis.case import (
    Case,
    Cause,
    Object,
    Words,
    condition,
    holds,
    init_statuses,
    is_over,
    moment,
    name_of,
    state_of,
    statuses,
)
from controller.diagnosis.exits import failures
from controller.diagnosis.timeline import Phase, timeline

__all__ = [
    "Case",
    "Cause",
    "Diagnosis",
    "Object",
    "Phase",
    "Question",
    "Words",
    "diagnose",
    "lost_nodes",
    "questions",
]

MOST_QUESTIONS = 64
"""How many containers are asked for their last words, so that a job of thousands is answered in seconds."""
_MOST_FAILURES = 4
_LINES_OF_FAILED = 10


@dataclass(frozen=True, slots=True)
class Question:
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
        """Whether the job waits for something that has been found."""
        return any(cause.blocks for cause in self.causes)


def diagnose(case: Case) -> Diagnosis:
    state, since = _state(case)
    return Diagnosis(state, since, list(_causes(case, state)), timeline(case))


def _state(case: Case) -> tuple[str, datetime | None]:
    types = ConditionType
    for type_ in (types.SUCCEEDED, types.FAILED, types.SUSPENDED, types.RESTARTING, types.RUNNING):
        if holds(case.job, type_):
            return str(type_), moment(condition(case.job, type_).get("lastTransitionTime"))
    return "Waiting", case.created


def _causes(case: Case, state: str) -> Iterator[Cause]:
    """That pods are missing follows from whatever holds the others up, so it is told only if nothing else is."""
    if state == ConditionType.FAILED:
        yield from jobs.of_failed(case)
    elif state != ConditionType.SUCCEEDED:
        found = [*jobs.of_waiting(case), *pods.causes(case)]
        yield from found
        if not any(cause.blocks for cause in found):
            yield from jobs.of_missing(case)


def questions(job: Object, found: Sequence[Object]) -> list[Question]:
    """Which containers are to be asked for what they wrote: those that failed first, wait, end again and again, or run."""
    asked = [*_of_failed(found), *(question for pod in found for question in _of_pod(pod))]
    return asked[:MOST_QUESTIONS] if not holds(job, ConditionType.SUCCEEDED) else []


def lost_nodes(found: Sequence[Object]) -> list[str]:
    """Names of the nodes that are to be looked at: whose pods are not Ready, or do not go."""
    names = (
        pod["spec"].get("nodeName")
        for pod in found
        if not is_over(pod) and ("deletionTimestamp" in pod["metadata"] or not holds(pod, "Ready"))
    )
    return list(dict.fromkeys(name for name in names if name))[:MOST_QUESTIONS]


def _of_failed(found: Sequence[Object]) -> Iterator[Question]:
    for failure in failures(found)[:_MOST_FAILURES]:
        if failure.status:
            yield Question(name_of(failure.pod), failure.status["name"], _LINES_OF_FAILED)


def _of_pod(pod: Object) -> Iterator[Question]:
    for one in (*init_statuses(pod), *statuses(pod)):
        if state_of(one, "running"):
            yield Question(name_of(pod), one["name"])
        elif state_of(one, "waiting").get("reason") == "CrashLoopBackOff":
            yield Question(name_of(pod), one["name"], previous=True)
