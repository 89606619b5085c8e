"""The attempts of a job that restarts as a whole: which failures a rule matches, what the end of an attempt does, and when the next one begins.

All kinds share it. A restart is three reconciles: the status is written, the children of earlier attempts are deleted, and the new ones
are created when the last old one is gone and the pause is over. See docs/decisions/0033-failure-policy.md.
"""

from collections.abc import Iterable
from itertools import islice

from api.batch import BATCH_JOBS, BatchJob
from api.children import Pod
from api.failure_policy import FailureAction, FailurePolicy
from api.job import Job
from api.meta import PODS
from api.names import child_name
from controller.domain import Child, Deletion, Plan, Role, Severity, Snapshot, earliest
from controller.kind.reasons import ConditionReason, EventReason
from controller.kind.status_builder import StatusBuilder
from controller.policy import checkpoints, count, limits, recovery


def matches(
    policy: FailurePolicy, job: str, role: Role, filled: count.Slots, vanished: int
) -> list[recovery.Match]:
    """Return the matches of a role's failed pods. Those that ``vanished`` stand for the free slots of the lowest indices."""
    failures = [failure for pod in filled.values() if (failure := recovery.failure_of(role, pod))]
    free = (index for index in range(role.replicas) if index not in filled)
    failures += [recovery.gone(role, child_name(job, role.label, index)) for index in islice(free, vanished)]
    return [matched for failure in failures if (matched := recovery.match(policy, failure))]


def record_ignored(found: Iterable[recovery.Match], builder: StatusBuilder) -> frozenset[str]:
    """Record an event about each failed pod that a rule ignores, and return their UIDs."""
    ignored = recovery.ignored(found)
    for matched in ignored:
        uid, rule = matched.failure.uid, matched.rule_name
        builder.record_event(
            Severity.NORMAL, EventReason.FAILURE_IGNORED, matched.description, once=uid, similar=rule
        )
    return frozenset(matched.failure.uid for matched in ignored)


def begin(job: Job, snapshot: Snapshot, builder: StatusBuilder, idle: Iterable[Child] = ()) -> Plan | None:
    """Delete the pods and batch Jobs of earlier attempts, and wait until the next attempt may begin; None if it has begun.

    ``idle`` are the uncached children to keep while no pod of the job may run.
    """
    status = builder.status
    if status.restarts is None and job.spec.policy.failure_policy is None:
        return None
    children: tuple[Pod | BatchJob, ...] = (*snapshot.pods, *snapshot.batch_jobs)
    if status.restarts is None:
        # Another operator, whose definition has no such field, may have had the job meanwhile: the children know their attempt.
        number = max((child.attempt for child in children), default=0)
        if number == 0:
            return None
        builder.update({"restarts": number})
        status = builder.status
    if recovery.is_ahead(children, status):
        return builder.plan()
    deadline = limits.deadline_in(job.spec.policy, status.start_time, builder.now)
    if old := recovery.old(children, status):
        going = tuple(_deletion(child) for child in old if not child.deleting)
        return builder.plan(create=tuple(idle), delete=going, requeue_after_seconds=deadline)
    pause = recovery.restart_in(status, builder.now)
    if pause <= 0:
        return None
    return builder.plan(create=tuple(idle), requeue_after_seconds=earliest(pause, deadline))


def end(job: Job, matched: recovery.Match, builder: StatusBuilder, pods: Iterable[Pod] = ()) -> Plan:
    """Restart the job as a whole, or fail it, as the failure policy says. Children are deleted after the status has been stored.

    ``pods`` may have reported checkpoints.
    """
    name, policy = job.metadata.name, job.spec.policy.failure_policy or FailurePolicy()
    attempt = recovery.ended(builder.status, matched, job.metadata.uid, builder.now, checkpoints.newest(pods))
    if matched.action in recovery.RESTARTS and not recovery.is_exhausted(
        policy, builder.status, matched.action
    ):
        number = attempt.number + 1
        text = f"job {name} is restarting as a whole, attempt {number}, because {matched.description}."
        builder.restart_whole(recovery.restarted(builder.status, attempt), text)
        return builder.plan(requeue_after_seconds=0)
    attempt = attempt.model_copy(update={"restart_time": None})
    builder.update({"attempts": recovery.recorded(builder.status, attempt)})
    if matched.action is FailureAction.FAIL_JOB:
        text = f"job {name} failed because {matched.description}."
        builder.failed(text, Severity.WARNING, ConditionReason.FAILURE_POLICY)
    else:
        text = f"job {name} has failed because it has reached its maxRestarts ({policy.max_restarts}); last failure: {matched.description}."
        builder.failed(text, Severity.WARNING, ConditionReason.MAX_RESTARTS_EXCEEDED)
    return builder.plan()


def _deletion(child: Pod | BatchJob) -> Deletion:
    """A batch Job stays until its pods are gone, so that no pod of two attempts runs at one time."""
    if isinstance(child, BatchJob):
        return Deletion(BATCH_JOBS, child.name, child.uid, is_foreground=True)
    return Deletion(PODS, child.name, child.uid)
