"""How containers and pods ended, in words."""

import re
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from rallypoint.diagnosis.objects import (
    Object,
    all_container_statuses,
    deletion_requested_at,
    event_time,
    failed_termination,
    is_crash_looping,
    name_of,
    parse_timestamp,
    reason_and_message,
    sidecar_names,
    spec_of,
    status_of,
    transition_time,
)
from rallypoint.diagnosis.snapshot import Cause, JobSnapshot

_MESSAGE_LINES = 3
_STATUS_UNKNOWN = "ContainerStatusUnknown"
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
        deleted_at = deletion_requested_at(self.pod)
        return deleted_at is None or (self.at is not None and self.at < deleted_at)

    @property
    def node(self) -> str:
        return spec_of(self.pod).get("nodeName") or "no node"


def failures(pods: Iterable[Object]) -> list[Failure]:
    """The earliest first; those that were told to go after all others, since that they end is no cause, as are those without a time."""
    found = [failure for pod in pods if (failure := pod_failure(pod))]
    return sorted(
        found, key=lambda failure: (not failure.is_own, str(failure.at or "~"), name_of(failure.pod))
    )


def pod_failure(pod: Object) -> Failure | None:
    """None of a pod that has not failed. Sidecars end by a signal when the others have ended, and are looked at last."""
    phase, sidecars = status_of(pod).get("phase"), sidecar_names(pod)
    if phase == "Succeeded":
        return None
    failed = [(status, end) for status in all_container_statuses(pod) if (end := failed_termination(status))]
    reason = reason_and_message(status_of(pod))
    if failed:
        status, end = min(
            failed, key=lambda pair: (pair[0]["name"] in sidecars, str(pair[1].get("finishedAt")))
        )
        text = f"container {status['name']} ended with {describe_termination(end)}"
        at = parse_timestamp(end.get("finishedAt")) or transition_time(pod, "DisruptionTarget")
        return Failure(
            pod, status["name"], at, f"{reason}; {text}" if reason else text, is_crash_looping(status)
        )
    if phase != "Failed":
        return None
    return Failure(pod, "", transition_time(pod, "DisruptionTarget"), reason or "nothing says why")


def describe_termination(end: Object) -> str:
    """``exit code 137, killed by SIGKILL (OOMKilled)``, and the end of what the program left as its last message."""
    code, reason = end.get("exitCode") or 0, end.get("reason") or "Error"
    text = f"exit code {code}" if reason == _STATUS_UNKNOWN else _code(code)
    if reason not in {"Error", "Completed"}:
        text += f" ({reason})"
    if message := (end.get("message") or "").strip():
        text += f": {' / '.join(message.splitlines()[-_MESSAGE_LINES:])}"
    return text


def describe_repeated_termination(status: Object, count: int, end: Object) -> str:
    """``container pytorch ended 3 times, last with exit code 1``."""
    return f"container {status['name']} ended {spell_count(count)}{', last' if count > 1 else ''} with {describe_termination(end)}"


def causes_from_events(snapshot: JobSnapshot) -> list[Cause]:
    """Pods that have failed and are gone, as the operator has told of them; one for each name and exit code, the earliest first.

    What it told of a pod that is there is seen in that. The Go operators tell it in each pass, so how often says little of theirs.
    """
    made = {name_of(pod): parse_timestamp(pod["metadata"].get("creationTimestamp")) for pod in snapshot.pods}
    found: dict[tuple[str, int], list[Object]] = {}
    for event in snapshot.events_of(snapshot.job):
        match, at = EXITED.match(str(event.get("message"))), parse_timestamp(event_time(event))
        successor = made.get(match[1]) if match else None
        if match and int(match[2]) and not (successor and at and at > successor):
            found.setdefault((match[1], int(match[2])), []).append(event)
    causes = []
    for (name, code), events in found.items():
        count = sum(event.get("count") or 1 for event in events)
        text = f"ended with {_code(code)}, told {spell_count(count)}{'; that pod is gone' if snapshot.pods_known else ''}"
        causes.append(Cause((name,), text, parse_timestamp(event_time(events[0])), blocks=False))
    return sorted(causes, key=lambda cause: str(cause.since))


def spell_count(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _code(code: int) -> str:
    killed = _signal(code - 128) if code > 128 else ""
    return f"exit code {code}, killed by {killed}" if killed else f"exit code {code}"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return ""
