"""Descriptions of how containers and pods ended."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from api.pod_problems import (
    ProblemType,
    Termination,
    container_problems,
    describe_exit,
    describe_exit_code,
    failed_before_restart,
    read_status,
)
from rallypoint.diagnosis.objects import (
    Object,
    deletion_requested_at,
    event_time,
    is_pod_terminal,
    name_of,
    parse_timestamp,
    reason_and_message,
    sidecar_names,
    spec_of,
    status_of,
    transition_time,
)
from rallypoint.diagnosis.snapshot import Cause, JobSnapshot

EXITED = re.compile(r"Pod: [^.\s]+\.(\S+) exited with code (\d+)")
"""The message of the event that the operator, like training-operator, records before it deletes a failed pod."""


@dataclass(frozen=True, slots=True)
class Failure:
    """How a pod failed, by its first container that failed.

    ``container`` is empty if no container failed, as in a pod that was evicted before it started.
    """

    pod: Object
    container: str
    at: datetime | None
    text: str
    starts_again: bool = False
    """Whether the kubelet will restart the container."""

    @property
    def is_own(self) -> bool:
        """Whether the pod failed before its deletion was requested."""
        deleted_at = deletion_requested_at(self.pod)
        return deleted_at is None or (self.at is not None and self.at < deleted_at)

    @property
    def node(self) -> str:
        return spec_of(self.pod).get("nodeName") or "no node"


def failures(pods: Iterable[Object]) -> list[Failure]:
    """Return the failures, the earliest first, those without a time last.

    Pods that failed after their deletion was requested come after all others: their failure is no cause.
    """
    found = [failure for pod in pods if (failure := pod_failure(pod))]
    return sorted(
        found, key=lambda failure: (not failure.is_own, str(failure.at or "~"), name_of(failure.pod))
    )


def pod_failure(pod: Object) -> Failure | None:
    """Return how the pod failed, or None.

    Sidecars count last: the kubelet ends them by a signal after the other containers.
    """
    phase, sidecars = status_of(pod).get("phase"), sidecar_names(pod)
    if phase == "Succeeded":
        return None
    failed = [
        (problem, problem.termination)
        for problem in container_problems(read_status(pod))
        if problem.termination
    ]
    reason = reason_and_message(status_of(pod))
    if failed:
        problem, end = min(failed, key=lambda pair: (pair[0].container in sidecars, str(pair[1].finished_at)))
        text = f"container {problem.container} ended with {describe_termination(end)}"
        at = parse_timestamp(end.finished_at) or transition_time(pod, "DisruptionTarget")
        starts_again = problem.type is ProblemType.CRASH_LOOP
        return Failure(pod, problem.container, at, f"{reason}; {text}" if reason else text, starts_again)
    if phase != "Failed":
        return None
    return Failure(pod, "", transition_time(pod, "DisruptionTarget"), reason or "no reason reported")


def previous_failure(pod: Object) -> Failure | None:
    """Return how the last failed run of a container ended that runs again now, or None."""
    failed = failed_before_restart(read_status(pod))
    if not failed:
        return None
    name, end = min(failed, key=lambda pair: str(pair[1].finished_at))
    text = f"container {name} ended with {describe_termination(end)}"
    return Failure(pod, name, parse_timestamp(end.finished_at), text, starts_again=True)


def failure_before_deletion(pod: Object) -> str:
    """Return how the pod, or the last run of a container before its deletion, failed; empty if neither did."""
    failure = pod_failure(pod)
    if failure and failure.is_own:
        return failure.text
    for status in read_status(pod).container_statuses or ():
        end = status.last_state and status.last_state.terminated
        if end and end.exit_code:
            return f"container {status.name} ended with {describe_termination(end)}"
    return ""


def describe_termination(end: Termination) -> str:
    """Return text such as ``exit code 137, killed by SIGKILL (OOMKilled)``, with the end of the termination message."""
    return describe_exit(end.exit_code, end.reason, end.message)


def next_step(text: str, log_command: str = "") -> str:
    """Return what to do about a termination that was described as ``text``: by default the command ``log_command``, which shows its log."""
    if "(OOMKilled)" in text:
        return "raise the container's memory limit, or reduce the program's memory use"
    if "(StartError)" in text or "(ContainerCannotRun)" in text:
        return "correct the command of the container, or use an image that contains the program"
    if "Evicted" in text:
        return "set the pod's requests to what it actually uses, so that it is scheduled to a node with enough resources"
    return log_command


def describe_repeated_termination(container: str, count: int, end: Termination) -> str:
    """Return text such as ``container pytorch ended 3 times, last with exit code 1``."""
    return f"container {container} ended {spell_count(count)}{', last' if count > 1 else ''} with {describe_termination(end)}"


def causes_from_events(snapshot: JobSnapshot) -> list[Cause]:
    """Return a cause per pod name and exit code for deleted pods, from the events of the operator, the earliest first.

    Existing pods are left out: their own status is read. Times have whole seconds: an event of the second in which a pod was created is the
    pod's if it has ended, and else its predecessor's. The Go operators repeat the event in every reconcile, so their count says
    little.
    """
    existing = {
        name_of(pod): (parse_timestamp(pod["metadata"].get("creationTimestamp")), is_pod_terminal(pod))
        for pod in snapshot.pods
    }
    found: dict[tuple[str, int], list[Object]] = {}
    for event in snapshot.events_of(snapshot.job):
        match, at = EXITED.match(str(event.get("message"))), parse_timestamp(event_time(event))
        created, has_ended = existing.get(match[1], (None, False)) if match else (None, False)
        is_of_existing = bool(created and at and (at > created or (at == created and has_ended)))
        if match and int(match[2]) and not is_of_existing:
            found.setdefault((match[1], int(match[2])), []).append(event)
    causes = []
    for (name, code), events in found.items():
        count = sum(event.get("count") or 1 for event in events)
        text = f"ended with {describe_exit_code(code)}, reported {spell_count(count)}{'; that pod no longer exists' if snapshot.pods_known else ''}"
        quote = snapshot.last_line_of_deleted_pod(name)
        at = parse_timestamp(event_time(events[0]))
        causes.append(Cause((name,), text, at, blocks=False, quote=quote))
    return sorted(causes, key=lambda cause: str(cause.since))


def spell_count(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
