"""Pods that the operator deletes before they end, because a role was scaled down or a pod is replaced.

What they do while they terminate is no failure, also if a role is scaled up again meanwhile.

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
    roles: Mapping[str, Role], status: JobStatus | None, pods: Iterable[Pod], deletions: Iterable[Deletion]
) -> frozenset[str]:
    """Return the UIDs of the deleted pods whose end is no failure, for ``without_results``.

    These are pods beyond the replicas of their role or of a role that the spec no longer has, and pods of the current attempt that have not
    ended. ``status`` is the planned one.
    """
    deleted = {deletion.uid for deletion in deletions if deletion.resource == PODS}
    sizes = {role.label: role.replicas for role in roles.values()}
    attempt = status.pods_attempt if status else 0
    return frozenset(
        pod.uid
        for pod in pods
        if pod.uid in deleted
        and (pod.index >= sizes.get(pod.role, 0) or (not pod.is_finished and pod.attempt >= attempt))
    )


def without_results(snapshot: Snapshot, removed: Collection[str]) -> Snapshot:
    """Return the snapshot in which the terminating ones of these pods have neither run nor ended: they only keep their names."""
    pods = tuple(
        msgspec.structs.replace(
            pod, phase="Pending", exits=(), ready=False, troubles=(), unhealthy_devices=""
        )
        if pod.deleting and pod.uid in removed
        else pod
        for pod in snapshot.pods
    )
    return replace(snapshot, pods=pods)
