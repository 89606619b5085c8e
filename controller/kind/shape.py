"""The data of a replica kind, and what follows from it: roles with their defaults, and names of children."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, Generic

from typing_extensions import override

from api.children import NO_INDEX, Owned, Service
from api.job import ReplicaField, ReplicaSpec, RestartPolicy, replica_field
from api.labels import MANAGED_BY_US
from api.meta import PODS, SERVICES, Resource
from api.names import child_name
from controller.domain import (
    DEFAULT_MESSAGES,
    Child,
    Counts,
    EventMessages,
    Problem,
    Role,
    Snapshot,
    Verdict,
)
from controller.kind.completion_rules import WORKER, led_by
from controller.kind.defaults import DEFAULT_TTL_EVENT_REASONS, EnvVar, J, KindDefaults, PodSlot, Roles
from controller.kind.definition import UNSET, not_tuples, replica_problems, require, unknown_roles
from controller.kind.options import KindOptions, Options
from controller.kind.validation_rules import Check, ValidationRule, common_rules


def _has_name(name: str, _roles: Roles, role: Role, _index: int) -> bool:
    return role.name == name


def _is_any(*_: object) -> bool:
    return True


def nothing(*_: object) -> tuple[()]:
    return ()


@dataclass(frozen=True, kw_only=True)
class Shape(KindDefaults, Generic[J]):
    """A kind whose jobs are indexed pods with headless Services. Fields without a default are required.

    Raises:
        InvalidKind: the definition is invalid.
    """

    resource: Resource
    """Group, version, kind and plural."""
    model: type[J]
    """The wire type of the jobs. One field of its spec maps roles to replica specs."""
    role_names: tuple[str, ...]
    """All roles of the kind, in the order of creation and of the status."""
    port: int
    """The port number that the operator adds to a template without a port named ``port_name``."""
    env: Callable[[J, Roles, Role, int, Options], list[EnvVar]]
    """Return the environment variables of one pod; they follow the user's own."""

    pod_set_order: tuple[str, ...] = ()
    """The roles in the order of the pod sets that Kueue itself gives to a job; the default is that of ``role_names``."""
    leader: str = ""
    """The role that ends the job and has the label ``job-role: master``. A job without one ends with all pods of the role ``Worker``."""
    framework: str = ""
    """The value of the metric label ``framework``; the default is the kind in lower case, without the suffix ``job``."""
    container: str = ""
    """The name of the container that trains; the default is the framework."""
    port_name: str = ""
    """The default is the kind in lower case and ``-port``."""
    restart_policy: str = RestartPolicy.NEVER
    """The restart policy of a replica spec without one."""
    is_leader: Callable[[Roles, Role, int], bool] = UNSET
    """Return whether a pod has the label ``job-role: master``; by default the pods of the ``leader`` have it."""
    is_addressed: Callable[[J, Roles, Role, int], bool] = _is_any
    """Return whether the environment of the job's pods names this one, or what they learn at run time may; by default all pods are."""
    completion_rule: Callable[[J, Roles, Mapping[str, Counts]], Verdict] = UNSET
    """Return the verdict of the pod counts; by default as ``leader`` describes."""
    check: Callable[[J, Roles], Iterable[Problem]] = nothing
    """Return problems of a job beyond the checks of all kinds."""
    rules: tuple[ValidationRule, ...] = ()
    """Rules by which the API server refuses a job, beyond those of all kinds."""
    left_to_controller: frozenset[Check] = frozenset()
    """The checks that the API server does not make."""
    env_everywhere: bool = True
    """Whether all containers of a pod get the variables, or only the container that is named after the kind."""
    init_containers: Callable[[J, Roles, Role, Options], list[dict[str, Any]]] = field(default=lambda *_: [])
    extras: Callable[[J, Snapshot, datetime, Options], Iterable[Child]] = nothing  # pyright: ignore[reportIncompatibleMethodOverride] - a function for a method
    single_roles: tuple[str, ...] = ()
    """Roles that have exactly one replica."""
    required_roles: tuple[str, ...] = ()
    """Roles that every job must have."""
    alternative_roles: tuple[str, ...] = ()
    """Roles that have at most one replica."""
    scalable: bool = False
    """Whether ``/scale`` can scale the workers, which requires a label selector in the status."""
    missing_container: str = "must have at least one container with name {}"
    """The message about a template without the kind's container."""
    ttl_event_reasons: tuple[str, str] = DEFAULT_TTL_EVENT_REASONS
    managed_by: str = MANAGED_BY_US
    children: tuple[Resource, ...] = (PODS, SERVICES)
    event_messages: EventMessages = DEFAULT_MESSAGES
    settings_word: str = "Set"
    is_opt_in: bool = False
    """Whether the default installation excludes the kind; ``--enable-scheme`` enables it."""
    options: type[KindOptions] | None = None
    """The class of the kind's own options, whose fields are flags of the controller."""
    flow: None = None
    _replica_field: ReplicaField = field(init=False, repr=False, compare=False)
    _last_roles: tuple[Mapping[str, ReplicaSpec] | None, Roles] = field(
        init=False, default=(None, {}), repr=False, compare=False
    )
    """The last replica map whose roles were needed, which nobody changes, and its roles."""

    def __post_init__(self) -> None:
        self._default("framework", self.resource.singular.removesuffix("job"))
        self._default("container", self.framework)
        self._default("port_name", f"{self.resource.singular}-port")
        is_decided = self.completion_rule is not None or not {self.leader, WORKER}.isdisjoint(self.role_names)
        self._default("is_leader", partial(_has_name, self.leader))
        self._default("completion_rule", partial(led_by, self.leader, self.resource.kind))
        require(self, self._problems(is_decided))
        object.__setattr__(self, "_replica_field", replica_field(self.model))

    def _problems(self, is_decided: bool) -> Iterator[str]:
        roles = {
            "single_roles": self.single_roles,
            "required_roles": self.required_roles,
            "alternative_roles": self.alternative_roles,
        }
        if problems := list(not_tuples({"role_names": self.role_names, **roles})):
            yield from problems
            return
        yield from replica_problems(self)
        yield from unknown_roles(self, {"leader": (self.leader,) if self.leader else (), **roles})
        if not is_decided:
            yield "no role ends a job: name a leader, add a role Worker, or give a completion_rule"
        if self.scalable and WORKER not in self.role_names:
            yield "scalable needs a role Worker, whose replicas /scale sets"
        try:
            replica_field(self.model)
        except TypeError as error:
            yield f"model {self.model.__name__}: {error}"

    def _default(self, name: str, value: object) -> None:
        if not getattr(self, name):
            object.__setattr__(self, name, value)

    @property
    def replicas_field(self) -> str:
        """The JSON name of the replica map, for messages."""
        return self._replica_field.wire_name

    @property
    @override
    def validation_rules(self) -> tuple[ValidationRule, ...]:
        return (*common_rules(self), *self.rules)

    def replicas(self, job: J) -> Mapping[str, ReplicaSpec] | None:
        """Return the replica map of a job."""
        specs: Mapping[str, ReplicaSpec] | None = getattr(job.spec, self._replica_field.attribute)
        return specs

    @property
    def controller_name(self) -> str:
        return f"{self.resource.singular}-controller"

    def roles(self, job: J) -> Roles:
        """Return the roles of a job. Role names are case-insensitive; replicas default to 1.

        Source: training-operator 1.9, pkg/apis/kubeflow.org/v1/defaulting_utils.go.
        """
        given = self.replicas(job) or {}
        specs, roles = self._last_roles
        if specs is not given:  # A reconcile asks six times about the same job.
            roles = self._roles_of(given)
            object.__setattr__(self, "_last_roles", (given, roles))
        return roles

    def _roles_of(self, given: Mapping[str, ReplicaSpec]) -> Roles:
        canonical = {name.lower(): name for name in self.role_names}
        specs = {canonical.get(key.lower(), key): spec for key, spec in given.items()}
        return {
            name: Role(
                name=name,
                replicas=1 if specs[name].replicas is None else int(specs[name].replicas or 0),
                restart_policy=specs[name].restart_policy or self.restart_policy,
                template=specs[name].template or {},
                container=self.container,
            )
            for name in self.role_names
            if name in specs
        }

    def name(self, job: J, role: Role, index: int) -> str:
        return child_name(job.metadata.name, role.label, index)

    def slot(self, job: str, row: Owned) -> PodSlot | None:
        """Return the slot by the child's name. Labels may be missing, because somebody removed them, but must not contradict the name.

        The Service of the job as a whole has a slot of its own, of no role.
        """
        if row.is_named_by_slot and row.owner_name == job:
            return row.role, row.index  # nearly always, and ten times as fast
        if row.name == job:
            return ("", NO_INDEX) if isinstance(row, Service) else None
        role, _, number = row.name.removeprefix(f"{job}-").rpartition("-")
        if not number.isascii() or not number.isdigit():
            return None
        slot = role, int(number)
        labeled = row.role or role, slot[1] if row.index == NO_INDEX else row.index
        return slot if labeled == slot and row.name == child_name(job, *slot) else None
