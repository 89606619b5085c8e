"""TFJob: chief, workers, parameter servers and evaluator, each told by ``TF_CONFIG`` where all the others are.

Source: training-operator 1.9, pkg/controller.v1/tensorflow (tensorflow.go, util.go, tfjob_controller.go).
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import orjson

from api.job import RestartPolicy
from api.names import child_name
from api.v1.tfjob import ALL_WORKERS, RESOURCE, TFJob
from controller.domain import Counts, Role, Verdict
from controller.kind import EnvVar, Options, ReplicaKind, Roles
from controller.kind.judges import losses
from controller.kind.pods import role_port

CHIEF = "Chief"
EVALUATOR = "Evaluator"
MASTER = "Master"
PS = "PS"
WORKER = "Worker"

_CHIEFS = (CHIEF, MASTER)
"""Two names of one role: ``Master`` is what TensorFlow 1 calls it."""


def env(job: TFJob, roles: Roles, role: Role, index: int, options: Options) -> list[EnvVar]:
    """``TF_CONFIG``, which a job of a single pod does without."""
    if sum(one.replicas for one in roles.values()) == 1:
        return []
    told = _sparse if job.spec.enable_dynamic_worker else _full
    return [("TF_CONFIG", told(job, roles, role, index, options.cluster_domain))]


def judge(job: TFJob, roles: Roles, counts: Mapping[str, Counts]) -> Verdict:
    """The chief decides if there is one, else the workers do: worker 0 alone, or all of them, as the success policy says.

    A failure of any role counts, but for workers that may come and go.

    Differs: parameter servers and evaluators without any worker decide for themselves; in the original such a job never ends. Nothing
    is judged beyond a success. See docs/decisions/0004-cleanup.md and 0008-pods-and-replicas.md.
    """
    name = f"{RESOURCE.kind} {job.metadata.namespace}/{job.metadata.name}"
    deciding = _deciding(roles)
    if deciding and all(_is_done(job, role, counts[role.name]) for role in deciding):
        return Verdict(succeeded=f"{name} successfully completed.")
    failed, restarting = losses(
        RESOURCE.kind,
        job,
        roles,
        counts,
        failure="{kind} {namespace}/{name} has failed because {count} {role} replica(s) failed.",
        restart="job {name} is restarting because {role} replica(s) failed.",
        dispensable=(WORKER,) if job.spec.enable_dynamic_worker else (),
    )
    is_running = any(counts[role.name].active for role in deciding)
    return Verdict(running=f"{name} is running." if is_running else "", failed=failed, restarting=restarting)


def is_leader(roles: Roles, role: Role, index: int) -> bool:
    """Every chief, or the first worker of a job without one."""
    if any(name in roles for name in _CHIEFS):
        return role.name in _CHIEFS
    return role.name == WORKER and index == 0


def _deciding(roles: Roles) -> list[Role]:
    chiefs = [roles[name] for name in _CHIEFS if name in roles and roles[name].replicas]
    workers = [roles[name] for name in (WORKER,) if name in roles]
    return chiefs or workers or [role for role in roles.values() if role.replicas]


def _is_done(job: TFJob, role: Role, count: Counts) -> bool:
    if role.name == WORKER and job.spec.success_policy != ALL_WORKERS and count.first_completed:
        return True
    return 0 < role.replicas <= count.succeeded


def _full(job: TFJob, roles: Roles, role: Role, index: int, domain: str) -> str:
    """Everybody's addresses, the same for every pod: the evaluator's too, as programs in use expect."""
    sizes = tuple((one.label, one.replicas, role_port(TENSORFLOW, one)) for one in roles.values())
    cluster = _cluster(job.metadata.name, job.metadata.namespace, domain, sizes)
    return f'{{"cluster":{cluster},"task":{_json(_task(role, index))},"environment":"cloud"}}'


@lru_cache(maxsize=16)
def _cluster(job: str, namespace: str, domain: str, sizes: tuple[tuple[str, int, int], ...]) -> str:
    """All addresses by role; ``sizes`` are each role's label, replicas and port.

    Remembered, as each pod of a job is told the same: ten thousand addresses, ten thousand times.
    """
    return _json(
        {
            label: [_address(job, namespace, domain, label, at, port) for at in range(replicas)]
            for label, replicas, port in sizes
        }
    )


def _sparse(job: TFJob, roles: Roles, role: Role, index: int, domain: str) -> str:
    """What does not change when workers come and go: a pod's own address, and for workers those of the parameter servers.

    Chief, master and evaluator are told nothing; ``null`` is what a job without parameter servers says of them.
    """

    def address(one: Role, at: int) -> str:
        port = role_port(TENSORFLOW, one)
        return _address(job.metadata.name, job.metadata.namespace, domain, one.label, at, port)

    workers: dict[str, str] = {}
    servers: list[str] | None = []
    if role.name == WORKER:
        workers = {str(index): address(role, index)}
        servers = [address(roles[PS], at) for at in range(roles[PS].replicas)] if PS in roles else None
    elif role.name == PS:
        servers = [address(role, index)]
    return _json({"cluster": {"worker": workers, "ps": servers}, "task": _task(role, index)})


def _address(job: str, namespace: str, domain: str, label: str, index: int, port: int) -> str:
    """Where a replica's Service is."""
    return f"{child_name(job, label, index)}.{namespace}.svc{'.' if domain else ''}{domain}:{port}"


def _task(role: Role, index: int) -> dict[str, Any]:
    return {"type": role.label, "index": index}


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()


TENSORFLOW: Final = ReplicaKind[TFJob](
    resource=RESOURCE,
    model=TFJob,
    framework="tensorflow",
    container="tensorflow",
    port_name="tfjob-port",
    port=2222,
    restart_policy=RestartPolicy.NEVER,
    # In the order of the alphabet: it is also that of the roles in TF_CONFIG.
    role_names=(CHIEF, EVALUATOR, MASTER, PS, WORKER),
    alternative_roles=_CHIEFS,
    replicas_field="tfReplicaSpecs",
    replicas=lambda job: job.spec.tf_replica_specs,
    env=env,
    env_everywhere=False,
    is_leader=is_leader,
    judge=judge,
)
