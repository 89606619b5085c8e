"""XGBoostJob: a master that trains and runs the tracker, and workers. LightGBM uses this kind, too.

Source: training-operator 1.9, pkg/controller.v1/xgboost (xgboost.go, xgboostjob_controller.go).
"""

from typing import Final

from api.v1.xgboostjob import RESOURCE, XGBoostJob
from controller.domain import Role
from controller.kind import EnvVar, Options, ReplicaKind, Roles
from controller.kind.pods import role_port
from controller.kind.services import host

MASTER = "Master"
WORKER = "Worker"


def env(job: XGBoostJob, roles: Roles, role: Role, index: int, options: Options) -> list[EnvVar]:
    """Return the variables of one pod, in the original's order; those about workers are for LightGBM's list of machines."""
    master, worker = roles[MASTER], roles.get(WORKER)
    variables: list[EnvVar] = [
        ("MASTER_PORT", str(role_port(XGBOOST, master))),
        ("MASTER_ADDR", host(job, master, 0, options, is_own=role.name == MASTER)),
        ("WORLD_SIZE", str(sum(role.replicas for role in roles.values()))),
        ("RANK", str(index if role.name == MASTER else index + master.replicas)),
        ("PYTHONUNBUFFERED", "1"),
    ]
    if worker and worker.replicas:
        names = (host(job, worker, at, options) for at in range(worker.replicas))
        variables += [("WORKER_PORT", str(role_port(XGBOOST, worker))), ("WORKER_ADDRS", ",".join(names))]
    return variables


XGBOOST: Final = ReplicaKind[XGBoostJob](
    resource=RESOURCE,
    model=XGBoostJob,
    port=9999,
    role_names=(MASTER, WORKER),
    single_roles=(MASTER,),
    required_roles=(MASTER,),
    # Differs: the original fails the job whose pods it replaces under OnFailure and Always. See docs/decisions/0008-pods-and-replicas.md.
    leader=MASTER,
    env=env,
)
