"""When a failed pod is replaced: immediately after its replica's first failure, then after increasing pauses.

Failures are counted per replica, that is, per pod name. From the second on, an annotation of the replacement stores the count:
this needs no extra write and survives a restart of the controller.

Source: the back-off of the kubelet (CrashLoopBackOff) and of batch/v1 Jobs (DefaultJobPodFailureBackOff, MaxJobPodFailureBackOff).
Differs: training-operator replaces a pod that always fails as fast as the API server allows.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from api.children import Pod
from api.labels import FAILED_BEFORE
from controller.domain import Child, Failure
from controller.policy.limits import last_failure

FIRST_PAUSE_SECONDS = 10.0
LONGEST_PAUSE_SECONDS = 300.0
RESET_AFTER = timedelta(minutes=10)
"""A pod that ran this long before it failed had recovered: its failure counts as the first."""


def observed(
    failures: Mapping[str, Failure], pods: Iterable[Pod], now: datetime, *, is_first: bool = False
) -> Mapping[str, Failure]:
    """Return the last failures by name, including those of newly failed pods, each counted once.

    A deleted pod does not count: it did not fail by itself. ``is_first`` says that this process reconciles the job for the first
    time. Only then the pod's own time of failure counts, so that a restart of the controller does not extend a pause: a node's clock
    may be wrong.
    """
    now = now.replace(microsecond=0)
    found: dict[str, Failure] = {}
    for pod in pods:
        if pod.phase != "Failed" or pod.deleting:
            continue
        last = failures.get(pod.name)
        if last and last.uid == pod.uid:
            continue
        before = 0 if _had_recovered(pod, last, now) else max(last.count if last else 0, pod.failed_before)
        failed_at = min(_finished_at(pod) or now, now) if is_first else now
        found[pod.name] = Failure(pod.uid, before + 1, failed_at, last_failure([pod]))
    return {**failures, **found} if found else failures


def wait_seconds(failures: Mapping[str, Failure], pod: Pod, now: datetime) -> float:
    """Return how long a failed pod stays before it is replaced, 0 if it may be replaced now."""
    last = failures.get(pod.name)
    if last is None or last.uid != pod.uid:
        return 0.0
    return max((last.at - now).total_seconds() + pause_seconds(last.count), 0.0)


def next_due_in(failures: Mapping[str, Failure], pods: Iterable[Pod], now: datetime) -> float | None:
    """Return the seconds until the next of these failed pods may be replaced, None if none has to wait."""
    pauses = (wait_seconds(failures, pod, now) for pod in pods if not pod.deleting)
    return min(filter(None, pauses), default=None)


def described(failures: Mapping[str, Failure], pods: Iterable[Pod], now: datetime) -> str:
    """Return which of these failed pods are replaced later, and when; empty if none is."""
    waits = sorted((wait_seconds(failures, pod, now), pod.name) for pod in pods if not pod.deleting)
    held = [(seconds, name) for seconds, name in waits if seconds]
    if not held:
        return ""
    seconds, name = held[0]
    due = (now + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    others = f"; {len(held) - 1} more later" if len(held) > 1 else ""
    return (
        f"{name} has failed {failures[name].count} times in a row; its replacement is due at {due}{others}."
    )


def marked(failures: Mapping[str, Failure], child: Child) -> Child:
    """Return the pod with an annotation of how many pods of its name failed in a row before it, if two or more did."""
    last = failures.get(child.name)
    if last is None or last.count < 2:
        return child
    build, count = child.body, last.count

    def body() -> dict[str, Any]:
        made = build()
        metadata = made["metadata"]
        annotations = {**(metadata.get("annotations") or {}), FAILED_BEFORE: str(count)}
        return {**made, "metadata": {**metadata, "annotations": annotations}}

    return replace(child, body=body)


def pause_seconds(count: int) -> float:
    """Return the pause after this many failures in a row."""
    return min(FIRST_PAUSE_SECONDS * 2.0 ** min(count - 2, 60), LONGEST_PAUSE_SECONDS) if count > 1 else 0.0


def _had_recovered(pod: Pod, last: Failure | None, now: datetime) -> bool:
    """Return whether the pod ran for long before it failed.

    A pod without container times, such as an evicted one, may have run since its predecessor was replaced.
    """
    ran = [
        done.finished_at - done.started_at
        for done in pod.exits
        if not done.init and done.started_at and done.finished_at
    ]
    if not ran and last:
        ran = [now - last.at - timedelta(seconds=pause_seconds(last.count))]
    return max(ran, default=timedelta(0)) >= RESET_AFTER


def _finished_at(pod: Pod) -> datetime | None:
    return max((done.finished_at for done in pod.exits if done.finished_at), default=None)
