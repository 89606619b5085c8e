"""The interface of a job kind, and the parts that the kinds with indexed pods share.

A replica kind is a value (``replica``, ``shape``): data and a few functions. This package contains what those functions share:
``pods`` (the bodies of pods and Services), ``completion_rules`` (from pod counts to a verdict), ``checks`` (what the original's webhooks
refuse), ``validation_rules`` (the same as CEL rules of the CustomResourceDefinition) and ``autoscaler``. ``options`` holds the settings that planning reads, ``definition`` rejects an invalid kind, ``status_builder``
builds a job's new status.

``JobKind`` and ``Replicas`` declare every member that the reconciler uses. Required members come first; ``KindDefaults`` has the others.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from api.children import Owned
from api.meta import Resource
from controller.domain import (
    Child,
    Counts,
    Event,
    EventMessages,
    Plan,
    Present,
    Problem,
    Role,
    Snapshot,
    Verdict,
)
from controller.kind.defaults import EnvVar, J, KindDefaults, PodSlot, Roles
from controller.kind.definition import InvalidKind
from controller.kind.options import KindOptions, Options
from controller.kind.replica import ReplicaKind
from controller.kind.validation_rules import Check, ValidationRule

__all__ = [
    "Check",
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
    "ValidationRule",
]


class Flow(Protocol):
    """The planning functions of a kind that does not use those of ``reconcile.plan``, which have the same names, and its checks. Pure."""

    def decide(
        self, job: Any, snapshot: Snapshot, now: datetime, options: Options, malformed: Sequence[Problem]
    ) -> Plan: ...

    def refuse(self, job: Any, problem: Problem, now: datetime) -> Plan: ...

    def problems(self, job: Any, options: Options) -> Iterable[Problem]: ...

    def first_pods(self, job: Any, options: Options) -> Iterator[tuple[Role, Mapping[str, Any]]]:
        """Yield the first pod of each role, or its template."""
        ...


class JobKind(Protocol[J]):
    """What the reconciler requires of every kind. The first seven members have no default."""

    @property
    def resource(self) -> Resource:
        """The resource in the watched version; of a variant, in the version that its events refer to."""
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
        """The value of the label ``operator-name``, and the source component of events."""
        ...

    @property
    def children(self) -> tuple[Resource, ...]:
        """The resources that the reconciler watches as children of these jobs."""
        ...

    def slot(self, job: str, row: Owned) -> PodSlot | None:
        """Return the slot of the named job that a child fills, None if the job has no such child. Labels are not sufficient evidence."""
        ...

    def roles(self, job: J) -> Roles:
        """Return the roles of a job with their defaults; empty if the spec has none."""
        ...

    # The other members are optional.

    @property
    def managed_by(self) -> str:
        """The value of ``runPolicy.managedBy`` that names this operator. An empty value, or that of another variant, has the same meaning."""
        ...

    @property
    def lease(self) -> str:
        """The name of the Lease of another operator that serves this kind; empty if it is the one of the settings."""
        ...

    @property
    def scalable(self) -> bool:
        """Whether the status of a role contains the label selector for ``/scale``."""
        ...

    @property
    def is_opt_in(self) -> bool:
        """Whether the default installation excludes the kind. It then has neither its CRD nor rights for it; ``--enable-scheme`` enables it."""
        ...

    @property
    def options(self) -> type[KindOptions] | None:
        """The class of the kind's own options, whose fields are flags of the controller. Read from the watched kind."""
        ...

    @property
    def ttl_event_reasons(self) -> tuple[str, str]:
        """Reasons of the events when an expired job was deleted, and when that failed."""
        ...

    @property
    def event_messages(self) -> EventMessages: ...

    @property
    def variants(self) -> "tuple[JobKind[Any], ...]":
        """All kinds that ``variant`` can return."""
        ...

    @property
    def flow(self) -> Flow | None:
        """The planning functions; None for a kind that implements ``Replicas``, which ``reconcile.plan`` handles."""
        ...

    @property
    def validation_rules(self) -> tuple[ValidationRule, ...]:
        """The rules by which the API server refuses a job. Read from the watched kind."""
        ...

    def variant(self, job: J, children: Iterable[Owned] = ()) -> "JobKind[Any]":
        """Return the kind that defines the behavior of this job: this one, unless jobs of one kind differ.

        ``children`` are the pods and batch Jobs whose controller is the job, whatever their names. Children that another operator created
        can show more than the job does.
        """
        ...

    def node_label(self, options: Options) -> str:
        """Return the node label that planning reads; empty if it reads no nodes. Called on the watched kind."""
        ...

    def normal(self, job: J, /) -> J:
        """Return the job with kind-specific fields moved to the fields that all kinds share."""
        ...

    def warnings(self, job: J, children: Iterable[Owned] = ()) -> Iterable[Event]:
        """Return warnings about a job that are not part of its state. Called on the watched kind, not on its variants."""
        ...

    def required_annotations(self, job: J) -> Mapping[str, str]:
        """Return the annotations required on a job of another controller, which may copy only annotations. Called on the watched kind."""
        ...

    def while_idle(self, job: J, /) -> Iterable[Child]:
        """Return the uncached children to keep, and how, while the job is suspended, after it has finished, and while it is being deleted."""
        ...


class Replicas(JobKind[J], Protocol):
    """A kind whose jobs consist of roles with indexed pods, and other children if needed. The first three members have no default."""

    def problems(self, job: J, options: Options) -> Sequence[Problem]:
        """Return why the job cannot run; empty if it can."""
        ...

    def wanted(
        self, job: J, roles: Roles, options: Options, present: Present
    ) -> Iterator[tuple[Role, int, Child]]:
        """Yield every child of every replica that is not present, in the order of creation."""
        ...

    def completion_rule(self, job: J, roles: Roles, counts: Mapping[str, Counts]) -> Verdict:
        """Return the verdict that follows from the pod counts."""
        ...

    # The other members are optional.

    @property
    def settings_word(self) -> str:
        """The first word in the reasons of events about settings of the pod template: ``Set``, or ``Setted`` as in the original."""
        ...

    @property
    def warns_of_unnamed_scheduler(self) -> bool:
        """Whether to warn about a different scheduler of a gang even if no pod template names the gang scheduler."""
        ...

    def can_create(self, job: J, role: Role, snapshot: Snapshot, options: Options, /) -> bool:
        """Return whether the kind allows the creation of a role's pods now."""
        ...

    def later(self, job: J, snapshot: Snapshot, options: Options, /) -> Collection[str]:
        """Return the roles whose pods are created only when the pods of other roles run. They do not count as members of the gang until then."""
        ...

    def extras(self, job: J, snapshot: Snapshot, now: datetime, options: Options, /) -> Iterable[Child]:
        """Yield the children of the job as a whole. Planning does not read them; they are created before the pods."""
        ...

    def due_in(self, job: J, snapshot: Snapshot, now: datetime, options: Options, /) -> float | None:
        """Return the seconds until ``extras`` changes without an event; None if it does not."""
        ...

    def waits_for(self, job: J, snapshot: Snapshot, now: datetime, options: Options, /) -> str:
        """Return what has prevented the creation of pods for too long, or why pods do not start; empty if nothing has."""
        ...

    def counted(self, counts: Mapping[str, Counts], /) -> Mapping[str, Counts]:
        """Return the counts as they appear in the kind's status."""
        ...
