"""Gangs: pods of one PodGroup get places together or not at all. Pure.

The rule is here; what Volcano and the coscheduling of scheduler-plugins call it, and when they ask for it, is in
``volcano`` and ``coscheduling``. A gang takes no room before it has all of it, so two that need the whole machine run
one after the other.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

from api.meta import Resource
from rallypoint.local.manifest import Manifest
from rallypoint.local.node.capacity import Amounts, read, sum_of
from rallypoint.local.node.scheduler.scheduling import (
    Held,
    Room,
    before_any_node,
    is_waiting,
    order,
    phase,
    priority,
    takes_room,
)

Key: TypeAlias = tuple[str, str]
"""Namespace and name of a PodGroup."""


@dataclass(frozen=True, slots=True)
class Gang:
    """A PodGroup with its pods, as they are now."""

    group: Manifest
    waiting: tuple[Manifest, ...] = ()
    """Those that want a place, by priority and age."""
    placed: tuple[Manifest, ...] = ()
    """Those that have, or have had, a place, and have not failed."""
    failed: tuple[Manifest, ...] = ()
    priority: int = 0

    @property
    def least(self) -> int:
        """How many pods make a gang."""
        return int((self.group.get("spec") or {}).get("minMember") or 0)

    @property
    def pods(self) -> tuple[Manifest, ...]:
        return (*self.waiting, *self.placed, *self.failed)

    @property
    def phase(self) -> str:
        return str((self.group.get("status") or {}).get("phase") or "")

    @property
    def outstanding(self) -> Amounts:
        """What the group asks for at least beyond what its pods have."""
        asked = read((self.group.get("spec") or {}).get("minResources")) | {"pods": Fraction(self.least)}
        held = sum_of(pod for pod in self.placed if takes_room(pod))
        return {name: max(amount - held.get(name, 0), Fraction(0)) for name, amount in asked.items()}

    def in_phase(self, *phases: str) -> int:
        """How many of its pods are in one of these phases."""
        return sum(phase(pod) in phases for pod in self.pods)

    def sort_key(self) -> tuple[int, str, str, str]:
        return order(self.group, self.priority)


@dataclass(frozen=True, slots=True)
class Said:
    """An event about a PodGroup."""

    reason: str
    message: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Standing:
    """What a PodGroup's status should say; times are the caller's to add."""

    gang: Gang
    status: dict[str, Any]
    said: Said | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """What differs between gang schedulers."""

    resource: Resource
    """Their PodGroups."""
    group_of: Callable[[Manifest], str]
    """The name of the group that a pod says it is of; empty for none."""
    orphan: Callable[[Manifest], Held | None]
    """What is said of a pod whose group does not exist."""
    hurdle: Callable[[Gang, Room, Manifest], str]
    """Why a pod is not even tried; empty for all of a gang or for none."""
    unavailable: Callable[[Sequence[str]], str]
    """How it is said what a pod lacks."""
    refuse: Callable[[Gang, Room, Mapping[str, str]], list[Held]]
    """What is said when too few fit; those that would not lack something, by UID."""
    standings: Callable[[Sequence[Gang], Room], Iterator[Standing]]
    """How the groups stand beside what room is left."""


def gather(
    groups: Iterable[Manifest], pods: Iterable[Manifest], rules: Rules, classes: Mapping[str, int]
) -> dict[Key, Gang]:
    """The gangs among ``pods``; ``classes`` are the values of priority classes."""
    members: dict[Key, list[Manifest]] = defaultdict(list)
    for pod in pods:
        if name := rules.group_of(pod):
            members[pod["metadata"]["namespace"], name].append(pod)
    return {_key(group): _gang(group, members[_key(group)], classes) for group in groups}


def place(gang: Gang, room: Room, rules: Rules) -> tuple[list[Manifest], list[Held]]:
    """Take room for the gang's pods, or for none of them: those to bind, and what is said of the others."""
    if refused := [Held(pod, why) for pod in gang.waiting if (why := rules.hurdle(gang, room, pod))]:
        return [], refused
    trial = room.copy()
    fitting: list[Manifest] = []
    lacking: dict[str, str] = {}
    for pod in gang.waiting:
        if why := room.hindrance(pod):
            lacking[pod["metadata"]["uid"]] = before_any_node(why)
        elif reasons := trial.reasons(pod):
            lacking[pod["metadata"]["uid"]] = rules.unavailable(reasons)
        else:
            trial.take(pod)
            fitting.append(pod)
    if len(gang.placed) + len(fitting) < gang.least:
        return [], rules.refuse(gang, room, lacking)
    room.left = trial.left
    others = [Held(pod, lacking[uid]) for pod in gang.waiting if (uid := pod["metadata"]["uid"]) in lacking]
    return fitting, others


def _key(group: Manifest) -> Key:
    return group["metadata"]["namespace"], group["metadata"]["name"]


def _gang(group: Manifest, pods: Sequence[Manifest], classes: Mapping[str, int]) -> Gang:
    waiting = sorted((pod for pod in pods if is_waiting(pod)), key=lambda pod: order(pod, priority(pod)))
    bound = [pod for pod in pods if pod["spec"].get("nodeName")]
    named = str((group.get("spec") or {}).get("priorityClassName") or "")
    return Gang(
        group,
        tuple(waiting),
        tuple(pod for pod in bound if phase(pod) != "Failed"),
        tuple(pod for pod in bound if phase(pod) == "Failed"),
        classes[named] if named in classes else max(map(priority, waiting), default=0),
    )
