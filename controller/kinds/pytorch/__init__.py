"""PyTorchJob: a master and workers that find each other by environment variables, or elastic workers under torchrun.

Source: training-operator 1.9, pkg/controller.v1/pytorch (envvar.go, master.go).
"""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from api.job import RestartPolicy
from api.v1.pytorchjob import RESOURCE, PyTorchJob
from controller.domain import Child, Counts, Role, Snapshot, Verdict
from controller.kind import Check, EnvVar, Options, ReplicaKind, Roles
from controller.kind.completion_rules import led_by
from controller.kind.pods import role_port
from controller.kind.services import host, subdomain
from controller.kinds.pytorch import elastic
from controller.kinds.pytorch.elastic import WORKER
from controller.kinds.pytorch.init_container import until_resolved
from controller.kinds.pytorch.options import PyTorchOptions

MASTER = "Master"

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")


def env(job: PyTorchJob, roles: Roles, role: Role, index: int, options: Options) -> list[EnvVar]:
    """Return the variables of one pod, in the original's order."""
    variables: list[EnvVar] = [("PYTHONUNBUFFERED", "1")]
    if MASTER in roles:
        variables += _static_env(job, roles, role, index, options)
    if job.spec.nproc_per_node is not None or not _deprecated_nproc(job):
        variables.append(("PET_NPROC_PER_NODE", _nproc(job)))
    policy = job.spec.elastic_policy
    if policy is None:
        return [*variables, ("PET_NNODES", str(_nodes(roles)))]
    endpoint = elastic.endpoint(job, roles, role, index, options, role_port(PYTORCH, roles[WORKER]))
    return [*variables, *elastic.env(roles, policy, endpoint)]


def completion_rule(job: PyTorchJob, roles: Roles, counts: Mapping[str, Counts]) -> Verdict:
    """Return the verdict: the master ends the job; without one all workers do, or the first that succeeds in an elastic job."""
    is_elastic = job.spec.elastic_policy is not None
    return led_by(MASTER, RESOURCE.kind, job, roles, counts, first_success_ends=is_elastic)


def is_leader(roles: Roles, role: Role, index: int) -> bool:
    """Return whether the pod is the master, or the first worker of a job without one."""
    return role.name == MASTER or (MASTER not in roles and index == 0)


def init_containers(job: PyTorchJob, roles: Roles, role: Role, options: Options) -> list[dict[str, Any]]:
    """Return the init container of a worker in a job with a master, which waits until the master's name resolves."""
    if role.name != WORKER or MASTER not in roles:
        return []
    address, full = host(job, roles[MASTER], 0, options), ""
    if subdomain(job, options) and options.cluster_domain:
        full = f"{address}.{job.metadata.namespace}.svc.{options.cluster_domain}"
    return until_resolved("init-pytorch", address, options.of(PyTorchOptions), full)


def extras(job: PyTorchJob, _snapshot: Snapshot, _now: datetime, _options: Options) -> Iterable[Child]:
    return elastic.extras(job, PYTORCH.roles(job))


def is_addressed(job: PyTorchJob, roles: Roles, role: Role, _index: int) -> bool:
    """Return whether other pods need the name of this one: the master's, or any if there is none or the job is elastic.

    Where torchrun's agents meet by themselves, they choose the pod with rank 0 and learn its host name.

    Source: PyTorch, torch/distributed/elastic/rendezvous/api.py, RendezvousStoreInfo.build.
    """
    return role.name == MASTER or MASTER not in roles or job.spec.elastic_policy is not None


def _static_env(job: PyTorchJob, roles: Roles, role: Role, index: int, options: Options) -> list[EnvVar]:
    port = str(role_port(PYTORCH, roles[MASTER]))
    address = host(job, roles[MASTER], 0, options, is_own=role.name == MASTER)
    rank = str(index if role.name == MASTER else index + 1)
    return [
        ("MASTER_PORT", port),
        ("PET_MASTER_PORT", port),
        ("MASTER_ADDR", address),
        ("PET_MASTER_ADDR", address),
        ("WORLD_SIZE", str(_nodes(roles) * _processes(job))),
        ("RANK", rank),
        ("PET_NODE_RANK", rank),
    ]


def _nodes(roles: Roles) -> int:
    return sum(role.replicas for role in roles.values())


def _deprecated_nproc(job: PyTorchJob) -> bool:
    return job.spec.elastic_policy is not None and job.spec.elastic_policy.nproc_per_node is not None


def _nproc(job: PyTorchJob) -> str:
    return "auto" if job.spec.nproc_per_node is None else job.spec.nproc_per_node


def _processes(job: PyTorchJob) -> int:
    """Return the processes per node: 1 for ``auto`` and other words."""
    text = job.spec.nproc_per_node or ""
    return int(text) if _INTEGER.fullmatch(text) else 1


PYTORCH: Final = ReplicaKind[PyTorchJob](
    resource=RESOURCE,
    model=PyTorchJob,
    port=23456,
    restart_policy=RestartPolicy.ON_FAILURE,
    role_names=(MASTER, WORKER),
    single_roles=(MASTER,),
    scalable=True,
    env=env,
    is_leader=is_leader,
    is_addressed=is_addressed,
    completion_rule=completion_rule,
    options=PyTorchOptions,
    check=elastic.check,
    rules=elastic.RULES,
    # The recording pytorchjob/no-default-container creates such a job.
    left_to_controller=frozenset({Check.MAIN_CONTAINER}),
    init_containers=init_containers,
    extras=extras,
    ttl_event_reasons=("SuccessfulDeletePod", "FailedDeletePod"),
)
