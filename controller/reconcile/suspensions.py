"""A suspension that ends before its job is reconciled.

Its pods are of before all the same and have to go: what Kueue admits is a place for new ones.
"""

from api import conditions
from api.job import ConditionType, Job
from controller.reconcile.memory import JobMemory


def settle_suspension(memory: JobMemory, job: Job, *, has_pods: bool) -> Job:
    """Return the job to plan for: still suspended until its status says so, or until no pod of before is left."""
    if not has_pods or conditions.is_true(job.status, ConditionType.SUSPENDED):
        memory.is_suspension_pending = False
    return _suspended(job) if memory.is_suspension_pending else job


def _suspended(job: Job) -> Job:
    policy = job.spec.policy.model_copy(update={"suspend": True})
    return job.model_copy(update={"spec": job.spec.model_copy(update={"run_policy": policy})})
