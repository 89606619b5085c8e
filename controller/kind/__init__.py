"""What the engine asks of a job kind, and the shape that the kinds with indexed pods share.

A replica kind is a value (``replica``, ``shape``): data and a few functions. What those functions have in common is beside this file:
``pods`` (the bodies of pods and Services), ``completion_rules`` (how counts become a verdict), ``checks`` (what the original's webhooks
refuse), ``autoscaler``. ``options`` are what the settings say, ``definition`` refuses a kind that cannot work, ``status_builder`` is a
status being rewritten, for any flow of decisions.

``JobKind`` and ``Replicas`` name all that the engine asks. What a kind has to provide comes first; ``KindDefaults`` has the rest.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from api.children import Owned
from api.meta import Resource
from controller.domain import Child, Counts, Event, EventMessages, Plan, Problem, Role, Snapshot, Verdict
from controller.kind.defaults import EnvVar, J, KindDefaults, PodSlot, Roles
from controller.kind.definition import InvalidKind
from controller.kind.options import KindOptions, Options
from controller.kind.replica import ReplicaKind

__all__ = [
    "EnvVar",
    "Flow",
    "InvalidKind",
    "JobKind",
    "KindDefaults",
    "KindOptions",
    "Options",
    "PodSlot",
    "ReplicaKind",
    "Replicas",
    "Roles",
]


class Flow(Protocol):
    """Decisions of a kind that go another way than ``reconcile.plan``, whose functions these are named after. Pure."""

    def decide(
        self, job: Any, snapshot: Snapshot, now: datetime, options: Options, malformed: Sequence[Problem]
    ) -> Plan: ...

    def refuse(self, job: Any, problem: Problem, now: datetime) -> Plan: ...


class JobKind(Protocol[J]):
    """What the engine needs to know of every kind. The first six have no default."""

    @property
    def resource(self) -> Resource:
        """The version that is watched; of a variant, the version that its events are of."""
        ...

    @property
    def model(self) -> type[J]:
        """The wire type of the jobs."""
        ...

    @property
    def framework(self) -> str:
        """The value of the metric label ``framework``."""
        ...

    @property
    def controller_name(self) -> str:
        """The value of the operator-name label, and the source of events."""
        ...

    @property
    def children(self) -> tuple[Resource, ...]:
        """The resources whose objects are watched for these jobs."""
        ...

    def slot(self, job: str, row: Owned) -> PodSlot | None:
        """Which place of the job of that name a child fills, None if the job puts no such child there. Labels prove nothing."""
        ...

    # The rest is optional.

    @property
    def managed_by(self) -> str:
        """The value of ``runPolicy.managedBy`` that means this operator; unset, or that of another variant, means the same."""
        ...

    @property
    def lease(self) -> str:
        """The name of the Lease under which another operator does this kind's work; empty if that of the settings says it."""
        ...

    @property
    def scalable(self) -> bool:
        """Whether the status of a role holds the label selector that ``/scale`` speaks of."""
        ...

    @property
    def is_opt_in(self) -> bool:
        """Whether the default installation does without the kind: it has neither its definition nor rights on it, and ``--enable-scheme`` names it."""
        ...

    @property
    def options(self) -> type[KindOptions] | None:
        """The class of the kind's own options, whose fields are flags of the controller; asked of the kind that is watched."""
        ...

    @property
    def ttl_event_reasons(self) -> tuple[str, str]:
        """Reasons of the events when an expired job was deleted, and when that failed."""
        ...

    @property
    def event_messages(self) -> EventMessages: ...

    @property
    def variants(self) -> "tuple[JobKind[Any], ...]":
        """All that ``variant`` may answer."""
        ...

    @property
    def flow(self) -> Flow | None:
        """How jobs are decided on; without one the kind is one of ``Replicas``, and ``reconcile.plan`` says."""
        ...

    def variant(self, job: J, children: Iterable[Owned] = ()) -> "JobKind[Any]":
        """The kind whose behaviour this very job gets: this one, unless jobs of one kind differ in it.

        ``children`` are the pods and batch Jobs whose controller the job is, whatever their names: those of another operator may say more
        than the job does.
        """
        ...

    def node_label(self, options: Options) -> str:
        """The label of nodes whose values decisions read; empty reads no nodes. Asked of the kind that is watched."""
        ...

    def normal(self, job: J, /) -> J:
        """The job as decisions read it: what its spec says in a place of its own is where all kinds say it."""
        ...

    def warnings(self, job: J, children: Iterable[Owned] = ()) -> Iterable[Event]:
        """What is to be told of a job that is not part of its state; asked of the kind that is watched, not of its variants."""
        ...

    def required_annotations(self, job: J) -> Mapping[str, str]:
        """Annotations that the job must have when it is another controller's, who may copy no more than these; asked likewise."""
        ...

    def while_idle(self, job: J, /) -> Iterable[Child]:
        """Which of the job's children that decisions do not read are kept, and how, while it is suspended, once it has finished, and while it is deleted."""
        ...


class Replicas(JobKind[J], Protocol):
    """A kind whose jobs are roles of indexed pods, and more if need be. The first four have no default."""

    def roles(self, job: J) -> Roles:
        """The roles of a job with their defaults; empty where the spec has none."""
        ...

    def problems(self, job: J, options: Options) -> Sequence[Problem]:
        """Why the job cannot be run; empty if it can."""
        ...

    def wanted(self, job: J, roles: Roles, options: Options) -> Iterator[tuple[Role, int, Child]]:
        """Every child of every replica, in the order in which they are created."""
        ...

    def completion_rule(self, job: J, roles: Roles, counts: Mapping[str, Counts]) -> Verdict:
        """What the counts mean for the job."""
        ...

    # The rest is optional.

    @property
    def settings_word(self) -> str:
        """How the reasons of events begin that tell of a template's own settings."""
        ...

    @property
    def warns_of_unnamed_scheduler(self) -> bool:
        """Whether a gang is warned of another scheduler, too, where no template names that of gangs."""
        ...

    def can_create(self, job: J, role: Role, snapshot: Snapshot, options: Options, /) -> bool:
        """Whether the pods of a role may be made already, as far as the kind knows."""
        ...

    def later(self, job: J, snapshot: Snapshot, options: Options, /) -> Collection[str]:
        """The roles that have no pods because those of the others are not up; a gang is without them meanwhile."""
        ...

    def extras(self, job: J, snapshot: Snapshot, now: datetime, options: Options, /) -> Iterable[Child]:
        """Children that belong to the job as a whole. Decisions read none of them; they go before the pods."""
        ...

    def due_in(self, job: J, snapshot: Snapshot, now: datetime, options: Options, /) -> float | None:
        """Seconds until those or the next say something else though nothing happens, None if they do not."""
        ...

    def waits_for(self, job: J, snapshot: Snapshot, now: datetime, options: Options, /) -> str:
        """What the pods that may not be made yet have been waiting for, and that for long, or why pods do not start; empty if nothing."""
        ...

    def counted(self, counts: Mapping[str, Counts], /) -> Mapping[str, Counts]:
        """The counts as the kind's status has them."""
        ...
