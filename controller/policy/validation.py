"""The problems of the run policy and of the gang that all kinds check."""

from collections.abc import Iterator

from api.job import Job, replica_field
from controller.domain import Problem
from controller.kind import Options, Roles
from controller.policy import hangs, native_gang, nodes, pending, recovery, success
from controller.policy.gang import KUBERNETES


def problems(job: Job, roles: Roles, options: Options, *, has_flow: bool) -> Iterator[Problem]:
    """Return the problems of the fields of the run policy, in which a job may name its roles, and of templates whose pods are in a group.

    ``has_flow`` is whether the kind decides by a flow of its own, which supports no success policy.
    """
    policy = job.spec.policy
    yield from pending.problems(policy)
    yield from nodes.problems(policy)
    yield from recovery.problems(policy, roles)
    yield from success.problems(policy, roles, is_supported=not has_flow)
    yield from hangs.problems(policy, roles)
    path = f"spec.{replica_field(type(job)).wire_name}"
    yield from native_gang.problems(roles, path, is_scheduler=options.gang_scheduler == KUBERNETES)
