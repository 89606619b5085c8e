"""The problems of the run policy that all kinds check."""

from collections.abc import Iterator, Mapping

from api.job import RunPolicy
from controller.domain import Problem, Role
from controller.policy import hangs, nodes, pending, recovery, success


def problems(
    policy: RunPolicy, roles: Mapping[str, Role], *, is_success_policy_supported: bool
) -> Iterator[Problem]:
    """Return the problems of the fields of the run policy, in which a job may name its roles."""
    yield from pending.problems(policy)
    yield from nodes.problems(policy)
    yield from recovery.problems(policy, roles)
    yield from success.problems(policy, roles, is_supported=is_success_policy_supported)
    yield from hangs.problems(policy, roles)
