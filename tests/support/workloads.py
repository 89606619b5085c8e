"""Jobs of each kind as users see them: the spec that a user writes, and the children that it has.

Names follow the originals' documentation, so that expectations do not come from the code under test.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from api.batch import BATCH_JOBS
from api.labels import JOB_ROLE, REPLICA_TYPE
from api.meta import CONFIG_MAPS, PODS, ROLE_BINDINGS, ROLES, SECRETS, SERVICE_ACCOUNTS, SERVICES, Resource
from api.mpijob import Flavor
from api.names import child_name
from api.v1 import jaxjob, paddlejob, pytorchjob, tfjob, xgboostjob
from tests.support.builders import template

EVERY_POLICY: Final = ("Never", "OnFailure", "OnFailure", "Always", "ExitCode", "ExitCode")


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Jobs of one kind in one API version."""

    resource: Resource
    replicas_field: str
    container: str
    controller: str
    """The value of the operator's label."""
    head: str = "Master"
    """The role with one replica or none."""
    needs_head: bool = False
    aside: str = ""
    """A role that some jobs have beside the workers."""
    policies: tuple[str, ...] = EVERY_POLICY
    """Restart policies of all roles."""
    has_services: bool = True
    """Whether each pod has a Service of its name."""
    addressed: Sequence[str] = ()
    """With ``services: addressed`` the first replica of the first of these roles has the only Service; all have one if there is none."""
    support: Sequence[tuple[Resource, str]] = ()
    """Further objects of a running job: the resource, and the suffix of its name after the job's name."""
    has_launcher_pod: bool = False
    """Whether the head is a pod without an index."""
    has_launcher_job: bool = False
    """Whether the head's pod belongs to a batch Job, which counts its retries and limits its time."""

    failures: tuple[str, ...] = ()
    """Reasons of a job's failure beside the one of all kinds."""

    @property
    def roles(self) -> tuple[str, ...]:
        return tuple(role for role in (self.head, "Worker", self.aside) if role)

    def spec(
        self, counts: Mapping[str, int], policy: str, run_policy: Mapping[str, Any], **pod: Any
    ) -> dict[str, Any]:
        """Return the spec of a job with these replicas by role; ``pod`` overrides fields of every pod spec."""
        whole = template(self.container)
        whole["spec"] |= pod
        roles = {
            role: {"replicas": count, "restartPolicy": policy, "template": whole}
            for role, count in counts.items()
            if count
        }
        return {self.replicas_field: roles, "runPolicy": dict(run_policy)}

    def pod_names(self, job: str, spec: Mapping[str, Any]) -> set[str]:
        """Return the names of the pods in a spec, without the pod of a batch Job, which has a generated name."""
        names: set[str] = set()
        for role, given in spec[self.replicas_field].items():
            if role == self.head and self.has_launcher_pod:
                names.add(f"{job}-launcher")
            elif role != self.head or not self.has_launcher_job:
                names |= {child_name(job, role.lower(), at) for at in range(given.get("replicas", 1))}
        return names

    def service_names(self, job: str, spec: Mapping[str, Any], mode: str = "per-replica") -> set[str]:
        """Return the names of the Services of those pods."""
        if not self.has_services:
            return set()
        if mode == "per-job":
            return {job}
        addressed = [role for role in self.addressed if role in spec[self.replicas_field]]
        if mode == "addressed" and addressed:
            return {child_name(job, addressed[0].lower(), 0)}
        return self.pod_names(job, spec)

    def support_names(self, job: str) -> set[tuple[str, str]]:
        """Return kinds and names of the further objects."""
        return {(resource.kind, job + rest) for resource, rest in self.support}

    def role_of(self, pod: Mapping[str, Any]) -> str:
        """Return the role in the spelling of labels."""
        labels = pod["metadata"]["labels"]
        return str(labels.get(REPLICA_TYPE) or labels.get(JOB_ROLE))

    def is_launcher(self, pod: Mapping[str, Any]) -> bool:
        return (self.has_launcher_job or self.has_launcher_pod) and self.role_of(pod) == "launcher"

    @property
    def children(self) -> tuple[Resource, ...]:
        """Resources whose creation may fail, and which others may delete."""
        return (PODS, SERVICES) if self.has_services else (PODS,)

    @property
    def watched(self) -> tuple[Resource, ...]:
        return (self.resource, *self.children, *((BATCH_JOBS,) if self.has_launcher_job else ()))


PYTORCH: Final = Workload(
    resource=pytorchjob.RESOURCE,
    replicas_field="pytorchReplicaSpecs",
    container="pytorch",
    controller="pytorchjob-controller",
    addressed=("Master",),
)
TENSORFLOW: Final = Workload(
    resource=tfjob.RESOURCE,
    replicas_field="tfReplicaSpecs",
    container="tensorflow",
    controller="tfjob-controller",
    head="Chief",
    aside="PS",
)
XGBOOST: Final = Workload(
    resource=xgboostjob.RESOURCE,
    replicas_field="xgbReplicaSpecs",
    container="xgboost",
    controller="xgboostjob-controller",
    needs_head=True,
)
PADDLE: Final = Workload(
    resource=paddlejob.RESOURCE,
    replicas_field="paddleReplicaSpecs",
    container="paddle",
    controller="paddlejob-controller",
    addressed=("Master", "Worker"),
)
JAX: Final = Workload(
    resource=jaxjob.RESOURCE,
    replicas_field="jaxReplicaSpecs",
    container="jax",
    controller="jaxjob-controller",
    head="",
    addressed=("Worker",),
)
MPI_V1: Final = Workload(
    resource=Flavor.V1.resource,
    replicas_field="mpiReplicaSpecs",
    container="mpi",
    controller="mpijob-controller",
    head="Launcher",
    needs_head=True,
    has_services=False,
    support=(
        (CONFIG_MAPS, "-config"),
        (SERVICE_ACCOUNTS, "-launcher"),
        (ROLES, "-launcher"),
        (ROLE_BINDINGS, "-launcher"),
    ),
    has_launcher_pod=True,
    failures=("MPIJobMPIJobFailed",),
)
MPI_V1ALPHA2: Final = Workload(
    resource=Flavor.V1ALPHA2.resource,
    replicas_field="mpiReplicaSpecs",
    container="mpi",
    controller="mpi-operator",
    head="Launcher",
    needs_head=True,
    has_services=False,
    support=(*MPI_V1.support, (BATCH_JOBS, "-launcher")),
    has_launcher_job=True,
)
MPI_V2BETA1: Final = Workload(
    resource=Flavor.V2BETA1.resource,
    replicas_field="mpiReplicaSpecs",
    container="mpi",
    controller="mpi-operator",
    head="Launcher",
    needs_head=True,
    policies=("Never", "OnFailure"),
    has_services=False,
    support=((SERVICES, ""), (CONFIG_MAPS, "-config"), (SECRETS, "-ssh"), (BATCH_JOBS, "-launcher")),
    has_launcher_job=True,
)
ALL: Final = (PYTORCH, TENSORFLOW, XGBOOST, PADDLE, JAX, MPI_V1, MPI_V1ALPHA2, MPI_V2BETA1)
