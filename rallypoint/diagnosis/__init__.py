"""Why a job does not go on: a plain function from what the API server tells to causes, the nearest to the root first.

Whoever asks the API server is elsewhere (``rallypoint.cli.why``). No kind is named here: of a job only what all kinds share is read, so
jobs of the Go operators are understood as well.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from api.job import ConditionType
from rallypoint.diagnosis import exits, jobs, pods
from rallypoint.diagnosis.case import Case, Cause, Words
from rallypoint.diagnosis.exits import failures
from rallypoint.diagnosis.objects import (
    FINISHED,
    Object,
    holds,
    is_over,
    is_told_to_go,
    name_of,
    preparations,
    since,
    spec_of,
    state_of,
    statuses,
)
from rallypoint.diagnosis.timeline import Phase, timeline

__all__ = [
    "Case",
    "Cause",
    "Diagnosis",
    "Phase",
    "Question",
    "Words",
    "diagnose",
    "nodes_in_question",
    "questions",
]

MOST_ASKED = 64
"""How many containers of a job are asked for their last words, and how many nodes how they are, so that one of thousands is answered in
seconds."""
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
    """A PodGroup that does not gather is the root unless nodes refuse one of its pods. That pods are missing follows from whatever holds
    the others up, so it is told only if nothing else is."""
    if state == ConditionType.FAILED:
        yield from jobs.of_failed(case)
    elif state != ConditionType.SUCCEEDED:
        gangs, of_pods = list(jobs.of_gangs(case)), list(pods.causes(case))
        refused = any(map(pods.is_refused_by_nodes, case.pods))
        in_turn = of_pods + gangs if refused else gangs + of_pods
        found = [*jobs.of_waiting(case), *in_turn, *jobs.of_restarting(case)]
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
    return list(dict.fromkeys(name for name in names if name))[:MOST_ASKED]


def questions(job: Object, found: Sequence[Object]) -> list[Question]:
    """Which containers are to be asked for what they wrote: those that failed first, that end again and again, that others wait for,
    that are not Ready; last those that run."""
    if holds(job, ConditionType.SUCCEEDED):
        return []
    asked = [*_of_failed(found), *(each for pod in found for each in _of_pod(pod))]
    once: dict[tuple[str, str], Question] = {}
    for _, question in sorted(asked, key=lambda each: each[0]):
        once.setdefault((question.pod, question.container), question)
    return list(once.values())[:MOST_ASKED]


def _of_failed(found: Sequence[Object]) -> Iterator[tuple[int, Question]]:
    """Each with its rank; the first of them are worth more than one line."""
    for number, one in enumerate(failures(found)):
        if one.container:
            lines = _LINES_OF_FAILED if number < _MOST_FAILURES else 1
            yield number >= _MOST_FAILURES, Question(name_of(one.pod), one.container, lines, one.starts_again)


def _of_pod(pod: Object) -> Iterator[tuple[int, Question]]:
    """Each with its rank."""
    for one in preparations(pod):
        yield 2, Question(name_of(pod), one["name"])
    for one in statuses(pod):
        if state_of(one, "running"):
            yield 4 if holds(pod, "Ready") else 3, Question(name_of(pod), one["name"])
