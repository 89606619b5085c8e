"""XGBoostJob: a master that trains along and runs the tracker, and workers; LightGBM uses it, too.

Source: training-operator 1.9, pkg/controller.v1/xgboost (xgboost.go, xgboostjob_controller.go).
"""

from functools import partial
from typing import Final

from api.job import RestartPolicy
from api.names import child_name
from api.v1.xgboostjob import RESOURCE, XGBoostJob
from controller.domain import Role
from controller.kind import EnvVar, Options, ReplicaKind, Roles
from controller.kind.completion_rules import led_by
from controller.kind.pods import role_port

MASTER = "Master"
WORKER = "Worker"


def env(job: XGBoostJob, roles: Roles, role: Role, index: int, _: Options) -> list[EnvVar]:
    """The variables of one pod, in the original's order; those of the workers are for LightGBM's list of machines."""
    name, master, worker = job.metadata.name, roles[MASTER], roles.get(WORKER)
    variables: list[EnvVar] = [
        ("MASTER_PORT", str(role_port(XGBOOST, master))),
        ("MASTER_ADDR", child_name(name, master.label, 0)),
        ("WORLD_SIZE", str(sum(one.replicas for one in roles.values()))),
        ("RANK", str(index if role.name == MASTER else index + master.replicas)),
        ("PYTHONUNBUFFERED", "1"),
    ]
    if worker and worker.replicas:
        names = (child_name(name, worker.label, at) for at in range(worker.replicas))
        variables += [("WORKER_PORT", str(role_port(XGBOOST, worker))), ("WORKER_ADDRS", ",".join(names))]
    return variables


def is_leader(_roles: Roles, role: Role, _index: int) -> bool:
    return role.name == MASTER


XGBOOST: Final = ReplicaKind[XGBoostJob](
    resource=RESOURCE,
    model=XGBoostJob,
    framework="xgboost",
    container="xgboost",
    port_name="xgboostjob-port",
    port=9999,
    restart_policy=RestartPolicy.NEVER,
    role_names=(MASTER, WORKER),
    single_roles=(MASTER,),
    required_roles=(MASTER,),
    replicas_field="xgbReplicaSpecs",
    replicas=lambda job: job.spec.xgb_replica_specs,
    env=env,
    is_leader=is_leader,
    # Differs: the original fails the job whose pods it replaces under OnFailure and Always. See docs/decisions/0008-pods-and-replicas.md.
    completion_rule=partial(led_by, MASTER, RESOURCE.kind),
)
