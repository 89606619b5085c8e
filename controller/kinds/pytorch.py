"""PyTorchJob: a master and workers that find each other by environment, or elastic workers under torchrun.

Source: training-operator 1.9, pkg/controller.v1/pytorch (envvar.go, master.go, elastic.go, initcontainer.go, hpa.go).
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import yaml

from api.job import RestartPolicy
from api.names import child_name
from api.v1.pytorchjob import RESOURCE, ElasticPolicy, PyTorchJob
from controller.domain import Child, Counts, Problem, Role, Verdict
from controller.kind import EnvVar, Options, ReplicaKind, Roles
from controller.kind.autoscaler import autoscaler
from controller.kind.judges import led_by
from controller.kind.pods import role_port

MASTER = "Master"
WORKER = "Worker"

_FIELD = re.compile(r"\{\{\s*\.(\w+)\s*\}\}")
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_WAIT_FOR_MASTER = "err=1;for i in $(seq {tries}); do if nslookup {address}; then err=0 && break; fi;echo waiting for master; sleep 2; done; exit $err"


def env(job: PyTorchJob, roles: Roles, role: Role, index: int, _: Options) -> list[EnvVar]:
    """The variables of one pod, in the original's order."""
    variables: list[EnvVar] = [("PYTHONUNBUFFERED", "1")]
    if MASTER in roles:
        variables += _static_env(job, roles, role, index)
    if job.spec.nproc_per_node is not None or not _deprecated_nproc(job):
        variables.append(("PET_NPROC_PER_NODE", _nproc(job)))
    elastic = job.spec.elastic_policy
    if elastic is None:
        return [*variables, ("PET_NNODES", str(_nodes(roles)))]
    return [*variables, *_elastic_env(job, roles, elastic)]


def judge(job: PyTorchJob, roles: Roles, counts: Mapping[str, Counts]) -> Verdict:
    """The master decides; without one all workers do, or the first to succeed in an elastic job."""
    elastic = job.spec.elastic_policy is not None
    return led_by(MASTER, RESOURCE.kind, job, roles, counts, first_success_ends=elastic)


def check(job: PyTorchJob, roles: Roles) -> Iterator[Problem]:
    """What the webhook asks of a PyTorchJob beyond the common.

    Differs: bounds that contradict each other, which torchrun would refuse, are refused here. See docs/decisions/0002-validation.md.
    """
    elastic = job.spec.elastic_policy
    if elastic is None:
        return
    if WORKER not in roles:
        text = "Required value: must be configured if elastic policy is used"
        yield Problem("spec.pytorchReplicaSpecs[Worker]", text)
    if elastic.nproc_per_node is not None and job.spec.nproc_per_node is not None:
        yield Problem("spec.elasticPolicy.nProcPerNode", "Forbidden: must not be used with spec.nprocPerNode")
    low, high = _bounds(elastic, roles)
    if low > high:
        yield Problem(
            "spec.elasticPolicy.minReplicas", f"Invalid value: {low}: must be at most maxReplicas ({high})"
        )


def is_leader(roles: Roles, role: Role, index: int) -> bool:
    """The master, or the first worker of a job without one."""
    return role.name == MASTER or (MASTER not in roles and index == 0)


def init_containers(job: PyTorchJob, roles: Roles, role: Role, options: Options) -> list[dict[str, Any]]:
    """What a worker of a job with a master runs first: wait until the master's name resolves.

    Differs: carries a security context that a restricted namespace accepts, and text is put into the template as it is, without HTML
    escapes. See docs/decisions/0006-init-container.md.
    """
    if role.name != WORKER or MASTER not in roles or not options.init_container:
        return []
    address = child_name(job.metadata.name, MASTER.lower(), 0)
    if options.init_container_template:
        return from_template(options, address)
    script = _WAIT_FOR_MASTER.format(tries=options.init_container_max_tries, address=address)
    return [
        {
            "name": "init-pytorch",
            "image": options.init_container_image,
            "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", script],
            "resources": {
                "limits": {"cpu": "100m", "memory": "20Mi"},
                "requests": {"cpu": "50m", "memory": "10Mi"},
            },
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "runAsNonRoot": True,
                "runAsUser": 65534,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
        }
    ]


