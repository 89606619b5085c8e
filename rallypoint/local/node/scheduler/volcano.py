"""The gang rules of Volcano: a group is enqueued, then its pods are created, then they are bound together.

There is one queue, whatever its name.

Source: volcano, pkg/scheduler/plugins/gang, plugins/overcommit, framework/session.go, api/job_info.go. Differs: a group
is enqueued when its ``minResources`` are free, without overcommit; an outdated condition is removed.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from api.labels import GROUP_NAME
from api.meta import VOLCANO_POD_GROUPS
from rallypoint.local.manifest import Manifest
from rallypoint.local.node.resources import insufficient, subtract
from rallypoint.local.node.scheduler.fit import FreeResources, Unschedulable, counted, phase
from rallypoint.local.node.scheduler.gangs import Gang, GroupEvent, GroupStatus, Rules

OVERUSED = "resource in cluster is overused"
READY = "tasks in gang are ready to be scheduled"


def group_of(pod: Manifest) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(GROUP_NAME) or "")


def without_group(pod: Manifest) -> Unschedulable | None:
    """A pod without its group is ignored."""
    return None


def pre_filter(gang: Gang, free: FreeResources, pod: Manifest) -> str:
    is_in = gang.phase not in {"", "Pending"}
    return "" if is_in and len(gang.waiting) + len(gang.bound) >= gang.min_member else unready(gang)


def unavailable(reasons: Sequence[str]) -> str:
    return f"0/1 nodes are unavailable: {counted(reasons)}."


def refuse(gang: Gang, free: FreeResources, insufficient: Mapping[str, str]) -> list[Unschedulable]:
    return [
        Unschedulable(pod, insufficient[uid])
        if (uid := pod["metadata"]["uid"]) in insufficient
        else _possible(pod, free)
        for pod in gang.waiting
    ]


def _possible(pod: Manifest, free: FreeResources) -> Unschedulable:
    name, node = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}", free.node["metadata"]["name"]
    text = f"Pod {name} can possibly be assigned to {node}, once minAvailable is satisfied"
    return Unschedulable(pod, text, "Schedulable")


def unready(gang: Gang) -> str:
    """Return why the gang is not ready."""
    tasks = Counter("Pending" for _ in gang.waiting) + Counter(map(_task, (*gang.bound, *gang.failed)))
    counts_text = sorted(
        f"{count} {name}" for name, count in (tasks + Counter(minAvailable=gang.min_member)).items()
    )
    missing = gang.min_member - len(gang.bound)
    return f"{missing}/{tasks.total()} tasks in gang unschedulable: pod group is not ready, {', '.join(counts_text)}"


def _task(pod: Manifest) -> str:
    """Return Volcano's task status of a bound pod."""
    if pod["metadata"].get("deletionTimestamp"):
        return "Releasing"
    return "Bound" if phase(pod) == "Pending" else phase(pod)


def group_statuses(gangs: Sequence[Gang], free: FreeResources) -> Iterator[GroupStatus]:
    """Yield the status of each gang; enqueue gangs that fit."""
    idle = free.left
    for gang in gangs:
        if gang.phase == "Inqueue":  # Enqueued groups reserve resources before their pods run.
            idle = subtract(idle, gang.outstanding)
    for gang in sorted(gangs, key=Gang.sort_key):
        phase_now = _phase(gang)
        if phase_now == "Pending" and not insufficient(gang.outstanding, idle):
            phase_now, idle = "Inqueue", subtract(idle, gang.outstanding)
        yield _group_status(gang, phase_now)


def _phase(gang: Gang) -> str:
    if len(gang.bound) >= gang.min_member:
        return "Completed" if gang.in_phase("Succeeded") == len(gang.bound) else "Running"
    if gang.in_phase("Running"):
        return "Unknown"
    return "Inqueue" if gang.phase == "Inqueue" else "Pending"


def _group_status(gang: Gang, phase_now: str) -> GroupStatus:
    if phase_now in ("Running", "Completed"):
        condition = {"type": "Scheduled", "status": "True", "reason": READY}
        event = GroupEvent("Scheduled", "pod group is ready")
    else:
        text = unready(gang)
        condition = {
            "type": "Unschedulable",
            "status": "True",
            "reason": "NotEnoughResources",
            "message": text,
        }
        is_out = phase_now == "Pending"
        event = (
            GroupEvent("Unschedulable", OVERUSED)
            if is_out
            else GroupEvent("Unschedulable", text, warning=True)
        )
    counts = {name.lower(): gang.in_phase(name) for name in ("Running", "Succeeded", "Failed")}
    return GroupStatus(gang, {"phase": phase_now, "conditions": [condition], **counts}, event)


VOLCANO = Rules(VOLCANO_POD_GROUPS, group_of, without_group, pre_filter, unavailable, refuse, group_statuses)
