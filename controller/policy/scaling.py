"""Pods that scaling down removes. They count for nothing, also if the job is scaled up again while they terminate.

Differs: training-operator counts them as failed. See docs/decisions/0008-pods-and-replicas.md.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import msgspec

from api.children import Pod
from api.meta import PODS
from controller.domain import Deletion, Role, Snapshot


def surplus(roles: Mapping[str, Role], pods: Iterable[Pod], deletions: Iterable[Deletion]) -> frozenset[str]:
    """Return the UIDs of the pods to delete that are beyond the replicas of their role, or whose role the spec no longer has."""
    deleted = {deletion.uid for deletion in deletions if deletion.resource == PODS}
    sizes = {role.label: role.replicas for role in roles.values()}
    return frozenset(pod.uid for pod in pods if pod.uid in deleted and pod.index >= sizes.get(pod.role, 0))


def without_results(snapshot: Snapshot, removed: Collection[str]) -> Snapshot:
    """Return the snapshot in which the terminating ones of these pods have neither run nor ended: they only keep their names."""
    pods = tuple(
        msgspec.structs.replace(pod, phase="Pending", exits=(), ready=False)
        if pod.deleting and pod.uid in removed
        else pod
        for pod in snapshot.pods
    )
    return replace(snapshot, pods=pods)
