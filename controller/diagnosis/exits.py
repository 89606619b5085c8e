"""How containers and pods ended, in words."""

import re
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from controller.diagnosis.case import Case, Cause
from controller.diagnosis.objects import (
    Object,
    event_time,
    init_statuses,
    is_told_to_go,
    moment,
    name_of,
    reason_and_message,
    sidecars,
    since,
    spec_of,
    state_of,
    status_of,
    statuses,
)

_MESSAGE_LINES = 3
_EXITED = re.compile(r"Pod: [^.\s]+\.(\S+) exited with code (\d+)")
"""What the operator, as training-operator did, says of a pod before it deletes it."""


@dataclass(frozen=True, slots=True)
class Failure:
    """How a pod failed, by the first of its containers that did; ``container`` is empty when none did, as when it was evicted before."""

    pod: Object
    container: str
    at: datetime | None
    text: str

    @property
    def is_own(self) -> bool:
        """Whether it failed by itself, and not because it had been told to go."""
        return not is_told_to_go(self.pod)

    @property
    def place(self) -> str:
        return f"{name_of(self.pod)} on {spec_of(self.pod).get('nodeName') or 'no node'}"


def failures(pods: Iterable[Object]) -> list[Failure]:
    """The earliest first; those that were told to go after all others, since that they end is no cause, as are those without a time."""
    found = [failure for pod in pods if (failure := failure_of(pod))]
    return sorted(found, key=lambda one: (not one.is_own, str(one.at or "~"), name_of(one.pod)))


def failure_of(pod: Object) -> Failure | None:
    """None of a pod that has not failed. Sidecars end by a signal when the others have ended, and are looked at last."""
    phase, beside = status_of(pod).get("phase"), sidecars(pod)
    if phase == "Succeeded":
        return None
    ends = [(one, state_of(one, "terminated")) for one in (*init_statuses(pod), *statuses(pod))]
    failed = [(one, end) for one, end in ends if end.get("exitCode")]
    told = reason_and_message(status_of(pod))
    if failed:
        one, end = min(failed, key=lambda each: (each[0]["name"] in beside, str(each[1].get("finishedAt"))))
        text = f"container {one['name']} ended with {spell(end)}"
        return Failure(pod, one["name"], moment(end.get("finishedAt")), f"{told}; {text}" if told else text)
    if phase != "Failed":
        return None
    return Failure(pod, "", since(pod, "Ready"), told or "nothing says why")


def spell(end: Object) -> str:
    """``exit code 137, killed by SIGKILL (OOMKilled)``, and the end of what the program left as its last message."""
    code = end.get("exitCode") or 0
    text = _code(code)
    if (reason := end.get("reason") or "Error") not in {"Error", "Completed"}:
        text += f" ({reason})"
    if message := (end.get("message") or "").strip():
        text += f": {' / '.join(message.splitlines()[-_MESSAGE_LINES:])}"
    return text


def by_events(case: Case) -> Iterator[Cause]:
    """Pods that have failed and are gone, as the operator has told of them; one for each name and exit code."""
    found: dict[tuple[str, int], list[Object]] = {}
    for event in case.events_of(case.job):
        if match := _EXITED.match(str(event.get("message"))):
            found.setdefault((match[1], int(match[2])), []).append(event)
    there = {
        (name_of(pod), state_of(one, "terminated").get("exitCode"))
        for pod in case.pods
        for one in statuses(pod)
    }
    for (name, code), events in found.items():
        count = sum(event.get("count") or 1 for event in events) - ((name, code) in there)
        if count:
            text = f"ended {times(count)}{', last' if count > 1 else ''} with {_code(code)}; that pod is gone"
            yield Cause((name,), text, moment(event_time(events[0])), blocks=False)


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
