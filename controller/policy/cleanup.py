"""Which pods, Services and jobs are deleted when a job has finished or is suspended.

Source: training-operator 1.9, pkg/controller.v1/common/job.go, DeletePodsAndServices and CleanupJob.
"""

from datetime import datetime
from typing import Final

from api import conditions
from api.children import Pod
from api.job import CleanPodPolicy, ConditionType, JobStatus, RunPolicy
from api.meta import PODS, SERVICES
from controller.domain import Deletion, Snapshot
from controller.kind.reasons import ConditionReason
from controller.policy.recovery import NO_PROGRESS, PENDING_TIMEOUT

_LEAVE_NOTHING: Final = (
    ConditionReason.FAILED_VALIDATION,
    ConditionReason.PENDING_TIMEOUT,
    ConditionReason.NO_PROGRESS,
)
_OF_RULES: Final = (ConditionReason.FAILURE_POLICY, ConditionReason.MAX_RESTARTS_EXCEEDED)


def everything(snapshot: Snapshot) -> tuple[Deletion, ...]:
    """Return all pods and all Services of a job.

    Differs: the original keeps the Service of a pod that is already gone. See docs/decisions/0004-cleanup.md.
    """
    pods = tuple(Deletion(PODS, pod.name, pod.uid) for pod in snapshot.pods if not pod.deleting)
    return pods + tuple(
        Deletion(SERVICES, service.name, service.uid) for service in snapshot.services if not service.deleting
    )


def clean_pod_policy(policy: RunPolicy, status: JobStatus, *, cleans_failed: bool) -> str | None:
    """Return the cleanPodPolicy of a finished job, None if it has none.

    With ``cleans_failed``, a failed job without one has Running: pods that still run hold GPUs for nothing, such as ranks that wait for the
    one that failed.

    Differs: training-operator has no such default. See docs/decisions/0004-cleanup.md.
    """
    if policy.clean_pod_policy is None and cleans_failed and conditions.is_true(status, ConditionType.FAILED):
        return CleanPodPolicy.RUNNING
    return policy.clean_pod_policy


def after_finish(wanted: str | None, snapshot: Snapshot) -> tuple[Deletion, ...]:
    """Return what a cleanPodPolicy deletes once a job has finished. The default is None; unknown values mean All.

    With Running, a Service goes with its pod, and that of the whole job with the last one.
    """
    if wanted is None or wanted == CleanPodPolicy.NONE:
        return ()
    if wanted != CleanPodPolicy.RUNNING:
        return everything(snapshot)
    going = {pod.name for pod in snapshot.pods if _unfinished(pod)}
    if len(going) == len(snapshot.pods):
        going.update(service.name for service in snapshot.services if not service.role)
    return tuple(deletions for deletions in everything(snapshot) if deletions.name in going)


def leaves_nothing(kind: str, status: JobStatus) -> bool:
    """Return whether a failed job keeps no children, whatever its policy: its spec or that of a child is invalid, or its pods would hang or wait forever.

    A rule of the failure policy may have decided about the hang, or about the pods that did not run in time.
    """
    failed = conditions.find(status.conditions or (), ConditionType.FAILED)
    if failed is None:
        return False
    if failed.reason in {f"{kind}{reason}" for reason in _OF_RULES}:
        last = status.last_attempt
        is_end = last is not None and last.number == (status.restarts or 0)
        return last is not None and is_end and last.reason in {NO_PROGRESS, PENDING_TIMEOUT}
    return failed.reason in {f"{kind}{reason}" for reason in _LEAVE_NOTHING}


def expires_in(policy: RunPolicy, status: JobStatus, now: datetime) -> float | None:
    """Return the seconds until a finished job is deleted, 0 or less if it is due; None if it stays.

    A suspended job stays.

    Source: training-operator 1.9, pkg/controller.v1/common/job.go, CleanupJob.
    """
    if policy.ttl_seconds_after_finished is None or policy.suspend or status.completion_time is None:
        return None
    return policy.ttl_seconds_after_finished - (now - status.completion_time).total_seconds()


def _unfinished(pod: Pod) -> bool:
    return pod.phase in {"Running", "Pending"}
