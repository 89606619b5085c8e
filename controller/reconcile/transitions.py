"""Which steps of a job's life a written status contains, for the log: one line each at info.

Events expire after an hour; the log tells the life of a job without them.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from api import conditions
from api.conditions import TRUE
from api.job import ConditionType, JobCondition, JobStatus
from controller.domain import Count, Plan
from controller.kind.idle import IdleReason

CREATED = "job created"
BLOCKED = "job blocked"
WAITING = "job waiting for pods"
WAITING_FOR_GANG = "job waiting for gang"
RUNNING = "job running"
RESTARTING = "job restarting"
SUSPENDED = "job suspended"
RESUMED = "job resumed"
SUCCEEDED = "job succeeded"
FAILED = "job failed"

_TRUE: dict[str, str] = {
    ConditionType.CREATED: CREATED,
    ConditionType.RUNNING: RUNNING,
    ConditionType.RESTARTING: RESTARTING,
    ConditionType.SUSPENDED: SUSPENDED,
    ConditionType.SUCCEEDED: SUCCEEDED,
    ConditionType.FAILED: FAILED,
}
_IDLE = {
    suffix: step
    for reason, step in (
        (IdleReason.BLOCKED, BLOCKED),
        (IdleReason.WAITING_FOR_PODS, WAITING),
        (IdleReason.WAITING_FOR_GANG, WAITING_FOR_GANG),
    )
    for suffix in reason.suffixes
}
"""Steps by the suffix of the reason. An unreadable job has such a reason in the condition that stays true."""
_WITH_PODS = frozenset({RESTARTING, FAILED})
"""Transitions that pods cause, so that what the plan reports about pods belongs to them."""
_OUTPUT = re.compile(r"(exit(?:ed with code|Code:| code) \d+[^:]*): .*", re.DOTALL)
"""An exit code, and the termination message after it. That can be the end of the container's log, which may contain secrets."""


@dataclass(frozen=True, slots=True)
class Transition:
    """One step of a job. ``step`` is one of the constants of this module, ``reason`` and ``message`` are the condition's."""

    step: str
    reason: str
    message: str
    pods: str = ""
    """The first report about a pod of the job in the same plan, such as its exit code, and how many others there are."""


def transitions(kind: str, before: JobStatus | None, plan: Plan) -> tuple[Transition, ...]:
    """Return the steps from the stored status to that of the plan, in the order of its conditions, but the creation first.

    A condition that only gets another message is no step. Neither is one that another step sets to False, such as Running at the end of
    the job. A restart while the job is still restarting is a step although no condition changes.
    """
    if plan.status is None:
        return ()
    stored = (before.conditions if before else None) or ()
    changed = [
        (step, condition)
        for condition in plan.status.conditions or ()
        if (step := _step(kind, condition)) and not _is_stored(condition, stored)
    ]
    changed.sort(key=lambda change: change[0] != CREATED)
    if not changed and Count.RESTARTED not in plan.counts:
        return ()
    restarting = conditions.find(plan.status.conditions or (), ConditionType.RESTARTING)
    if (
        restarting is not None
        and Count.RESTARTED in plan.counts
        and RESTARTING not in {step for step, _ in changed}
    ):
        changed.append((RESTARTING, restarting))
    reports = _reports(plan)
    return tuple(
        Transition(
            step,
            condition.reason or "",
            _without_output(condition.message or ""),
            reports if step in _WITH_PODS else "",
        )
        for step, condition in changed
    )


def _step(kind: str, condition: JobCondition) -> str:
    """Return the step that leads to a condition; empty if none does."""
    type_, is_true = condition.type, condition.status == TRUE
    if step := _IDLE.get((condition.reason or "").removeprefix(kind)):
        return step
    if type_ == ConditionType.SUSPENDED and not is_true:
        return RESUMED
    return _TRUE.get(type_, "") if is_true else ""


def _is_stored(condition: JobCondition, stored: Sequence[JobCondition]) -> bool:
    old = next((other for other in stored if other.type == condition.type), None)
    return old is not None and (old.status, old.reason) == (condition.status, condition.reason)


def _reports(plan: Plan) -> str:
    texts = list(dict.fromkeys(_without_output(event.message) for event in plan.events if event.similar))
    return "" if not texts else texts[0] if len(texts) == 1 else f"{texts[0]} (and {len(texts) - 1} more)"


def _without_output(text: str) -> str:
    """Return the text without the output of a container that it quotes."""
    return _OUTPUT.sub(r"\1", text)
