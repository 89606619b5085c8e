"""The problems of the run policy and of the gang that all kinds check."""

from collections.abc import Iterator
from typing import Any

from api.job import Job, replica_field
from controller.domain import Problem
from controller.kind import JobKind, Options, Roles
from controller.policy import hangs, native_gang, nodes, pending, recovery, success
from controller.policy.gang import KUBERNETES


def problems(kind: JobKind[Any], job: Job, roles: Roles, options: Options) -> Iterator[Problem]:
    """Return the problems of the fields of the run policy, in which a job may name its roles, and of templates whose pods are in a group."""
    policy = job.spec.policy
    yield from pending.problems(policy)
    yield from nodes.problems(policy)
    yield from recovery.problems(policy, roles)
    yield from success.problems(policy, roles, is_supported=kind.flow is None)
    yield from hangs.problems(policy, roles)
    path = f"spec.{replica_field(kind.model).wire_name}"
    yield from native_gang.problems(roles, path, is_scheduler=options.gang_scheduler == KUBERNETES)
