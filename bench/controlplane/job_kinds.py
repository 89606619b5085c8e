"""The shape of the measured jobs of each kind: a leader and workers."""

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
    """What a measurement needs to know about a kind."""

    resource: Resource
    container: str
    replicas_field: str
    leader: str
    worker: str = "Worker"
    has_launcher: bool = False
    """Whether the leader is a launcher, the pod of a batch Job beside the replicas; one Service then serves all pods."""

    def pods(self, replicas: int) -> int:
        return replicas + self.has_launcher

    def services(self, replicas: int) -> int:
        return 1 if self.has_launcher else replicas

    def deciding_pods(self, job: str, replicas: int, pods: Iterable[str]) -> list[str]:
        """Return the pods whose success is that of the job: the leader, or without one all."""
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
"""Jobs that are not mixed are of the first kind, PyTorchJob."""
MPI = JobKind(Flavor.V2BETA1.resource, "mpi", "mpiReplicaSpecs", "Launcher", has_launcher=True)
RESOURCES = tuple(job_kind.resource for job_kind in (*JOB_KINDS, MPI))
