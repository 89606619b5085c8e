"""The problems of the run policy and of the gang that all kinds check."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from api.job import Job, replica_field
from controller.domain import Problem, Role
from controller.kind import Options, Roles
from controller.policy import hangs, in_place, native_gang, nodes, pending, recovery, success
from controller.policy.gang import KUBERNETES


def spec_problems(
    job: Job,
    roles: Roles,
    options: Options,
    own: Iterable[Problem],
    first_pods: Iterable[tuple[Role, Mapping[str, Any]]],
    *,
    has_flow: bool,
) -> list[Problem]:
    """Return why a job cannot run, or, after its start, why a change of its spec has no effect; empty if it is valid.

    ``own`` are the problems of the fields of its kind. ``first_pods`` are one pod, or its template, of each role; they are read only if there
    are no other problems.
    """
    found = [*own, *problems(job, roles, options, has_flow=has_flow)]
    found = found or [*in_place.problems(job.spec.policy, first_pods)]
    has_started = job.status is not None and job.status.start_time is not None
    return [problem for problem in found if not (problem.at_start and has_started)]


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
    yield from native_gang.problems(
        roles, _replicas_path(type(job)), is_scheduler=options.gang_scheduler == KUBERNETES
    )


@cache
def _replicas_path(model: type[Job]) -> str:
    return f"spec.{replica_field(model).wire_name}"
