"""The limits of a job: active deadline and backoff limit.

Source: training-operator 1.9, pkg/core/job.go and pkg/controller.v1/common/job.go.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Final

from api.children import Pod, describe_end, end_order
from api.job import JobStatus, ReplicaStatus, RestartPolicy, RunPolicy
from controller.domain import Failure, Role, Snapshot

_SEPARATOR: Final = "; "
"""Separates the message of a limit from the last failure."""
_OUT_OF_TRIES = "Job {} has failed because it has reached the specified backoff limit"
_OUT_OF_TIME = "Job {} has failed because it was active longer than specified deadline"


def exceeded(
    policy: RunPolicy,
    job: str,
    roles: Mapping[str, Role],
    snapshot: Snapshot,
    status: JobStatus,
    now: datetime,
) -> str:
    """Return the message of the limit that the job has reached; empty if it may continue.

    Differs: the message ends with the last failure, because the pods that show it are deleted. See docs/decisions/0003-limits.md.
    """
    is_limited = policy.backoff_limit is not None
    if is_limited and out_of_tries(policy, restarts(roles, snapshot.pods, status)):
        text = _OUT_OF_TRIES.format(job)
    elif past_deadline(policy, status.start_time, now):
        text = _OUT_OF_TIME.format(job)
    else:
        return ""
    return text + _cause(snapshot.pods, snapshot.failures.values())


def was_exceeded(job: str, message: str | None) -> bool:
    """Return whether the message of a Failed condition is about a limit."""
    known = (_OUT_OF_TRIES.format(job), _OUT_OF_TIME.format(job))
    return message is not None and message.partition(_SEPARATOR)[0] in known


def _cause(pods: Iterable[Pod], failures: Iterable[Failure]) -> str:
    """Return how a pod failed last, or else why one does not run; empty if neither is known. A failed pod may have been replaced since."""
    own = [pod for pod in pods if not pod.deleting]
    replaced = max(failures, key=lambda failure: failure.at, default=None)
    if failure := last_failure(own) or (replaced.text if replaced else ""):
        return f"{_SEPARATOR}last failure: {failure}"
    trouble = next((trouble.message for pod in own for trouble in pod.troubles), "")
    return f"{_SEPARATOR}{trouble}" if trouble else ""


def last_failure(pods: Collection[Pod]) -> str:
    """Return which pod failed last, and how; empty if none has failed."""
    ended = [
        (end_order(end), pod.name, end)
        for pod in pods
        for end in (*pod.exits, *((pod.previous_failure,) if pod.previous_failure else ()))
        if end.code
    ]
    if ended:
        _, name, end = max(ended, key=lambda found: found[:2])
        return f"{name}: {describe_end(end)}"
    failed = next((pod for pod in pods if pod.phase == "Failed"), None)
    if failed is None:
        return ""
    return (
        f"{failed.name}: {': '.join(filter(None, (failed.reason, failed.message))) or 'no reason reported'}"
    )


def out_of_tries(policy: RunPolicy, count: int) -> bool:
    """Return whether this number of restarts reaches the limit. 0 and 1 both mean that the first restart is too many."""
    return policy.backoff_limit is not None and (
        policy.backoff_limit < 0 or count >= max(policy.backoff_limit, 1)
    )


def restarts(roles: Mapping[str, Role], pods: tuple[Pod, ...], status: JobStatus) -> int:
    """Return all restarts of a job: those in place, those of replaced pods, and the replacements now due.

    Roles with restart policy Never do not restart.

    Differs: the original counts only the restart counts of existing pods, so it ignores those of replaced pods. See
    docs/decisions/0003-limits.md.
    """
    count = 0
    for role in roles.values():
        if role.restart_policy == RestartPolicy.NEVER:
            continue
        past = (status.replica_statuses or {}).get(role.name) or ReplicaStatus()
        label, replacing = role.label, past.replacing or ()
        own = [pod for pod in pods if pod.role == label and pod.uid not in replacing]
        count += (past.restarts or 0) + sum(pod.restarts + (pod.phase == "Failed") for pod in own)
    return count


def past_deadline(policy: RunPolicy, started: datetime | None, now: datetime) -> bool:
    """Return whether the job has been active for at least ``activeDeadlineSeconds``.

    A job without a start time or a deadline is never late.

    Source: training-operator 1.9, pkg/core/job.go, PastActiveDeadline.
    """
    left = deadline_in(policy, started, now)
    return left is not None and left <= 0


def deadline_in(policy: RunPolicy, started: datetime | None, now: datetime) -> float | None:
    """Return the seconds until the deadline, negative after it; None without one."""
    if started is None or policy.active_deadline_seconds is None:
        return None
    return policy.active_deadline_seconds - (now - started).total_seconds()
