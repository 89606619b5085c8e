"""The gang rules of scheduler-plugins' coscheduling: all pods exist at once and wait in the scheduler.

Source: scheduler-plugins, pkg/coscheduling and pkg/controllers/podgroup_controller.go. Differs: pods that have
succeeded still count as members, otherwise a pod replaced late would wait forever; and ``Failed`` is no final phase,
because the operator replaces pods.
"""

from collections.abc import Iterator, Mapping, Sequence

from api import quantity
from api.labels import POD_GROUP
from api.meta import COSCHEDULING_POD_GROUPS
from rallypoint.local.manifest import Manifest
from rallypoint.local.node.resources import insufficient, subtract
from rallypoint.local.node.scheduler.fit import FreeResources, Unschedulable, before_any_node, unavailable
from rallypoint.local.node.scheduler.gangs import Gang, GroupStatus, Rules

REJECTED = "optimistic rejection in PostFilter"


def group_of(pod: Manifest) -> str:
    return str((pod["metadata"].get("labels") or {}).get(POD_GROUP) or "")


def without_group(pod: Manifest) -> Unschedulable:
    return Unschedulable(pod, unavailable(["PodGroup not found"]))


def pre_filter(gang: Gang, free: FreeResources, pod: Manifest) -> str:
    name, there = pod["metadata"]["name"], len(gang.pods)
    if there < gang.min_member:
        return before_any_node(
            f"pre-filter pod {name} cannot find enough sibling pods, current pods number: {there}, "
            f"minMember of group: {gang.min_member}"
        )
    if gang.bound or not insufficient(gang.outstanding, free.left):
        return ""
    gap = {name: -amount for name, amount in subtract(free.left, gang.outstanding).items() if amount < 0}
    shortages = " ".join(f"{name}:{quantity.spell(amount)}" for name, amount in sorted(gap.items()))
    return before_any_node(f"resource gap: map[{shortages}]")


def refuse(gang: Gang, free: FreeResources, insufficient: Mapping[str, str]) -> list[Unschedulable]:
    meta = gang.group["metadata"]
    first = next(pod["metadata"]["name"] for pod in gang.waiting if pod["metadata"]["uid"] in insufficient)
    suffix = f"PodGroup {meta['namespace']}/{meta['name']} gets rejected due to Pod {first} is unschedulable even after PostFilter"
    return [
        Unschedulable(pod, f"{insufficient[uid]} {suffix}")
        if (uid := pod["metadata"]["uid"]) in insufficient
        else Unschedulable(pod, unavailable([REJECTED]))
        for pod in gang.waiting
    ]


def group_statuses(gangs: Sequence[Gang], free: FreeResources) -> Iterator[GroupStatus]:
    for gang in gangs:
        counts = {name.lower(): gang.in_phase(name) for name in ("Running", "Succeeded", "Failed")}
        status = {"phase": _phase(gang), **counts}
        yield GroupStatus(gang, status | ({"occupiedBy": owner} if (owner := _owner(gang)) else {}))


def _phase(gang: Gang) -> str:
    if not gang.pods or len(gang.pods) < gang.min_member:
        return "Pending"
    if gang.in_phase("Succeeded") >= gang.min_member:
        return "Finished"
    if gang.in_phase("Failed") and gang.in_phase("Running", "Succeeded", "Failed") >= gang.min_member:
        return "Failed"
    return "Running" if gang.in_phase("Running", "Succeeded") >= gang.min_member else "Scheduling"


def _owner(gang: Gang) -> str:
    """Return the owners of the gang's pods."""
    owners = {
        f"{pod['metadata']['namespace']}/{owner['name']}"
        for pod in gang.pods
        for owner in pod["metadata"].get("ownerReferences") or ()
    }
    return ",".join(sorted(owners))


COSCHEDULING = Rules(
    COSCHEDULING_POD_GROUPS, group_of, without_group, pre_filter, unavailable, refuse, group_statuses
)
