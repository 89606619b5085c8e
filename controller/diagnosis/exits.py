"""How containers and pods ended, in words."""

import signal
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from controller.diagnosis.case import (
    Object,
    condition,
    init_statuses,
    moment,
    name_of,
    state_of,
    status_of,
    statuses,
)

_MESSAGE_LINES = 3


@dataclass(frozen=True, slots=True)
class Failure:
    """How a pod failed, by the first of its containers that did; ``status`` is empty when none did, as when it was evicted before."""

    pod: Object
    status: Object
    at: datetime | None
    text: str

    @property
    def is_own(self) -> bool:
        """Whether it failed by itself, and not because it had been told to go."""
        return "deletionTimestamp" not in self.pod["metadata"]


def failures(pods: Iterable[Object]) -> list[Failure]:
    """The earliest first; those that were told to go after all others, since that they end is no cause."""
    found = [failure for pod in pods if (failure := failure_of(pod))]
    return sorted(found, key=lambda one: (not one.is_own, str(one.at), name_of(one.pod)))


def failure_of(pod: Object) -> Failure | None:
    """None of a pod that has not failed."""
    ends = [(state_of(one, "terminated"), one) for one in (*init_statuses(pod), *statuses(pod))]
    failed = [
        (str(end.get("finishedAt")), place) for place, (end, _) in enumerate(ends) if end.get("exitCode")
    ]
    told = ": ".join(filter(None, (status_of(pod).get("reason"), status_of(pod).get("message"))))
    if failed:
        end, one = ends[min(failed)[1]]
        text = f"container {one['name']} ended with {spell(end)}"
        return Failure(pod, one, moment(end.get("finishedAt")), f"{told}; {text}" if told else text)
    if status_of(pod).get("phase") != "Failed":
        return None
    at = moment(condition(pod, "Ready").get("lastTransitionTime"))
    return Failure(pod, {}, at, told or "nothing says why")


def spell(end: Object) -> str:
    """``exit code 137, killed by SIGKILL (OOMKilled)``, and the end of what the program left as its last message."""
    code = end.get("exitCode", 0)
    text = f"exit code {code}"
    if code > 128 and (name := _signal(code - 128)):
        text += f", killed by {name}"
    if (reason := end.get("reason") or "Error") not in {"Error", "Completed"}:
        text += f" ({reason})"
    if message := (end.get("message") or "").strip():
        text += f": {' / '.join(message.splitlines()[-_MESSAGE_LINES:])}"
    return text


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return ""
