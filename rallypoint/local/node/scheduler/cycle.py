"""One scheduling cycle: which waiting pods are bound, and the messages of the others. Pure.

Pods are scheduled singly or as gangs (``gangs``), by priority, then by age. A pod that does not fit blocks no other
pod. There is no preemption.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rallypoint.local.manifest import Manifest
from rallypoint.local.node.resources import RequestsOf, requests
from rallypoint.local.node.scheduler import fit, gangs
from rallypoint.local.node.scheduler.fit import (
    FreeResources,
    Unschedulable,
    VolumeConflictCheck,
    is_active,
    is_waiting,
    nothing,
    order,
    priority,
)
from rallypoint.local.node.scheduler.gangs import Gang, GroupStatus, Rules

DEFAULT = "default-scheduler"
"""Pods that name another scheduler are ignored."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    node: Manifest
    pods: Sequence[Manifest]
    """All pods; assumed pods have ``spec.nodeName`` set."""
    gang_scheduler: str = ""
    """The name of the gang scheduler; empty if there is none."""
    rules: Rules | None = None
    groups: Sequence[Manifest] = ()
    classes: Mapping[str, int] = field(default_factory=dict[str, int])
    """The values of priority classes."""
    volume_conflict: VolumeConflictCheck = nothing
    """Returns why a pod fits on no node; empty if nothing does."""
    requests_of: RequestsOf = requests


@dataclass(frozen=True, slots=True)
class Schedule:
    bind: list[Manifest] = field(default_factory=list[Manifest])
    """Pods that fit, to be bound in this order."""
    unschedulable: list[Unschedulable] = field(default_factory=list[Unschedulable])
    group_statuses: list[GroupStatus] = field(default_factory=list[GroupStatus])


def decide(snapshot: Snapshot) -> Schedule:
    if snapshot.rules is None and not any(map(is_waiting, snapshot.pods)):
        return Schedule()  # The most frequent case: no pod waits.
    name = snapshot.node["metadata"]["name"]
    ours = [
        pod for pod in snapshot.pods if pod["spec"].get("schedulerName") in (DEFAULT, snapshot.gang_scheduler)
    ]
    taken = (pod for pod in snapshot.pods if pod["spec"].get("nodeName") == name and is_active(pod))
    free = FreeResources.after(taken, snapshot.node, snapshot.volume_conflict, snapshot.requests_of)
    plan = Schedule()
    alone, together = _split(snapshot, ours, plan)
    queue: list[Manifest | Gang] = [*alone, *(gang for gang in together if gang.waiting)]
    for entry in sorted(queue, key=_key):
        _reserve(entry, free, snapshot.rules, plan)
    if snapshot.rules is not None:
        plan.group_statuses.extend(snapshot.rules.group_statuses(together, free))
    return plan


def _split(snapshot: Snapshot, ours: Sequence[Manifest], plan: Schedule) -> tuple[list[Manifest], list[Gang]]:
    """Return single pods and gangs; add pods without their group to the unschedulable ones."""
    if snapshot.rules is None:
        return [pod for pod in ours if is_waiting(pod)], []
    members = [pod for pod in ours if pod["spec"]["schedulerName"] == snapshot.gang_scheduler]
    found = gangs.gather(snapshot.groups, members, snapshot.rules, snapshot.classes)
    alone: list[Manifest] = []
    for pod in filter(is_waiting, ours):
        group = (
            snapshot.rules.group_of(pod) if pod["spec"]["schedulerName"] == snapshot.gang_scheduler else ""
        )
        if not group:
            alone.append(pod)
        elif (pod["metadata"]["namespace"], group) not in found and (
            unschedulable := snapshot.rules.without_group(pod)
        ):
            plan.unschedulable.append(unschedulable)
    return alone, list(found.values())


def _reserve(entry: Manifest | Gang, free: FreeResources, rules: Rules | None, plan: Schedule) -> None:
    if isinstance(entry, Gang):
        assert rules is not None
        fitting, unschedulable = gangs.reserve(entry, free, rules)
        plan.bind.extend(fitting)
        plan.unschedulable.extend(unschedulable)
    elif refused := fit.reserve(entry, free):
        plan.unschedulable.append(refused)
    else:
        plan.bind.append(entry)


def _key(entry: Manifest | Gang) -> tuple[int, str, str, str]:
    return entry.sort_key() if isinstance(entry, Gang) else order(entry, priority(entry))
