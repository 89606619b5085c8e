"""How containers and pods ended, in words."""

import re
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from rallypoint.diagnosis.case import Case, Cause
from rallypoint.diagnosis.objects import (
    Object,
    end_of,
    event_time,
    every_status,
    is_crash_looping,
    moment,
    name_of,
    reason_and_message,
    sidecars,
    since,
    spec_of,
    status_of,
    told_to_go_at,
)

_MESSAGE_LINES = 3
_MADE_UP = "ContainerStatusUnknown"
"""The kubelet has not found the container, and writes 137."""
EXITED = re.compile(r"Pod: [^.\s]+\.(\S+) exited with code (\d+)")
"""What the operator, as training-operator did, says of a pod before it deletes it."""


@dataclass(frozen=True, slots=True)
class Failure:
    """How a pod failed, by the first of its containers that did; ``container`` is empty when none did, as when it was evicted before."""

    pod: Object
    container: str
    at: datetime | None
    text: str
    starts_again: bool = False
    """Whether the kubelet is to start the container again."""

    @property
    def is_own(self) -> bool:
        """Whether it failed by itself, and not because it had been told to go."""
        told = told_to_go_at(self.pod)
        return told is None or (self.at is not None and self.at < told)

    @property
    def node(self) -> str:
        return spec_of(self.pod).get("nodeName") or "no node"


def failures(pods: Iterable[Object]) -> list[Failure]:
    """The earliest first; those that were told to go after all others, since that they end is no cause, as are those without a time."""
    found = [failure for pod in pods if (failure := failure_of(pod))]
    return sorted(found, key=lambda one: (not one.is_own, str(one.at or "~"), name_of(one.pod)))


def failure_of(pod: Object) -> Failure | None:
    """None of a pod that has not failed. Sidecars end by a signal when the others have ended, and are looked at last."""
    phase, beside = status_of(pod).get("phase"), sidecars(pod)
    if phase == "Succeeded":
        return None
    failed = [(one, end) for one in every_status(pod) if (end := end_of(one))]
    told = reason_and_message(status_of(pod))
    if failed:
        one, end = min(failed, key=lambda each: (each[0]["name"] in beside, str(each[1].get("finishedAt"))))
        text = f"container {one['name']} ended with {spell(end)}"
        at = moment(end.get("finishedAt")) or since(pod, "DisruptionTarget")
        return Failure(pod, one["name"], at, f"{told}; {text}" if told else text, is_crash_looping(one))
    if phase != "Failed":
        return None
    return Failure(pod, "", since(pod, "DisruptionTarget"), told or "nothing says why")


def spell(end: Object) -> str:
    """``exit code 137, killed by SIGKILL (OOMKilled)``, and the end of what the program left as its last message."""
    code, reason = end.get("exitCode") or 0, end.get("reason") or "Error"
    text = f"exit code {code}" if reason == _MADE_UP else _code(code)
    if reason not in {"Error", "Completed"}:
        text += f" ({reason})"
    if message := (end.get("message") or "").strip():
        text += f": {' / '.join(message.splitlines()[-_MESSAGE_LINES:])}"
    return text


def again_and_again(status: Object, count: int, end: Object) -> str:
    """``container pytorch ended 3 times, last with exit code 1``."""
    return f"container {status['name']} ended {times(count)}{', last' if count > 1 else ''} with {spell(end)}"


def by_events(case: Case) -> list[Cause]:
    """Pods that have failed and are gone, as the operator has told of them; one for each name and exit code, the earliest first.

    What it told of a pod that is there is seen in that. The Go operators tell it in each pass, so how often says little of theirs.
    """
    made = {name_of(pod): moment(pod["metadata"].get("creationTimestamp")) for pod in case.pods}
    found: dict[tuple[str, int], list[Object]] = {}
    for event in case.events_of(case.job):
        match, at = EXITED.match(str(event.get("message"))), moment(event_time(event))
        successor = made.get(match[1]) if match else None
        if match and int(match[2]) and not (successor and at and at > successor):
            found.setdefault((match[1], int(match[2])), []).append(event)
    causes = []
    for (name, code), events in found.items():
        count = sum(event.get("count") or 1 for event in events)
        text = (
            f"ended with {_code(code)}, told {times(count)}{'; that pod is gone' if case.pods_known else ''}"
        )
        causes.append(Cause((name,), text, moment(event_time(events[0])), blocks=False))
    return sorted(causes, key=lambda cause: str(cause.since))


def times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _code(code: int) -> str:
    killed = _signal(code - 128) if code > 128 else ""
    return f"exit code {code}, killed by {killed}" if killed else f"exit code {code}"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return ""
