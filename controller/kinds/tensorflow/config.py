"""Builds ``TF_CONFIG``: the addresses of all replicas of a TFJob, and the task of one pod.

Source: training-operator 1.9, pkg/controller.v1/tensorflow/tensorflow.go.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import orjson

from api.names import child_name
from api.v1.tfjob import TFJob
from controller.domain import Role
from controller.kind import Options, Roles
from controller.kind.services import qualified, subdomain

PS = "PS"
WORKER = "Worker"

Port = Callable[[Role], int]
"""Returns the number of the kind's port in one role."""


def full(job: TFJob, roles: Roles, role: Role, index: int, options: Options, port: Port) -> str:
    """Return the addresses of all replicas. The evaluator's is included, because existing programs expect it."""
    sizes = tuple((role.label, role.replicas, port(role)) for role in roles.values())
    cluster = _cluster(job.metadata.name, subdomain(job, options), _suffix(job, options), sizes)
    return f'{{"cluster":{cluster},"task":{_json(_task(role, index))},"environment":"cloud"}}'


@lru_cache(maxsize=16)
def _cluster(job: str, domain: str, suffix: str, sizes: tuple[tuple[str, int, int], ...]) -> str:
    """Return all addresses by role; ``domain`` is the subdomain of the pods, ``sizes`` are each role's label, replicas and port.

    Cached, because all pods of a job get the same text: ten thousand addresses, ten thousand times.
    """
    return _json(
        {
            label: [_address(job, domain, suffix, label, at, port) for at in range(replicas)]
            for label, replicas, port in sizes
        }
    )


def sparse(job: TFJob, roles: Roles, role: Role, index: int, options: Options, port: Port) -> str:
    """Return the sparse cluster of a job with dynamic workers: a pod's own address, and for workers those of the parameter servers.

    Chief, master and evaluator get nothing; the value is ``null`` in a job without parameter servers.
    """

    domain, suffix = subdomain(job, options), _suffix(job, options)

    def address(role: Role, at: int) -> str:
        return _address(job.metadata.name, domain, suffix, role.label, at, port(role))

    workers: dict[str, str] = {}
    servers: list[str] | None = []
    if role.name == WORKER:
        workers = {str(index): address(role, index)}
        servers = [address(roles[PS], at) for at in range(roles[PS].replicas)] if PS in roles else None
    elif role.name == PS:
        servers = [address(role, index)]
    return _json({"cluster": {"worker": workers, "ps": servers}, "task": _task(role, index)})


def is_addressed(job: TFJob, roles: Roles, role: Role, _index: int) -> bool:
    """Return whether a ``TF_CONFIG`` names the pod: those of all roles, or with dynamic workers only workers and parameter servers.

    A job with a single pod has none.
    """
    is_named = not job.spec.enable_dynamic_worker or role.name in {PS, WORKER}
    return is_named and sum(role.replicas for role in roles.values()) > 1


def _suffix(job: TFJob, options: Options) -> str:
    """Return the end of all addresses: the namespace and, if it is set, the domain of the cluster."""
    return ".".join(filter(None, (job.metadata.namespace, "svc", options.cluster_domain)))


def _address(job: str, domain: str, suffix: str, label: str, index: int, port: int) -> str:
    """Return the address of a replica by its Service, or by that of the job."""
    return f"{qualified(child_name(job, label, index), domain)}.{suffix}:{port}"


def _task(role: Role, index: int) -> dict[str, Any]:
    return {"type": role.label, "index": index}


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()
