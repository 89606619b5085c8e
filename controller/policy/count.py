"""Counts the pods of a role by their state.

Source: training-operator 1.9, pkg/core/status.go, UpdateJobReplicaStatuses.
"""

from collections.abc import Mapping

from api.children import Pod
from api.job import ReplicaStatus
from controller.domain import Counts, Role

Slots = Mapping[int, Pod]
"""Return the pods of one role by index, only for indices that the role has."""


def slots(role: Role, pods: tuple[Pod, ...]) -> Slots:
    """Return the pods of a role that fill one of its slots; pods beyond ``replicas`` fill none."""
    return {pod.index: pod for pod in pods if pod.role == role.label and 0 <= pod.index < role.replicas}


def counts(role: Role, filled: Slots, before: ReplicaStatus | None, container: str) -> Counts:
    """Count a role's pods. ``before`` is the role's last written status.

    ``container`` is the one whose exit code counts.

    Differs: pods that scaling down removes do not count, not even as failed. See docs/decisions/0008-pods-and-replicas.md.
    """
    active = sum(pod.is_active for pod in filled.values())
    succeeded = sum(pod.phase == "Succeeded" for pod in filled.values())
    leaving = sum(pod.phase == "Running" and pod.deleting for pod in filled.values())
    failed = leaving + sum(pod.phase == "Failed" for pod in filled.values())
    before = before or ReplicaStatus()
    ended = max(succeeded - (before.succeeded or 0), 0) + max(failed - (before.failed or 0), 0)
    missing = role.replicas - len(filled)
    vanished = max(min(missing, (before.active or 0) - active - ended), 0)
    completed = _has_completed(filled.get(0), container)
    return Counts(active, succeeded, failed, vanished, completed, leaving)


def _has_completed(pod: Pod | None, container: str) -> bool:
    done = pod.exit_of(container) if pod and pod.phase == "Succeeded" else None
    return done is not None and done.code == 0
