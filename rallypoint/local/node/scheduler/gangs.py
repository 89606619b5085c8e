"""Gang scheduling: the pods of a PodGroup are bound together or not at all. Pure.

``volcano`` and ``coscheduling`` define what differs between these schedulers. A gang reserves nothing until all of it
fits, so two gangs that need the whole machine run one after the other.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

from api.meta import Resource
from rallypoint.local.manifest import Manifest
from rallypoint.local.node.resources import Amounts, read, total
from rallypoint.local.node.scheduler.fit import (
    FreeResources,
    Unschedulable,
    before_any_node,
    is_active,
    is_waiting,
    order,
    phase,
    priority,
)

Key: TypeAlias = tuple[str, str]
"""Namespace and name of a PodGroup."""


@dataclass(frozen=True, slots=True)
class Gang:
    """A PodGroup and its pods."""

    group: Manifest
    waiting: tuple[Manifest, ...] = ()
    """Unbound pods, by priority and age."""
    bound: tuple[Manifest, ...] = ()
    """Bound pods that have not failed."""
    failed: tuple[Manifest, ...] = ()
    priority: int = 0

    @property
    def min_member(self) -> int:
        return int((self.group.get("spec") or {}).get("minMember") or 0)

    @property
    def pods(self) -> tuple[Manifest, ...]:
        return (*self.waiting, *self.bound, *self.failed)

    @property
    def phase(self) -> str:
        return str((self.group.get("status") or {}).get("phase") or "")

    @property
    def outstanding(self) -> Amounts:
        """The part of minResources that its bound pods do not hold."""
        minimum = read((self.group.get("spec") or {}).get("minResources")) | {
            "pods": Fraction(self.min_member)
        }
        allocated = total(pod for pod in self.bound if is_active(pod))
        return {name: max(amount - allocated.get(name, 0), Fraction(0)) for name, amount in minimum.items()}

    def in_phase(self, *phases: str) -> int:
        return sum(phase(pod) in phases for pod in self.pods)

    def sort_key(self) -> tuple[int, str, str, str]:
        return order(self.group, self.priority)


@dataclass(frozen=True, slots=True)
class GroupEvent:
    reason: str
    message: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """The status of a PodGroup, without transition times."""

    gang: Gang
    status: dict[str, Any]
    event: GroupEvent | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """What differs between gang schedulers."""

    resource: Resource
    """Their PodGroups."""
    group_of: Callable[[Manifest], str]
    """Returns the name of a pod's group; empty for none."""
    without_group: Callable[[Manifest], Unschedulable | None]
    """Returns the result for a pod whose group does not exist."""
    pre_filter: Callable[[Gang, FreeResources, Manifest], str]
    """Returns why a pod fails before filtering; empty if it does not."""
    unavailable: Callable[[Sequence[str]], str]
    """Formats the reasons why a pod does not fit."""
    refuse: Callable[[Gang, FreeResources, Mapping[str, str]], list[Unschedulable]]
    """Returns the results when too few pods fit; the mapping has the reasons by UID."""
    group_statuses: Callable[[Sequence[Gang], FreeResources], Iterator[GroupStatus]]
    """Returns the statuses of the groups."""


def gather(
    groups: Iterable[Manifest], pods: Iterable[Manifest], rules: Rules, classes: Mapping[str, int]
) -> dict[Key, Gang]:
    """Return the gangs among ``pods``; ``classes`` are the values of priority classes."""
    members: dict[Key, list[Manifest]] = defaultdict(list)
    for pod in pods:
        if name := rules.group_of(pod):
            members[pod["metadata"]["namespace"], name].append(pod)
    return {_key(group): _gang(group, members[_key(group)], classes) for group in groups}


def reserve(gang: Gang, free: FreeResources, rules: Rules) -> tuple[list[Manifest], list[Unschedulable]]:
    """Reserve resources for the gang or for none of it; return the pods to bind and the unschedulable ones."""
    if refused := [
        Unschedulable(pod, why) for pod in gang.waiting if (why := rules.pre_filter(gang, free, pod))
    ]:
        return [], refused
    trial = free.copy()
    fitting: list[Manifest] = []
    insufficient: dict[str, str] = {}
    for pod in gang.waiting:
        if why := free.volume_conflict(pod):
            insufficient[pod["metadata"]["uid"]] = before_any_node(why)
        elif reasons := trial.reasons(pod):
            insufficient[pod["metadata"]["uid"]] = rules.unavailable(reasons)
        else:
            trial.take(pod)
            fitting.append(pod)
    if len(gang.bound) + len(fitting) < gang.min_member:
        return [], rules.refuse(gang, free, insufficient)
    free.left = trial.left
    others = [
        Unschedulable(pod, insufficient[uid])
        for pod in gang.waiting
        if (uid := pod["metadata"]["uid"]) in insufficient
    ]
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
