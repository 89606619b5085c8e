"""The completion rules that kinds share: from pod counts to a verdict.

Source: training-operator 1.9, pkg/controller.v1/pytorch/pytorchjob_controller.go, UpdateJobStatus, and its siblings.
"""

from collections.abc import Collection, Mapping
from typing import Final

from api.job import Job, RestartPolicy
from controller.domain import Counts, Role, Verdict

WORKER: Final = "Worker"
"""The role that ends a job without a leader, and that ``/scale`` changes."""


def led_by(
    leader: str,
    kind: str,
    job: Job,
    roles: Mapping[str, Role],
    counts: Mapping[str, Counts],
    *,
    first_success_ends: bool = False,
) -> Verdict:
    """The leader ends the job if there is one; otherwise all workers together, or in an elastic job the first that succeeds.

    Differs: a role without replicas never ends a job; in the original, zero workers count as all workers done. No rule applies
    after a success. See docs/decisions/0004-cleanup.md and 0008-pods-and-replicas.md.
    """
    deciding = leader if leader in roles else WORKER
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
    failed, restarting = losses(kind, job, roles, counts)
    return Verdict(
        running=f"{kind} {name} is running." if count.active else "", failed=failed, restarting=restarting
    )


def losses(
    kind: str,
    job: Job,
    roles: Mapping[str, Role],
    counts: Mapping[str, Counts],
    *,
    failure: str = "{kind} {name} is failed because {count} {role} replica(s) failed.",
    restart: str = "{kind} {name} is restarting because {count} {role} replica(s) failed.",
    dispensable: Collection[str] = (),
) -> tuple[str, str]:
    """Return the messages (failed, restarting) of the first role that has lost pods, in the kind's order.

    Under the restart policy Never, ``dispensable`` roles may lose pods without ending the job.
    """
    words = {"kind": kind, "namespace": job.metadata.namespace, "name": job.metadata.name}
    failed = restarting = ""
    for role in roles.values():
        count = counts[role.name]
        if role.replicas <= count.succeeded + count.active:
            continue
        if role.restart_policy == RestartPolicy.NEVER:
            if count.failed and not failed and role.name not in dispensable:
                failed = failure.format(**words, count=count.failed, role=role.name)
        elif count.failed + count.vanished and not restarting:
            lost = count.failed + count.vanished
            restarting = restart.format(**words, count=lost, role=role.name)
    return failed, restarting
