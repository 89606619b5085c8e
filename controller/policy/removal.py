"""Pods that the operator deletes because their role was scaled down, or to replace them before they end.

What they do while they terminate is no failure, also if the role is scaled up again meanwhile.

Differs: training-operator counts them as failed. See docs/decisions/0008-pods-and-replicas.md.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import msgspec

from api.children import Pod
from api.job import JobStatus
from api.meta import PODS
from controller.domain import Deletion, Role, Snapshot


def removed(
    surplus_pods: frozenset[str], status: JobStatus | None, pods: Iterable[Pod], deletions: Iterable[Deletion]
) -> frozenset[str]:
    """Return the UIDs of the deleted pods whose end is no failure, for ``without_results``.

    These are ``surplus_pods``, and pods of the current attempt that have not ended. The failure of a pod whose deletion is forced, because it
    was lost with its node, has been recorded before. ``status`` is the planned one.
    """
    deleted = frozenset(
        deletion.uid for deletion in deletions if deletion.resource == PODS and not deletion.is_forced
    )
    attempt = status.pods_attempt if status else 0
    replaced = (pod for pod in pods if not pod.is_finished and pod.attempt >= attempt)
    return deleted & (surplus_pods | {pod.uid for pod in replaced})


def surplus(roles: Mapping[str, Role], pods: Iterable[Pod]) -> frozenset[str]:
    """Return the UIDs of the pods beyond the replicas of their role, or of a role that the spec no longer has."""
    sizes = {role.label: role.replicas for role in roles.values()}
    return frozenset(pod.uid for pod in pods if pod.index >= sizes.get(pod.role, 0))


def without_results(snapshot: Snapshot, uids: Collection[str]) -> Snapshot:
    """Return the snapshot in which the terminating ones of these pods have neither run nor ended: they only keep their names."""
    pods = tuple(
        msgspec.structs.replace(
            pod, phase="Pending", exits=(), ready=False, troubles=(), unhealthy_devices=""
        )
        if pod.deleting and pod.uid in uids
        else pod
        for pod in snapshot.pods
    )
    return replace(snapshot, pods=pods)
