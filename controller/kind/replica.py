"""A replica kind: its shape together with the interface of every kind."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from controller.domain import Child, Present, Problem, Role
from controller.kind.checks import common_problems, variable_problems
from controller.kind.defaults import J, Roles
from controller.kind.options import Options
from controller.kind.pods import children, job_service
from controller.kind.shape import Shape


@dataclass(frozen=True, kw_only=True)
class ReplicaKind(Shape[J]):
    """A kind whose jobs are indexed pods with headless Services: a ``JobKind`` made of data and functions."""

    def problems(self, job: J, options: Options) -> Sequence[Problem]:
        found = [*common_problems(self, job, options), *self.check(job, self.roles(job))]
        return found or [*variable_problems(self, job, options)]

    def wanted(
        self, job: J, roles: Roles, options: Options, present: Present
    ) -> Iterator[tuple[Role, int, Child]]:
        yield from job_service(self, job, roles, options, present)
        for role in roles.values():
            yield from children(self, job, roles, role, options, present)
