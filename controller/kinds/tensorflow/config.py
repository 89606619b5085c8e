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
from controller.kind import Roles

PS = "PS"
WORKER = "Worker"

Port = Callable[[Role], int]
"""Returns the number of the kind's port in one role."""


def full(job: TFJob, roles: Roles, role: Role, index: int, domain: str, port: Port) -> str:
    """Return the addresses of all replicas. The evaluator's is included, because existing programs expect it."""
    sizes = tuple((role.label, role.replicas, port(role)) for role in roles.values())
    cluster = _cluster(job.metadata.name, job.metadata.namespace, domain, sizes)
    return f'{{"cluster":{cluster},"task":{_json(_task(role, index))},"environment":"cloud"}}'


@lru_cache(maxsize=16)
def _cluster(job: str, namespace: str, domain: str, sizes: tuple[tuple[str, int, int], ...]) -> str:
    """Return all addresses by role; ``sizes`` are each role's label, replicas and port.

    Cached, because all pods of a job get the same text: ten thousand addresses, ten thousand times.
    """
    return _json(
        {
            label: [_address(job, namespace, domain, label, at, port) for at in range(replicas)]
            for label, replicas, port in sizes
        }
    )


def sparse(job: TFJob, roles: Roles, role: Role, index: int, domain: str, port: Port) -> str:
    """Return the sparse cluster of a job with dynamic workers: a pod's own address, and for workers those of the parameter servers.

    Chief, master and evaluator get nothing; the value is ``null`` in a job without parameter servers.
    """

    def address(role: Role, at: int) -> str:
        return _address(job.metadata.name, job.metadata.namespace, domain, role.label, at, port(role))

    workers: dict[str, str] = {}
    servers: list[str] | None = []
    if role.name == WORKER:
        workers = {str(index): address(role, index)}
        servers = [address(roles[PS], at) for at in range(roles[PS].replicas)] if PS in roles else None
    elif role.name == PS:
        servers = [address(role, index)]
    return _json({"cluster": {"worker": workers, "ps": servers}, "task": _task(role, index)})


def _address(job: str, namespace: str, domain: str, label: str, index: int, port: int) -> str:
    """Return the address of a replica's Service."""
    return f"{child_name(job, label, index)}.{namespace}.svc{'.' if domain else ''}{domain}:{port}"


def _task(role: Role, index: int) -> dict[str, Any]:
    return {"type": role.label, "index": index}


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()
