"""Suspensions that end before their job is reconciled.

The pods from before the suspension must be deleted nevertheless, because Kueue admits the job with resources for new pods.
"""

from api import conditions
from api.job import ConditionType, Job
from controller.reconcile.memory import JobMemory


def settle_suspension(memory: JobMemory, job: Job, *, has_pods: bool) -> Job:
    """Return the job to plan for: suspended until its status says so, and until no earlier pod is left."""
    if not has_pods or conditions.is_true(job.status, ConditionType.SUSPENDED):
        memory.is_suspension_pending = False
    return suspended(job) if memory.is_suspension_pending else job


def suspended(job: Job) -> Job:
    """Return the job as if its spec suspended it."""
    policy = job.spec.policy.model_copy(update={"suspend": True})
    return job.model_copy(update={"spec": job.spec.model_copy(update={"run_policy": policy})})
