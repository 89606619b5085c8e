"""MPIJob: one kind with three behaviors, called flavors.

    names, hosts          the names of a job's children; the lists of hosts
    launcher_flavor       the flavors whose launcher is a batch Job: ``launcher_flavor_spec`` holds what differs between them,
                          ``launcher_sync`` the decisions, ``launcher_job`` the Job, ``status_builder`` conditions and events
    v2beta1               starts ranks by ssh: ``sshpods``, ``variables``, ``keys``, ``checks``
    v1                    starts ranks by ``kubectl exec`` from a launcher pod (``launcher_pod_flavor``): ``v1spec``, ``v1pods``, ``kubexec``,
                          ``execpods``, ``rbac``
    v1alpha2              does the same from a launcher Job
    version_warnings      warnings about a job's flavor
    validation_rules      what the API server refuses

The API server stamps the flavor into each job; ``api.mpijob`` reads it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from typing_extensions import override

from api.batch import BATCH_JOBS
from api.children import Owned
from api.meta import CONFIG_MAPS, PODS, SERVICES
from api.mpijob import RESOURCE, Flavor, MPIJob
from controller.domain import Event
from controller.kind import JobKind, KindDefaults, Options, PodSlot, Roles, ValidationRule
from controller.kinds.mpi.options import MPIOptions
from controller.kinds.mpi.v1 import V1
from controller.kinds.mpi.v1alpha2 import V1ALPHA2
from controller.kinds.mpi.v2beta1 import V2BETA1
from controller.kinds.mpi.validation_rules import mpi_rules
from controller.kinds.mpi.version_warnings import effective_flavor, required_annotations, version_warnings


@dataclass(frozen=True)
class MPIKind(KindDefaults):
    """The kind that is watched. Every decision is made by the flavor of a job."""

    flavors: Mapping[Flavor, JobKind[MPIJob]]
    resource = RESOURCE
    model = MPIJob
    framework = "mpi"
    controller_name = "mpijob-controller"
    children = (PODS, BATCH_JOBS, SERVICES, CONFIG_MAPS)
    managed_by = ""
    lease = "mpi-operator"
    scalable = True  # Differs: the originals have no /scale. See docs/decisions/0043-scale.md.
    options = MPIOptions

    @property
    @override
    def variants(self) -> tuple[JobKind[Any], ...]:
        return tuple(self.flavors.values())

    @property
    @override
    def validation_rules(self) -> tuple[ValidationRule, ...]:
        return tuple(mpi_rules())

    @override
    def variant(self, job: MPIJob, children: Iterable[Owned] = ()) -> JobKind[Any]:
        """Return the flavor of a job. A job that has a launcher keeps the flavor of that launcher."""
        return self.flavors[effective_flavor(job, children)]

    @override
    def node_label(self, options: Options) -> str:
        return options.of(MPIOptions).topology_label

    def slot(self, job: str, row: Owned) -> PodSlot | None:
        return None

    def roles(self, job: MPIJob) -> Roles:
        return self.variant(job).roles(job)

    @override
    def warnings(self, job: MPIJob, children: Iterable[Owned] = ()) -> Iterable[Event]:
        return version_warnings(job, effective_flavor(job, children))

    @override
    def required_annotations(self, job: MPIJob) -> Mapping[str, str]:
        return required_annotations(job)


MPI: Final = MPIKind(
    {Flavor.V1: V1, Flavor.V1ALPHA2: V1ALPHA2, Flavor.V2BETA1: V2BETA1}  # pyright: ignore[reportArgumentType] - it takes fields that are functions for methods
)
