"""What the jobs of each kind look like in a measurement: one replica that leads, and the others."""

from collections.abc import Iterable
from dataclasses import dataclass

from api.meta import Resource
from api.mpijob import Flavor
from controller.kinds.jax import JAX
from controller.kinds.paddle import PADDLE
from controller.kinds.pytorch import PYTORCH
from controller.kinds.tensorflow import TENSORFLOW
from controller.kinds.xgboost import XGBOOST


@dataclass(frozen=True, slots=True)
class JobKind:
    """A kind, as far as a measurement needs it."""

    resource: Resource
    container: str
    replicas_field: str
    leader: str
    worker: str = "Worker"
    has_launcher: bool = False
    """Whether the leader comes beside the replicas, as the pod of a batch Job, and there is one Service for all."""

    def pods(self, replicas: int) -> int:
        return replicas + self.has_launcher

    def services(self, replicas: int) -> int:
        return 1 if self.has_launcher else replicas

    def deciding_pods(self, job: str, replicas: int, pods: Iterable[str]) -> list[str]:
        """Of all pods those that the job has succeeded with when they have: the leader, or all where nobody leads."""
        if self.has_launcher:
            return [pod for pod in pods if pod.startswith(f"{job}-launcher-")]
        count = 1 if self.leader != self.worker else replicas
        return [f"{job}-{self.leader.lower()}-{index}" for index in range(count)]


JOB_KINDS = tuple(
    JobKind(kind.resource, kind.container, kind.replicas_field, leader)
    for kind, leader in (
        (PYTORCH, "Master"),
        (TENSORFLOW, "Chief"),
        (XGBOOST, "Master"),
        (PADDLE, "Master"),
        (JAX, "Worker"),
    )
)
"""PyTorchJob is the first: the jobs of whatever is not mixed."""
MPI = JobKind(Flavor.V2BETA1.resource, "mpi", "mpiReplicaSpecs", "Launcher", has_launcher=True)
RESOURCES = tuple(job_kind.resource for job_kind in (*JOB_KINDS, MPI))
