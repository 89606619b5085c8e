"""One look of the scheduler at everything: which waiting pods get a place, what is said of the others. Pure.

Pods come one by one, or as gangs (``gangs``) that are placed together or not at all: by priority, then by age. What
does not fit holds up nobody. Nobody is put out for what is more urgent: there is no preemption.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rallypoint.local.manifest import Manifest
from rallypoint.local.node.capacity import Asked, requests
from rallypoint.local.node.scheduler import gangs, scheduling
from rallypoint.local.node.scheduler.gangs import Gang, Rules, Standing
from rallypoint.local.node.scheduler.scheduling import (
    Held,
    Hindrance,
    Room,
    is_waiting,
    nothing,
    order,
    priority,
    takes_room,
)

DEFAULT = "default-scheduler"
"""Pods that name another scheduler wait for that, without a word."""


@dataclass(frozen=True, slots=True)
class View:
    node: Manifest
    pods: Sequence[Manifest]
    """All there are; those that are as good as bound say so in ``spec.nodeName``."""
    gang_scheduler: str = ""
    """The name that pods of gangs ask for; empty when there is no such scheduler."""
    rules: Rules | None = None
    groups: Sequence[Manifest] = ()
    classes: Mapping[str, int] = field(default_factory=dict[str, int])
    """The values of priority classes."""
    hindrance: Hindrance = nothing
    """What stands in a pod's way whatever the node; empty when nothing does."""
    asked: Asked = requests


@dataclass(frozen=True, slots=True)
class Schedule:
    bind: list[Manifest] = field(default_factory=list[Manifest])
    """Pods that fit, to be bound in this order."""
    held: list[Held] = field(default_factory=list[Held])
    standings: list[Standing] = field(default_factory=list[Standing])


def decide(view: View) -> Schedule:
    if view.rules is None and not any(map(is_waiting, view.pods)):
        return Schedule()  # Most changes of pods: nobody wants a place.
    name = view.node["metadata"]["name"]
    ours = [pod for pod in view.pods if pod["spec"].get("schedulerName") in (DEFAULT, view.gang_scheduler)]
    taken = (pod for pod in view.pods if pod["spec"].get("nodeName") == name and takes_room(pod))
    room = Room.beside(taken, view.node, view.hindrance, view.asked)
    plan = Schedule()
    alone, together = _sorted_out(view, ours, plan)
    queue: list[Manifest | Gang] = [*alone, *(gang for gang in together if gang.waiting)]
    for next_one in sorted(queue, key=_key):
        _place(next_one, room, view.rules, plan)
    if view.rules is not None:
        plan.standings.extend(view.rules.standings(together, room))
    return plan


def _sorted_out(view: View, ours: Sequence[Manifest], plan: Schedule) -> tuple[list[Manifest], list[Gang]]:
    """Pods that are placed one by one, and gangs; pods whose group is missing are held."""
    if view.rules is None:
        return [pod for pod in ours if is_waiting(pod)], []
    members = [pod for pod in ours if pod["spec"]["schedulerName"] == view.gang_scheduler]
    found = gangs.gather(view.groups, members, view.rules, view.classes)
    alone: list[Manifest] = []
    for pod in filter(is_waiting, ours):
        group = view.rules.group_of(pod) if pod["spec"]["schedulerName"] == view.gang_scheduler else ""
        if not group:
            alone.append(pod)
        elif (pod["metadata"]["namespace"], group) not in found and (held := view.rules.orphan(pod)):
            plan.held.append(held)
    return alone, list(found.values())


def _place(next_one: Manifest | Gang, room: Room, rules: Rules | None, plan: Schedule) -> None:
    if isinstance(next_one, Gang):
        assert rules is not None
        fitting, held = gangs.place(next_one, room, rules)
        plan.bind.extend(fitting)
        plan.held.extend(held)
    elif refused := scheduling.place(next_one, room):
        plan.held.append(refused)
    else:
        plan.bind.append(next_one)


def _key(next_one: Manifest | Gang) -> tuple[int, str, str, str]:
    return next_one.sort_key() if isinstance(next_one, Gang) else order(next_one, priority(next_one))
