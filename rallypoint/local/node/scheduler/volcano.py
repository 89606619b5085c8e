"""Gangs in Volcano's words: a group is let into the queue first, then its pods are made, then they get places together.

There is one queue, whatever its name.

Source: volcano, pkg/scheduler/plugins/gang, plugins/overcommit, framework/session.go, api/job_info.go. Differs: a group
is let in when its ``minResources`` are there, not a fifth earlier; the condition that is not true any more goes.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from api.labels import GROUP_NAME
from api.meta import VOLCANO_POD_GROUPS
from rallypoint.local.manifest import Manifest
from rallypoint.local.node.capacity import lacking, less
from rallypoint.local.node.scheduler.gangs import Gang, Rules, Said, Standing
from rallypoint.local.node.scheduler.scheduling import Held, Room, counted, phase

OVERUSED = "resource in cluster is overused"
READY = "tasks in gang are ready to be scheduled"


def group_of(pod: Manifest) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(GROUP_NAME) or "")


def orphan(pod: Manifest) -> Held | None:
    """A pod whose group is not there is nobody's job yet, and nothing is said of it."""
    return None


def hurdle(gang: Gang, room: Room, pod: Manifest) -> str:
    is_in = gang.phase not in {"", "Pending"}
    return "" if is_in and len(gang.waiting) + len(gang.placed) >= gang.least else unready(gang)


def unavailable(reasons: Sequence[str]) -> str:
    return f"0/1 nodes are unavailable: {counted(reasons)}."


def refuse(gang: Gang, room: Room, lacking: Mapping[str, str]) -> list[Held]:
    return [
        Held(pod, lacking[uid]) if (uid := pod["metadata"]["uid"]) in lacking else _possible(pod, room)
        for pod in gang.waiting
    ]


def _possible(pod: Manifest, room: Room) -> Held:
    name, node = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}", room.node["metadata"]["name"]
    text = f"Pod {name} can possibly be assigned to {node}, once minAvailable is satisfied"
    return Held(pod, text, "Schedulable")


def unready(gang: Gang) -> str:
    """Why the gang as a whole does not run."""
    tasks = Counter("Pending" for _ in gang.waiting) + Counter(map(_task, (*gang.placed, *gang.failed)))
    told = sorted(f"{count} {name}" for name, count in (tasks + Counter(minAvailable=gang.least)).items())
    missing = gang.least - len(gang.placed)
    return f"{missing}/{tasks.total()} tasks in gang unschedulable: pod group is not ready, {', '.join(told)}"


def _task(pod: Manifest) -> str:
    """What Volcano calls the state of a pod that has, or has had, a place."""
    if pod["metadata"].get("deletionTimestamp"):
        return "Releasing"
    return "Bound" if phase(pod) == "Pending" else phase(pod)


def standings(gangs: Sequence[Gang], room: Room) -> Iterator[Standing]:
    """Where each gang stands beside what is left of the machine, and which ones are let in."""
    idle = room.left
    for gang in gangs:
        if gang.phase == "Inqueue":  # Promised, though nothing runs in it yet.
            idle = less(idle, gang.outstanding)
    for gang in sorted(gangs, key=Gang.sort_key):
        phase_now = _phase(gang)
        if phase_now == "Pending" and not lacking(gang.outstanding, idle):
            phase_now, idle = "Inqueue", less(idle, gang.outstanding)
        yield _standing(gang, phase_now)


def _phase(gang: Gang) -> str:
    if len(gang.placed) >= gang.least:
        return "Completed" if gang.in_phase("Succeeded") == len(gang.placed) else "Running"
    if gang.in_phase("Running"):
        return "Unknown"
    return "Inqueue" if gang.phase == "Inqueue" else "Pending"


def _standing(gang: Gang, phase_now: str) -> Standing:
    if phase_now in ("Running", "Completed"):
        condition = {"type": "Scheduled", "status": "True", "reason": READY}
        said = Said("Scheduled", "pod group is ready")
    else:
        text = unready(gang)
        condition = {
            "type": "Unschedulable",
            "status": "True",
            "reason": "NotEnoughResources",
            "message": text,
        }
        is_out = phase_now == "Pending"
        said = Said("Unschedulable", OVERUSED) if is_out else Said("Unschedulable", text, warning=True)
    counts = {name.lower(): gang.in_phase(name) for name in ("Running", "Succeeded", "Failed")}
    return Standing(gang, {"phase": phase_now, "conditions": [condition], **counts}, said)


VOLCANO = Rules(VOLCANO_POD_GROUPS, group_of, orphan, hurdle, unavailable, refuse, standings)
