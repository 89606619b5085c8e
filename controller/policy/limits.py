"""The limits of a job: active deadline and backoff limit.

Source: training-operator 1.9, pkg/core/job.go and pkg/controller.v1/common/job.go.
"""

from collections.abc import Mapping
from datetime import datetime

from api.children import Pod
from api.job import JobStatus, ReplicaStatus, RestartPolicy, RunPolicy
from controller.domain import Role

_OUT_OF_TRIES = "Job {} has failed because it has reached the specified backoff limit"
_OUT_OF_TIME = "Job {} has failed because it was active longer than specified deadline"


def exceeded(
    policy: RunPolicy,
    job: str,
    roles: Mapping[str, Role],
    pods: tuple[Pod, ...],
    status: JobStatus,
    now: datetime,
) -> str:
    """Return the message of the limit that the job has reached; empty if it may continue."""
    if out_of_tries(policy, restarts(roles, pods, status)):
        return _OUT_OF_TRIES.format(job)
    if past_deadline(policy, status.start_time, now):
        return _OUT_OF_TIME.format(job)
    return ""


def was_exceeded(job: str, message: str | None) -> bool:
    """Return whether the message of a Failed condition is about a limit."""
    return message in {_OUT_OF_TRIES.format(job), _OUT_OF_TIME.format(job)}


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
        own = [pod for pod in pods if pod.role == role.label and pod.uid not in (past.replacing or ())]
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
