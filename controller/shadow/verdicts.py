"""What this operator would have done at a moment that leaves no trace: when a pod failed, and when the job finished.

The other operator reacts within milliseconds, and afterwards the failed pod may be gone. So the decision is made at once and compared
with what has become of the pod when the job is quiet.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from api import conditions
from api.children import Pod
from api.job import ConditionType, Job
from controller.domain import Snapshot
from controller.kind import JobKind, Options
from controller.reconcile import plan as planning
from controller.shadow.declared import BACKOFF_LIMIT, Difference, Rule

REPLACED, KEPT, JOB_FAILED, JOB_SUCCEEDED = "replaced", "kept", "job failed", "job succeeded"
"""What becomes of a failed pod: it is deleted for a new one, it stays and the job continues, or the job ends."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision about one failed pod."""

    pod: str
    uid: str
    outcome: str
    is_evicted: bool = False


def judge(
    kind: JobKind[Any], job: Job, snapshot: Snapshot, pod: Pod, now: datetime, options: Options
) -> Verdict:
    """Return what this operator does about a pod that has just failed.

    Planning stores a failure in the status before it deletes the pod, so the decision may take two plans.
    """
    snapshot = replace(
        snapshot, failures={}
    )  # a pause before the replacement changes nothing about the outcome
    for _ in range(2):
        plan = planning.decide(kind, job, snapshot, now, options)
        status = plan.status or job.status
        for type_, outcome in (
            (ConditionType.FAILED, JOB_FAILED),
            (ConditionType.SUCCEEDED, JOB_SUCCEEDED),
        ):
            if conditions.is_true(status, type_):
                return Verdict(pod.name, pod.uid, outcome, pod.reason == "Evicted")
        if any(deletion.uid == pod.uid for deletion in plan.delete):
            return Verdict(pod.name, pod.uid, REPLACED, pod.reason == "Evicted")
        job = job.model_copy(update={"status": status})
    return Verdict(pod.name, pod.uid, KEPT, pod.reason == "Evicted")


def kept_children(
    kind: JobKind[Any], job: Job, snapshot: Snapshot, now: datetime, options: Options
) -> dict[str, str]:
    """Return the pods and Services that this operator keeps of a job that has just finished: UID → subject."""
    plan = planning.decide(kind, job, snapshot, now, options)
    gone = {deletion.uid for deletion in plan.delete}
    rows = [("Pod", pod) for pod in snapshot.pods] + [("Service", service) for service in snapshot.services]
    return {row.uid: f"{what} {row.name}" for what, row in rows if not (row.deleting or row.uid in gone)}


def outcome_differences(verdicts: Iterable[Verdict], job: Job, snapshot: Snapshot) -> Iterator[Difference]:
    """Yield the verdicts that differ from what the other operator has done, now that the job is quiet."""
    verdicts = list(verdicts)
    has_failed = conditions.is_true(job.status, ConditionType.FAILED)
    if conditions.is_true(job.status, ConditionType.SUCCEEDED) or job.spec.policy.suspend:
        return
    if has_failed and any(verdict.outcome == JOB_FAILED for verdict in verdicts):
        return
    present = {pod.uid for pod in snapshot.pods if not pod.deleting}
    for verdict in verdicts:
        theirs = JOB_FAILED if has_failed else KEPT if verdict.uid in present else REPLACED
        if theirs == verdict.outcome:
            continue
        field = "/failed"
        if verdict.is_evicted:
            field = "/evicted"
        elif JOB_FAILED in (theirs, verdict.outcome) and job.spec.policy.backoff_limit is not None:
            field = BACKOFF_LIMIT
        yield Difference(Rule.RESTART, f"Pod {verdict.pod}", field, verdict.outcome, theirs)


def cleanup_differences(kept: dict[str, str], snapshot: Snapshot) -> Iterator[Difference]:
    """Yield the children that this operator would have kept and the other one has deleted."""
    present = {row.uid for row in (*snapshot.pods, *snapshot.services) if not row.deleting}
    for uid, subject in kept.items():
        if uid not in present:
            yield Difference(Rule.CLEANUP, subject, "/finished", "kept", "deleted")
