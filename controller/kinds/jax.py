"""JAXJob: workers of one role, the first of which is the coordinator.

Source: training-operator 1.9, pkg/controller.v1/jax (envvar.go, jaxjob_controller.go).
"""

from typing import Final

from api.v1.jaxjob import RESOURCE, JAXJob
from controller.domain import Role
from controller.kind import EnvVar, Options, ReplicaKind, Roles
from controller.kind.pods import role_port
from controller.kind.services import host

WORKER = "Worker"


def env(job: JAXJob, roles: Roles, role: Role, index: int, options: Options) -> list[EnvVar]:
    """Return the variables of one pod, in the original's order: the arguments of ``jax.distributed.initialize``."""
    return [
        ("PYTHONUNBUFFERED", "1"),
        ("COORDINATOR_PORT", str(role_port(JAX, role))),
        ("COORDINATOR_ADDRESS", host(job, role, 0, options, is_own=index == 0)),
        ("NUM_PROCESSES", str(sum(role.replicas for role in roles.values()))),
        ("PROCESS_ID", str(index)),
    ]


def is_leader(_roles: Roles, _role: Role, index: int) -> bool:
    """The coordinator, whose address all others have."""
    return index == 0


JAX: Final = ReplicaKind[JAXJob](
    resource=RESOURCE,
    model=JAXJob,
    port=6666,
    role_names=(WORKER,),
    scalable=True,
    env=env,
    is_leader=is_leader,
    is_addressed=lambda _job, roles, role, index: is_leader(roles, role, index),
    ttl_event_reasons=("SuccessfulDeletePod", "FailedDeletePod"),
)
