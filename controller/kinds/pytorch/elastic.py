"""Elastic PyTorchJobs: the number of workers, torchrun's variables, validation, and the autoscaler.

Source: training-operator 1.9, pkg/controller.v1/pytorch (elastic.go, hpa.go) and pkg/webhooks/pytorch.
"""

from collections.abc import Iterable, Iterator

from api.names import child_name
from api.v1.pytorchjob import RESOURCE, ElasticPolicy, PyTorchJob
from controller.domain import Child, Problem, Role
from controller.kind import EnvVar, Options, Roles, ValidationRule
from controller.kind.autoscaler import autoscaler
from controller.kind.services import host
from controller.kind.validation_rules import FORBIDDEN, REQUIRED, has_role

WORKER = "Worker"

RULES = (
    ValidationRule(
        f"!has(spec.elasticPolicy) || {has_role('spec.pytorchReplicaSpecs', WORKER)}",
        "must have the role Worker if elasticPolicy is used",
        ".pytorchReplicaSpecs",
        REQUIRED,
    ),
    ValidationRule(
        "!has(spec.elasticPolicy) || !has(spec.elasticPolicy.nProcPerNode) || !has(spec.nprocPerNode)",
        "must not be used with spec.nprocPerNode",
        ".elasticPolicy.nProcPerNode",
        FORBIDDEN,
    ),
)
"""The rules of ``check``, except the one about bounds: a job whose program does not read them runs under the original."""


def endpoint(job: PyTorchJob, roles: Roles, role: Role, index: int, options: Options, port: int) -> str:
    """Return where a pod meets the others: at the policy's host, which may be a worker by its name, or else at the first worker.

    Args:
        role, index: the pod that gets the address.
        port: the port, unless the policy has one.
    """
    elastic, workers = job.spec.elastic_policy or ElasticPolicy(), roles[WORKER]
    own_port = elastic.rdzv_port or port
    first = 0
    if elastic.rdzv_host:
        names = (child_name(job.metadata.name, workers.label, at) for at in range(workers.replicas))
        named = next((at for at, name in enumerate(names) if name == elastic.rdzv_host), None)
        if named is None:
            return f"{elastic.rdzv_host}:{own_port}"
        first = named
    is_own = role.name == WORKER and index == first
    return f"{host(job, workers, first, options, is_own=is_own)}:{own_port}"


def env(roles: Roles, elastic: ElasticPolicy, endpoint: str) -> Iterator[EnvVar]:
    """Return torchrun's variables; ``endpoint`` is the host and the port where the pods meet."""
    low, high = _bounds(elastic, roles)
    yield "PET_RDZV_ENDPOINT", endpoint
    yield "PET_RDZV_BACKEND", elastic.rdzv_backend or "c10d"
    yield "PET_NNODES", f"{low}:{high}"
    if elastic.max_restarts is not None:
        yield "PET_MAX_RESTARTS", str(elastic.max_restarts)
    if elastic.nproc_per_node is not None:
        yield "PET_NPROC_PER_NODE", str(elastic.nproc_per_node)
    if elastic.rdzv_id is not None:
        yield "PET_RDZV_ID", elastic.rdzv_id
    if elastic.rdzv_conf:
        yield "PET_RDZV_CONF", ",".join(f"{setting.key}={setting.value}" for setting in elastic.rdzv_conf)
    if elastic.standalone:
        # Differs: the original sends an empty string, which torchrun refuses to parse. See docs/decisions/0007-elastic.md.
        yield "PET_STANDALONE", "1"


def check(job: PyTorchJob, roles: Roles) -> Iterator[Problem]:
    """Return the problems of a PyTorchJob beyond the common ones.

    Differs: contradictory bounds, which torchrun would refuse, are refused here. See docs/decisions/0002-validation.md.
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


def extras(job: PyTorchJob, roles: Roles) -> Iterable[Child]:
    """Return the autoscaler of an elastic job with metrics.

    Differs: an empty list of metrics counts as none. See docs/decisions/0007-elastic.md.
    """
    elastic = job.spec.elastic_policy
    if elastic is None or not elastic.metrics:
        return ()
    low, high = _bounds(elastic, roles)
    return (autoscaler(RESOURCE, job, low, high, elastic.metrics),)


def _bounds(elastic: ElasticPolicy, roles: Roles) -> tuple[int, int]:
    """Return the minimum and maximum number of workers. A missing bound equals the other; without both, they equal ``replicas``."""
    workers = roles[WORKER].replicas if WORKER in roles else 0
    low = next((n for n in (elastic.min_replicas, elastic.max_replicas) if n is not None), workers)
    high = next((n for n in (elastic.max_replicas, elastic.min_replicas) if n is not None), workers)
    return low, high
