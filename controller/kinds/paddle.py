"""PaddleJob: trainers alone (collective mode), or parameter servers, which have the role Master, and trainers.

Source: training-operator 1.9, pkg/controller.v1/paddlepaddle (envvar.go, paddlepaddle_controller.go).
"""

from typing import Final

from api.job import RestartPolicy
from api.v1.paddlejob import RESOURCE, PaddleJob
from controller.domain import Role
from controller.kind import EnvVar, Options, ReplicaKind, Roles
from controller.kind.pods import role_port
from controller.kind.services import host

MASTER = "Master"
WORKER = "Worker"

_OWN_IP = "POD_IP_DUMMY"
"""Not ``POD_IP``, which Paddle's launcher would use as its own."""


def env(job: PaddleJob, roles: Roles, role: Role, index: int, options: Options) -> list[EnvVar]:
    """Return the variables of one pod, in the original's order."""
    variables: list[EnvVar] = [
        ("PYTHONUNBUFFERED", "1"),
        ("PADDLE_JOB_ID", job.metadata.name),
        ("PADDLE_NNODES", str(sum(role.replicas for role in roles.values()))),
        *_rendezvous(job, roles, role, index, options),
    ]
    if MASTER in roles:
        variables.append(("PADDLE_SERVER_NUM" if role.name == MASTER else "PADDLE_TRAINER_NUM", "1"))
    return variables


def is_addressed(_job: PaddleJob, roles: Roles, role: Role, index: int) -> bool:
    """Return whether the pod is the first server, or the first trainer if there is none. Paddle exchanges IP addresses there."""
    return index == 0 and role.name == _first(roles).name


def _first(roles: Roles) -> Role:
    """Return the role of the pod that all others meet."""
    return roles.get(MASTER) or roles[WORKER]


def _rendezvous(job: PaddleJob, roles: Roles, role: Role, index: int, options: Options) -> list[EnvVar]:
    """Return the rendezvous address: the first server, or the first trainer if there is none.

    Paddle's launcher listens there only if the host equals its own IP address; so that pod gets its IP address, and all others its name.
    """
    first = _first(roles)
    port = role_port(PADDLE, first)
    if role.name == first.name and index == 0:
        own_ip = {"fieldRef": {"fieldPath": "status.podIP"}}
        return [(_OWN_IP, own_ip), ("PADDLE_MASTER", f"$({_OWN_IP}):{port}")]
    return [("PADDLE_MASTER", f"{host(job, first, 0, options)}:{port}")]


PADDLE: Final = ReplicaKind[PaddleJob](
    resource=RESOURCE,
    model=PaddleJob,
    port_name="master",
    port=36543,
    restart_policy=RestartPolicy.ON_FAILURE,
    role_names=(MASTER, WORKER),
    scalable=True,
    missing_container='must have at least one container with name "{}"',
    leader=MASTER,
    env=env,
    is_addressed=is_addressed,
    ttl_event_reasons=("SuccessfulDeletePod", "FailedDeletePod"),
)
