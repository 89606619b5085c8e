"""The data of a replica kind, and what follows from it alone: roles with their defaults, names of children."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar

from api.children import NO_INDEX, Owned
from api.job import Job, ReplicaSpec
from api.labels import MANAGED_BY_US
from api.meta import PODS, SERVICES, Resource
from api.names import child_name
from controller.domain import (
    DEFAULT_MESSAGES,
    Child,
    Counts,
    Event,
    EventMessages,
    Problem,
    Role,
    Snapshot,
    Verdict,
)

J = TypeVar("J", bound=Job)

Roles = Mapping[str, Role]
"""The roles of one job by name, in the kind's order."""

Place = tuple[str, int]
"""The label of a role, and an index."""

EnvVar = tuple[str, str | Mapping[str, Any]]
"""Name and value, or where the value comes from: what Kubernetes calls ``valueFrom``."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the settings say that decisions depend on."""

    init_container: bool = True
    init_container_image: str = "alpine:3.10"
    init_container_max_tries: int = 100
    init_container_template: str = ""
    """YAML list of containers with ``{{.MasterAddr}}``, ``{{.InitContainerImage}}``, ``{{.MaxTries}}``; empty is built in."""
    mpi_kubectl_delivery_image: str = "kubeflow/kubectl-delivery:latest"
    mpi_wait_for_workers: bool = False
    """Whether launchers of MPIJobs start only once all workers are up, whatever the job says."""
    mpi_ssh_check: bool = True
    """Whether workers that a launcher waits for are asked for their ssh server's greeting."""
    mpi_launcher_only_key: bool = False
    """Whether the private ssh key of an MPIJob is in its launcher alone."""
    mpi_topology_label: str = ""
    """The node label whose values make hosts neighbours in the lists of an MPIJob; empty orders them by index alone."""
    gang_scheduler: str = ""
    """``volcano``, or the name of a scheduler with the coscheduling of scheduler-plugins; empty schedules no gangs."""
    max_replicas: int = 10_000
    """The most pods that one job may ask for."""
    cluster_domain: str = ""
    """What follows ``.svc`` in addresses that are told to programs, such as ``cluster.local``; empty is nothing."""
    keeps_ledger: bool = True
    """Whether the installed CRD stores which restarts are counted; another operator's may not."""


def nothing(*_: object) -> tuple[()]:
    return ()


class KindDefaults:
    """A kind that has nothing to say of its jobs beside their status, neither to people nor to other controllers, nor to other operators."""

    warns_of_unnamed_scheduler: bool = False
    reads_nodes: bool = False

    @property
    def lease(self) -> str:
        return ""

    def warnings(self, job: Any, children: Iterable[Owned] = ()) -> Iterable[Event]:
        return ()

    def required_annotations(self, job: Any) -> Mapping[str, str]:
        return {}


@dataclass(frozen=True, kw_only=True)
class Shape(KindDefaults, Generic[J]):
    """A kind whose jobs are indexed pods with one headless Service each."""

    resource: Resource
    model: type[J]
    framework: str
    container: str
    port_name: str
    port: int
    restart_policy: str
    """Of a replica spec that names none."""
    role_names: tuple[str, ...]
    """All roles of the kind, in the order of creation and of status."""
    replicas_field: str
    """The JSON name of the replica map, for messages."""
    replicas: Callable[[J], Mapping[str, ReplicaSpec] | None]
    env: Callable[[J, Roles, Role, int, Options], list[EnvVar]]
    """The variables of one pod, after the user's own."""
    is_leader: Callable[[Roles, Role, int], bool]
    """Whether a pod carries the label ``job-role: master``."""
    completion_rule: Callable[[J, Roles, Mapping[str, Counts]], Verdict]
    check: Callable[[J, Roles], Iterable[Problem]] = nothing
    env_everywhere: bool = True
    """Whether every container of a pod gets the variables, or only the one of the kind's name."""
    init_containers: Callable[[J, Roles, Role, Options], list[dict[str, Any]]] = field(default=lambda *_: [])
    extras: Callable[[J, Snapshot, datetime, Options], Iterable[Child]] = nothing
    single_roles: tuple[str, ...] = ()
    """Roles that have exactly one replica."""
    required_roles: tuple[str, ...] = ()
    """Roles that no job can do without."""
    alternative_roles: tuple[str, ...] = ()
    """Roles of which a job has one at most."""
    scalable: bool = False
    """Whether the workers can be scaled by ``/scale``, which needs a label selector in the status."""
    missing_container: str = "must have at least one container with name {}"
    """What is said of a template without the kind's container."""
    ttl_event_reasons: tuple[str, str] = ("SuccessfulDeleteJob", "FailedDeleteJob")
    managed_by: str = MANAGED_BY_US
    children: tuple[Resource, ...] = (PODS, SERVICES)
    event_messages: EventMessages = DEFAULT_MESSAGES
    settings_word: str = "Set"
    flow: None = None

    @property
    def controller_name(self) -> str:
        return f"{self.resource.singular}-controller"

    def roles(self, job: J) -> Roles:
        """Role names are matched without regard to case, replicas default to 1.

        Source: training-operator 1.9, pkg/apis/kubeflow.org/v1/defaulting_utils.go.
        """
        given = self.replicas(job) or {}
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

    def place(self, job: str, row: Owned) -> Place | None:
        """By name. Labels may be missing, as somebody may have removed them, but not say otherwise."""
        if row.role and row.index >= 0 and row.name == child_name(job, row.role, row.index):
            return row.role, row.index  # nearly all of them, and five times as fast
        role, _, number = row.name.removeprefix(f"{job}-").rpartition("-")
        if not number.isascii() or not number.isdigit():
            return None
        place = role, int(number)
        labeled = row.role or role, place[1] if row.index == NO_INDEX else row.index
        return place if labeled == place and row.name == child_name(job, *place) else None

    def normal(self, job: J) -> J:
        return job
