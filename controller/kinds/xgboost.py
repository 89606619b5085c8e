"""XGBoostJob: a master that trains and runs the tracker, and workers. LightGBM uses this kind, too.

Source: training-operator 1.9, pkg/controller.v1/xgboost (xgboost.go, xgboostjob_controller.go).
"""

from typing import Final

from api.names import child_name
from api.v1.xgboostjob import RESOURCE, XGBoostJob
from controller.domain import Role
from controller.kind import EnvVar, Options, ReplicaKind, Roles
from controller.kind.pods import role_port

MASTER = "Master"
WORKER = "Worker"


def env(job: XGBoostJob, roles: Roles, role: Role, index: int, _: Options) -> list[EnvVar]:
    """Return the variables of one pod, in the original's order; those about workers are for LightGBM's list of machines."""
    name, master, worker = job.metadata.name, roles[MASTER], roles.get(WORKER)
    variables: list[EnvVar] = [
        ("MASTER_PORT", str(role_port(XGBOOST, master))),
        ("MASTER_ADDR", child_name(name, master.label, 0)),
        ("WORLD_SIZE", str(sum(role.replicas for role in roles.values()))),
        ("RANK", str(index if role.name == MASTER else index + master.replicas)),
        ("PYTHONUNBUFFERED", "1"),
    ]
    if worker and worker.replicas:
        names = (child_name(name, worker.label, at) for at in range(worker.replicas))
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
