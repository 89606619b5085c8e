"""Counts the pods of a role by their state.

Source: training-operator 1.9, pkg/core/status.go, UpdateJobReplicaStatuses.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import TypeVar

from api.children import Owned, Pod
from api.job import ReplicaStatus
from controller.domain import Counts, Role

C = TypeVar("C", bound=Owned)

Slots = Mapping[int, Pod]
"""The pods of one role by index, only for indices that the role has."""

_state = attrgetter("phase", "deleting")


def by_role(children: Iterable[C]) -> dict[str, dict[int, C]]:
    """Return children by the label of their role and their index."""
    found: dict[str, dict[int, C]] = {}
    for child in children:
        of_role = found.get(child.role)
        if of_role is None:
            of_role = found[child.role] = {}
        of_role[child.index] = child
    return found


def slots(role: Role, pods: Mapping[str, Slots]) -> Slots:
    """Return the pods of a role that fill one of its slots; pods beyond ``replicas`` fill none. ``pods`` are those of ``by_role``."""
    filled = pods.get(role.label, {})
    if not filled or (min(filled) >= 0 and max(filled) < role.replicas):
        return filled
    return {index: pod for index, pod in filled.items() if 0 <= index < role.replicas}


def counts(role: Role, filled: Slots, before: ReplicaStatus | None, container: str) -> Counts:
    """Count a role's pods. ``before`` is the role's last written status.

    ``container`` is the one whose exit code counts.

    Differs: pods that scaling down removes do not count, not even as failed. See docs/decisions/0008-pods-and-replicas.md.
    """
    states = Counter[tuple[str, bool]](map(_state, filled.values()))
    active, leaving = states["Running", False], states["Running", True]
    succeeded = states["Succeeded", False] + states["Succeeded", True]
    failed = leaving + states["Failed", False] + states["Failed", True]
    before = before or ReplicaStatus()
    ended = max(succeeded - (before.succeeded or 0), 0) + max(failed - (before.failed or 0), 0)
    missing = role.replicas - len(filled)
    vanished = max(min(missing, (before.active or 0) - active - ended), 0)
    completed = _has_completed(filled.get(0), container)
    return Counts(active, succeeded, failed, vanished, completed, leaving)


def _has_completed(pod: Pod | None, container: str) -> bool:
    done = pod.exit_of(container) if pod and pod.phase == "Succeeded" else None
    return done is not None and done.code == 0
