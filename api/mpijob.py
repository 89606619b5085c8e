"""The wire model of MPIJob in all of its versions, and the flavor of a job.

Every version has the fields of all versions, so one model reads each. The flavor determines which fields have an effect.

Source: training-operator 1.9, pkg/apis/kubeflow.org/v1/mpi_types.go; mpi-operator 0.8, pkg/apis/kubeflow/v2beta1/types.go;
mpi-operator 0.3, pkg/apis/kubeflow/v1alpha2/types.go.
"""

from dataclasses import replace
from enum import StrEnum

from pydantic import Field
from typing_extensions import override

from api.job import Job, JobSpec, ReplicaSpec
from api.labels import MANAGED_BY_MPI_OPERATOR, MANAGED_BY_US
from api.meta import Resource

RESOURCE = Resource("kubeflow.org", "v1", "MPIJob", "mpijobs")
"""The version that is stored and watched. Every job is read in it, whichever version it was written in."""

FLAVOR = "kubeflow.org/mpi-flavor"
"""Annotation: the flavor; it wins over ``spec.flavor``. It survives copies by clients that do not know that field."""


class Flavor(StrEnum):
    """The behavior of a job: that of the operator that owned the API version in which the job was created."""

    V1 = "v1"
    V1ALPHA2 = "v1alpha2"
    V2BETA1 = "v2beta1"

    @property
    def resource(self) -> Resource:
        """MPIJob in the version of that name, which events refer to."""
        return replace(RESOURCE, version=self.value)


_FLAVORS = {flavor.value: flavor for flavor in Flavor}


def go_operator(flavor: Flavor) -> str:
    """Return the ``runPolicy.managedBy`` that assigns a job to the Go operator of the flavor, and to no other."""
    return MANAGED_BY_US if flavor is Flavor.V1 else MANAGED_BY_MPI_OPERATOR


class MPIJobSpec(JobSpec):
    """The spec. The first sentence of a field that only some flavors read names them."""

    mpi_replica_specs: dict[str, ReplicaSpec] | None = None
    """Roles of the job: ``Launcher``, exactly one pod, and ``Worker``. Case matters."""
    slots_per_worker: int | None = None
    """Number of ranks that a worker can run. Defaults to ``1``."""
    clean_pod_policy: str | None = None
    """v1, v1alpha2: as ``runPolicy.cleanPodPolicy``. v1 prefers that field, v1alpha2 this one. Defaults to ``None``."""
    main_container: str | None = None
    """v1, v1alpha2: container of the workers in which ranks run. Defaults to the one that ``kubectl exec`` chooses."""
    backoff_limit: int | None = None
    """v1alpha2: number of retries of the launcher. ``runPolicy.backoffLimit`` takes precedence. Defaults to ``6``."""
    active_deadline_seconds: int | None = None
    """v1alpha2: seconds that the launcher may be active before the job fails. ``runPolicy.activeDeadlineSeconds`` takes precedence. If unset, the
    job has no deadline.
    """
    mpi_distribution: str | None = None
    """v1alpha2: MPI of the image, ``OpenMPI``, ``IntelMPI`` or ``MPICH``. Any other value counts as ``OpenMPI``. Defaults to ``OpenMPI``."""
    run_launcher_as_worker: bool | None = None
    """v2beta1: whether ranks run in the launcher, too. Defaults to ``false``."""
    ssh_auth_mount_path: str | None = None
    """v2beta1: directory of the ssh keys in the pods. Defaults to ``/root/.ssh``."""
    launcher_creation_policy: str | None = None
    """v2beta1: start of the launcher, ``AtStartup`` or ``WaitForWorkersReady``. The annotation ``kubeflow.org/mpi-wait-for-workers`` and the flag
    ``--mpi-wait-for-workers`` make it wait, too. Defaults to ``AtStartup``.
    """
    mpi_implementation: str | None = None
    """v2beta1: MPI of the image, ``OpenMPI``, ``Intel`` or ``MPICH``. Defaults to ``OpenMPI``."""
    flavor: str | None = None
    """Behavior of the job: that of ``v1``, ``v1alpha2`` or ``v2beta1``. Immutable. The annotation ``kubeflow.org/mpi-flavor`` takes precedence.
    Defaults to the version in which the job is created.
    """


class MPIJob(Job):
    """A job of MPI: a launcher that starts ranks in workers."""

    other_versions = (Flavor.V2BETA1.value, Flavor.V1ALPHA2.value)

    spec: MPIJobSpec = Field(default_factory=MPIJobSpec)  # pyright: ignore[reportIncompatibleVariableOverride] - only read

    @property
    @override
    def owner_version(self) -> str:
        """v2beta1, in whichever version the job was created: the only one in which Kueue recognizes the owner of pods.

        Empty under training-operator's definition, which has neither v2beta1 nor the stamp.

        Differs: training-operator names v1. See docs/decisions/0017-mpijob-versions.md.
        """
        return Flavor.V2BETA1.value if self.spec.flavor else ""


def flavor(job: MPIJob) -> Flavor:
    """Return the flavor of a job: that of its annotation, else that of its spec, else v1.

    Differs: each upstream operator has one behavior. See docs/decisions/0017-mpijob-versions.md.
    """
    annotation = (job.metadata.annotations or {}).get(FLAVOR, "")
    return _FLAVORS.get(annotation) or _FLAVORS.get(job.spec.flavor or "") or Flavor.V1
