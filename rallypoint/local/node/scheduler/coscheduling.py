"""Gangs in the words of scheduler-plugins' coscheduling: pods are there at once, and wait for each other in the scheduler.

Source: scheduler-plugins, pkg/coscheduling and pkg/controllers/podgroup_controller.go. Differs: pods that have
succeeded still count as members, else one that is replaced late would wait for ever; and ``Failed`` is no final phase,
because the operator replaces pods.
"""

from collections.abc import Iterator, Mapping, Sequence

from api import quantity
from api.labels import POD_GROUP
from api.meta import COSCHEDULING_POD_GROUPS
from rallypoint.local.manifest import Manifest
from rallypoint.local.node.capacity import lacking, less
from rallypoint.local.node.scheduler.gangs import Gang, Rules, Standing
from rallypoint.local.node.scheduler.scheduling import Held, Room, before_any_node, unavailable

REJECTED = "optimistic rejection in PostFilter"


def group_of(pod: Manifest) -> str:
    return str((pod["metadata"].get("labels") or {}).get(POD_GROUP) or "")


def orphan(pod: Manifest) -> Held:
    return Held(pod, unavailable(["PodGroup not found"]))


def hurdle(gang: Gang, room: Room, pod: Manifest) -> str:
    name, there = pod["metadata"]["name"], len(gang.pods)
    if there < gang.least:
        return before_any_node(
            f"pre-filter pod {name} cannot find enough sibling pods, current pods number: {there}, "
            f"minMember of group: {gang.least}"
        )
    if gang.placed or not lacking(gang.outstanding, room.left):
        return ""
    gap = {name: -amount for name, amount in less(room.left, gang.outstanding).items() if amount < 0}
    told = " ".join(f"{name}:{quantity.spell(amount)}" for name, amount in sorted(gap.items()))
    return before_any_node(f"resource gap: map[{told}]")


def refuse(gang: Gang, room: Room, lacking: Mapping[str, str]) -> list[Held]:
    meta = gang.group["metadata"]
    first = next(pod["metadata"]["name"] for pod in gang.waiting if pod["metadata"]["uid"] in lacking)
    ends = f"PodGroup {meta['namespace']}/{meta['name']} gets rejected due to Pod {first} is unschedulable even after PostFilter"
    return [
        Held(pod, f"{lacking[uid]} {ends}")
        if (uid := pod["metadata"]["uid"]) in lacking
        else Held(pod, unavailable([REJECTED]))
        for pod in gang.waiting
    ]


def standings(gangs: Sequence[Gang], room: Room) -> Iterator[Standing]:
    for gang in gangs:
        counts = {name.lower(): gang.in_phase(name) for name in ("Running", "Succeeded", "Failed")}
        status = {"phase": _phase(gang), **counts}
        yield Standing(gang, status | ({"occupiedBy": owner} if (owner := _owner(gang)) else {}))


def _phase(gang: Gang) -> str:
    if not gang.pods or len(gang.pods) < gang.least:
        return "Pending"
    if gang.in_phase("Succeeded") >= gang.least:
        return "Finished"
    if gang.in_phase("Failed") and gang.in_phase("Running", "Succeeded", "Failed") >= gang.least:
        return "Failed"
    return "Running" if gang.in_phase("Running", "Succeeded") >= gang.least else "Scheduling"


def _owner(gang: Gang) -> str:
    """Whose pods they are."""
    owners = {
        f"{pod['metadata']['namespace']}/{owner['name']}"
        for pod in gang.pods
        for owner in pod["metadata"].get("ownerReferences") or ()
    }
    return ",".join(sorted(owners))


COSCHEDULING = Rules(COSCHEDULING_POD_GROUPS, group_of, orphan, hurdle, unavailable, refuse, standings)
