"""How counts become a verdict, for the kinds that share a rule.

Source: training-operator 1.9, pkg/controller.v1/pytorch/pytorchjob_controller.go, UpdateJobStatus, and its siblings.
"""

from collections.abc import Mapping

from api.job import Job, RestartPolicy
from controller.domain import Counts, Role, Verdict


def led_by(
    leader: str,
    kind: str,
    job: Job,
    roles: Mapping[str, Role],
    counts: Mapping[str, Counts],
    *,
    first_success_ends: bool = False,
) -> Verdict:
    """The leader decides if the job has one, else all workers do (or, elastic, the first that succeeds).

    Differs: a role without replicas decides nothing; in the original no worker is the same as all workers done. Nothing is judged
    beyond a success. See docs/decisions/0004-cleanup.md and 0008-pods-and-replicas.md.
    """
    deciding = leader if leader in roles else "Worker"
    if deciding not in roles:
        return Verdict()
    led, role, count = deciding == leader, roles[deciding], counts[deciding]
    name = job.metadata.name if led else f"{job.metadata.namespace}/{job.metadata.name}"
    complete = 0 < role.replicas <= count.succeeded or (
        not led and first_success_ends and count.succeeded > 0
    )
    if complete:
        is_ = "is " if led else ""
        return Verdict(succeeded=f"{kind} {name} {is_}successfully completed.")
    failed, restarting = _losses(kind, job.metadata.name, roles, counts)
    return Verdict(
        running=f"{kind} {name} is running." if count.active else "", failed=failed, restarting=restarting
    )


def _losses(kind: str, name: str, roles: Mapping[str, Role], counts: Mapping[str, Counts]) -> tuple[str, str]:
    """The messages (failed, restarting) of the first role that has lost pods, in the kind's order."""
    failed = restarting = ""
    for role in roles.values():
        count = counts[role.name]
        if role.replicas <= count.succeeded + count.active:
            continue
        if role.restart_policy == RestartPolicy.NEVER:
            if count.failed and not failed:
                failed = f"{kind} {name} is failed because {count.failed} {role.name} replica(s) failed."
        elif count.failed + count.vanished and not restarting:
            lost = count.failed + count.vanished
            restarting = f"{kind} {name} is restarting because {lost} {role.name} replica(s) failed."
    return failed, restarting