def from_template(options: Options, address: str) -> list[dict[str, Any]]:
    """The containers that the user's template makes of the master's address.

    Raises:
        ValueError: it is no YAML, or no list of containers with names.
    """
    values = {
        "MasterAddr": address,
        "InitContainerImage": options.init_container_image,
        "MaxTries": str(options.init_container_max_tries),
    }
    text = _FIELD.sub(lambda found: values.get(found[1], found[0]), options.init_container_template)
    try:
        containers = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"it is no YAML: {error}") from error
    if not isinstance(containers, list):
        raise ValueError("it is no list of containers")
    for number, one in enumerate(containers, 1):
        if not isinstance(one, dict) or not isinstance(one.get("name"), str) or not one["name"]:
            raise ValueError(f"entry {number} of its list is no container with a name")
    return containers


def extras(job: PyTorchJob) -> Iterable[Child]:
    """The autoscaler of an elastic job with metrics.

    Differs: an empty list of metrics counts as none. See docs/decisions/0007-elastic.md.
    """
    elastic = job.spec.elastic_policy
    if elastic is None or not elastic.metrics:
        return ()
    low, high = _bounds(elastic, PYTORCH.roles(job))
    return (autoscaler(RESOURCE, job, low, high, elastic.metrics),)


def _static_env(job: PyTorchJob, roles: Roles, role: Role, index: int) -> list[EnvVar]:
    port, address = str(role_port(PYTORCH, roles[MASTER])), child_name(job.metadata.name, MASTER.lower(), 0)
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


def _elastic_env(job: PyTorchJob, roles: Roles, elastic: ElasticPolicy) -> Iterator[EnvVar]:
    host = elastic.rdzv_host or child_name(job.metadata.name, WORKER.lower(), 0)
    low, high = _bounds(elastic, roles)
    yield "PET_RDZV_ENDPOINT", f"{host}:{elastic.rdzv_port or role_port(PYTORCH, roles[WORKER])}"
    yield "PET_RDZV_BACKEND", elastic.rdzv_backend or "c10d"
    yield "PET_NNODES", f"{low}:{high}"
    if elastic.max_restarts is not None:
        yield "PET_MAX_RESTARTS", str(elastic.max_restarts)
    if elastic.nproc_per_node is not None:
        yield "PET_NPROC_PER_NODE", str(elastic.nproc_per_node)
    if elastic.rdzv_id is not None:
        yield "PET_RDZV_ID", elastic.rdzv_id
    if elastic.rdzv_conf:
        yield "PET_RDZV_CONF", ",".join(f"{one.key}={one.value}" for one in elastic.rdzv_conf)
    if elastic.standalone:
        # Differs: the original sends an empty string, which torchrun refuses to parse. See docs/decisions/0007-elastic.md.
        yield "PET_STANDALONE", "1"


def _bounds(elastic: ElasticPolicy, roles: Roles) -> tuple[int, int]:
    """Least and most workers: one copies the other, and without either both are the workers asked for."""
    workers = roles[WORKER].replicas if WORKER in roles else 0
    low = next((n for n in (elastic.min_replicas, elastic.max_replicas) if n is not None), workers)
    high = next((n for n in (elastic.max_replicas, elastic.min_replicas) if n is not None), workers)
    return low, high


def _nodes(roles: Roles) -> int:
    return sum(role.replicas for role in roles.values())


def _deprecated_nproc(job: PyTorchJob) -> bool:
    return job.spec.elastic_policy is not None and job.spec.elastic_policy.nproc_per_node is not None


def _nproc(job: PyTorchJob) -> str:
    return "auto" if job.spec.nproc_per_node is None else job.spec.nproc_per_node


def _processes(job: PyTorchJob) -> int:
    """Processes per node as far as the spec says: 1 for ``auto`` and other words."""
    text = job.spec.nproc_per_node or ""
    return int(text) if _INTEGER.fullmatch(text) else 1


PYTORCH: Final = ReplicaKind[PyTorchJob](
    resource=RESOURCE,
    model=PyTorchJob,
    framework="pytorch",
    container="pytorch",
    port_name="pytorchjob-port",
    port=23456,
    restart_policy=RestartPolicy.ON_FAILURE,
    role_names=(MASTER, WORKER),
    single_roles=(MASTER,),
    scalable=True,
    replicas_field="pytorchReplicaSpecs",
    replicas=lambda job: job.spec.pytorch_replica_specs,
    env=env,
    is_leader=is_leader,
    judge=judge,
    check=check,
    init_containers=init_containers,
    extras=extras,
    ttl_event_reasons=("SuccessfulDeletePod", "FailedDeletePod"),
)
