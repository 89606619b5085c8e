"""What is seen of a job: its children, from the caches.

A child is the job's own if the job is its controller, by UID, and if it has the name that the job would give it. Labels prove nothing.
See docs/decisions/0001-ownership.md.
"""

from api.children import Pod, Service
from api.names import child_name
from controller.domain import Snapshot
from controller.runtime.store import Store


def owner_uid(row: Pod | Service) -> str:
    """The index that children are found by."""
    return row.owner_uid


def observe(pods: Store[Pod], services: Store[Service], job: str, uid: str) -> Snapshot:
    """The children of one job at this moment."""
    return Snapshot(
        pods=tuple(pod for pod in pods.indexed(uid) if _is_named(pod, job)),
        services=tuple(one for one in services.indexed(uid) if _is_named(one, job)),
    )


def _is_named(row: Pod | Service, job: str) -> bool:
    return row.name == child_name(job, row.role, row.index)
