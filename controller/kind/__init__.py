"""What the engine asks of a job kind, and the shape that the kinds with indexed pods share.

A replica kind is a value (``replica``, ``shape``): data and a few functions. What those functions have in common is beside this file:
``pods`` (the bodies of pods and Services), ``judges`` (how counts become a verdict), ``checks`` (what the original's webhooks
refuse), ``autoscaler``.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from api.meta import Resource
from controller.domain import Child, Counts, Problem, Role, Verdict
from controller.kind.replica import ReplicaKind
from controller.kind.shape import EnvVar, J, Options, Roles

__all__ = ["EnvVar", "JobKind", "Options", "ReplicaKind", "Roles"]


class JobKind(Protocol[J]):
    """What the engine needs to know of a kind."""

    @property
    def resource(self) -> Resource: ...

    @property
    def model(self) -> type[J]: ...

    @property
    def framework(self) -> str:
        """The value of the metric label ``framework``."""
        ...

    @property
    def controller_name(self) -> str:
        """The value of the operator-name label, and the source of events."""
        ...

    @property
    def container(self) -> str:
        """The container whose exit code counts."""
        ...

    @property
    def scalable(self) -> bool:
        """Whether the status of a role holds the label selector that ``/scale`` speaks of."""
        ...

    @property
    def ttl_event_reasons(self) -> tuple[str, str]:
        """Reasons of the events when an expired job was deleted, and when that failed."""
        ...

    def roles(self, job: J) -> Roles:
        """The roles of a job with their defaults; empty where the spec has none."""
        ...

    def problems(self, job: J, options: Options) -> Sequence[Problem]:
        """Why the job cannot be run; empty if it can."""
        ...

    def wanted(self, job: J, roles: Roles, options: Options) -> Iterator[tuple[Role, int, Child]]:
        """Every child of every replica, in the order in which they are created."""
        ...

    def extras(self, job: J) -> Iterable[Child]:
        """Children that belong to the job as a whole."""
        ...

    def judge(self, job: J, roles: Roles, counts: Mapping[str, Counts]) -> Verdict:
        """What the counts mean for the job."""
        ...
