"""What is seen of a job: its children, from the caches.

A child is the job's own if the job is its controller, by UID, and if it is where the job would put it: in the job's namespace, by the
name that the job gives. An owner reference into another namespace is somebody's invention.

Differs: labels prove nothing; the original takes Services by their labels alone. See docs/decisions/0001-ownership.md.
"""

from api.children import Owned, Pod, PodGroup, Service
from api.names import child_name
from controller.domain import Key, Snapshot
from controller.runtime.store import Store


def owner_uid(row: Owned) -> str:
    """The index that children are found by."""
    return row.owner_uid


def observe(
    pods: Store[Pod], services: Store[Service], job: Key, uid: str, groups: Store[PodGroup] | None = None
) -> Snapshot:
    """The children of one job at this moment. Without ``groups`` there are no gangs."""
    group = groups.get(job.namespace, job.name) if groups is not None else None
    return Snapshot(
        pods=tuple(pod for pod in pods.indexed(uid) if _is_in_place(pod, job)),
        services=tuple(one for one in services.indexed(uid) if _is_in_place(one, job)),
        group=group if group and group.owner_uid == uid else None,
    )


def _is_in_place(row: Pod | Service, job: Key) -> bool:
    return row.namespace == job.namespace and row.name == child_name(job.name, row.role, row.index)
