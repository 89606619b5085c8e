"""Why a job does not go on: a plain function from what the API server tells to causes, the nearest to the root first.

Whoever asks the API server is elsewhere (``controller.cli.why``). No kind is named here: of a job only what all kinds share is read, so
jobs of the Go operators are understood as well.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from api.job import ConditionType
from controller.diagnosis import exits, jobs, pods
from controller.diagnosis.case import Case, Cause, Words
from controller.diagnosis.exits import failures
from controller.diagnosis.objects import (
    FINISHED,
    Object,
    holds,
    init_statuses,
    is_finished,
    is_over,
    is_told_to_go,
    name_of,
    preparations,
    since,
    spec_of,
    state_of,
    statuses,
)
from controller.diagnosis.timeline import Phase, timeline

__all__ = [
    "FINISHED",
    "Case",
    "Cause",
    "Diagnosis",
    "Object",
    "Phase",
    "Question",
    "Words",
    "diagnose",
    "is_finished",
    "nodes_in_question",
    "questions",
]

MOST_QUESTIONS = 64
"""How many containers of a job are asked for their last words, so that one of thousands is answered in seconds."""
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
        """Whether something has been found that the job waits for, or that failed it."""
        return any(cause.blocks for cause in self.causes)


def diagnose(case: Case) -> Diagnosis:
    state, at = _state(case)
    return Diagnosis(state, at, list(_causes(case, state)), timeline(case))


def _state(case: Case) -> tuple[str, datetime | None]:
    types = (*FINISHED, ConditionType.SUSPENDED, ConditionType.RESTARTING, ConditionType.RUNNING)
    for type_ in types:
        if holds(case.job, type_):
            return str(type_), since(case.job, type_)
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
        yield from exits.by_events(case)


def nodes_in_question(found: Sequence[Object]) -> list[str]:
    """Names of the nodes that are to be looked at: whose pods are not Ready, or do not go."""
    names = (
        spec_of(pod).get("nodeName")
        for pod in found
        if not is_over(pod) and (is_told_to_go(pod) or not holds(pod, "Ready"))
    )
    return list(dict.fromkeys(name for name in names if name))[:MOST_QUESTIONS]


def questions(job: Object, found: Sequence[Object]) -> list[Question]:
    """Which containers are to be asked for what they wrote: those that failed first, that end again and again, that others wait for,
    that are not Ready; last those that run."""
    if holds(job, ConditionType.SUCCEEDED):
        return []
    asked = [each for pod in found for each in _of_pod(pod)]
    return [*_of_failed(found), *(question for _, question in sorted(asked, key=lambda each: each[0]))][
        :MOST_QUESTIONS
    ]


def _of_failed(found: Sequence[Object]) -> Iterator[Question]:
    for failure in failures(found)[:_MOST_FAILURES]:
        if failure.container:
            yield Question(name_of(failure.pod), failure.container, _LINES_OF_FAILED)


def _of_pod(pod: Object) -> Iterator[tuple[int, Question]]:
    """Each with its rank."""
    for one in preparations(pod):
        yield 1, Question(name_of(pod), one["name"])
    for one in (*init_statuses(pod), *statuses(pod)):
        if state_of(one, "waiting").get("reason") == "CrashLoopBackOff":
            yield 0, Question(name_of(pod), one["name"], previous=True)
    for one in statuses(pod):
        if state_of(one, "running"):
            yield 3 if holds(pod, "Ready") else 2, Question(name_of(pod), one["name"])
