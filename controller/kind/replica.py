"""A replica kind: its shape, together with what the engine asks of every kind."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from api.children import Owned
from controller.domain import Child, Counts, Problem, Role, Snapshot
from controller.kind.checks import common_problems, variable_problems
from controller.kind.pods import children
from controller.kind.shape import J, Options, Roles, Shape


@dataclass(frozen=True, kw_only=True)
class ReplicaKind(Shape[J]):
    """A kind whose jobs are indexed pods with one headless Service each: a ``JobKind`` made of data and functions."""

    @property
    def variants(self) -> "tuple[ReplicaKind[Any], ...]":
        return (self,)

    def variant(self, job: J, children: Iterable[Owned] = ()) -> "ReplicaKind[J]":
        return self

    def may_make(self, job: J, role: Role, snapshot: Snapshot, options: Options) -> bool:
        return True

    def later(self, job: J, snapshot: Snapshot, options: Options) -> Collection[str]:
        return ()

    def due_in(self, job: J, snapshot: Snapshot, now: datetime, options: Options) -> float | None:
        return None

    def waits_for(self, job: J, snapshot: Snapshot, now: datetime, options: Options) -> str:
        return ""

    def counted(self, counts: Mapping[str, Counts]) -> Mapping[str, Counts]:
        return counts

    def while_idle(self, job: J) -> Iterable[Child]:
        return ()

    def problems(self, job: J, options: Options) -> Sequence[Problem]:
        found = [*common_problems(self, job, options), *self.check(job, self.roles(job))]
        return found or [*variable_problems(self, job, options)]

    def wanted(self, job: J, roles: Roles, options: Options) -> Iterator[tuple[Role, int, Child]]:
        for role in roles.values():
            yield from children(self, job, roles, role, options)
