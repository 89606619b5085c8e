"""What the jobs of each kind look like in a measurement: one replica that leads, and the others."""

from dataclasses import dataclass

from api.meta import Resource
from controller.kinds.jax import JAX
from controller.kinds.paddle import PADDLE
from controller.kinds.pytorch import PYTORCH
from controller.kinds.tensorflow import TENSORFLOW
from controller.kinds.xgboost import XGBOOST


@dataclass(frozen=True, slots=True)
class Form:
    """A kind, as far as a measurement needs it."""

    resource: Resource
    container: str
    replicas_field: str
    leader: str
    worker: str = "Worker"

    def deciding(self, job: str, replicas: int) -> list[str]:
        """The pods that the job has succeeded with when they have: the leader, or all where nobody leads."""
        count = 1 if self.leader != self.worker else replicas
        return [f"{job}-{self.leader.lower()}-{index}" for index in range(count)]


FORMS = tuple(
    Form(kind.resource, kind.container, kind.replicas_field, leader)
    for kind, leader in (
        (PYTORCH, "Master"),
        (TENSORFLOW, "Chief"),
        (XGBOOST, "Master"),
        (PADDLE, "Master"),
        (JAX, "Worker"),
    )
)
"""PyTorchJob is the first: the jobs of whatever is not mixed."""
RESOURCES = tuple(form.resource for form in FORMS)
