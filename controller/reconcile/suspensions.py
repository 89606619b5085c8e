"""Suspensions that have been heard of and not been seen to: a job may be resumed before its next pass.

Its pods are those of before all the same, and have to go: what Kueue admits is a place for new ones.
"""

from api import conditions
from api.job import ConditionType, Job
from controller.reconcile.jobs import JobRow

_SUSPENDED = b'"suspend":true'
"""In a spec as the API server writes it. Read like this for each change of a job, so not parsed; inside of text the quotes are escaped."""


class Suspensions:
    """Of the jobs of one kind, by UID."""

    def __init__(self) -> None:
        self._heard: set[str] = set()

    def heard(self, before: JobRow | None, after: JobRow | None) -> None:
        """A job came, changed or went."""
        if after is None:
            self._heard -= {before.uid} if before else set()
        elif _SUSPENDED in after.spec or (before and before.uid == after.uid and _SUSPENDED in before.spec):
            self._heard.add(after.uid)

    def take_in(self, job: Job, *, has_pods: bool) -> Job:
        """The job to decide for: as it was when it was suspended, until its status tells of that or there is no pod of before."""
        uid = job.metadata.uid
        if not has_pods or conditions.is_true(job.status, ConditionType.SUSPENDED):
            self._heard.discard(uid)
        return _suspended(job) if uid in self._heard else job


def _suspended(job: Job) -> Job:
    policy = job.spec.policy.model_copy(update={"suspend": True})
    return job.model_copy(update={"spec": job.spec.model_copy(update={"run_policy": policy})})
