"""The data and functions of a flavor whose launcher is a pod beside the workers, planned as the replicas of all kinds are."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from api.children import Owned
from api.meta import CONFIG_MAPS, PODS, Resource
from api.mpijob import MPIJob
from controller.domain import (
    Child,
    Counts,
    EventMessages,
    Present,
    Problem,
    Role,
    Snapshot,
    Verdict,
)
from controller.kind import KindDefaults, Options, PodSlot, Roles
from controller.kind.definition import name_problems, require


@dataclass(frozen=True, kw_only=True)
class LauncherPodFlavor(KindDefaults):
    """One flavor whose launcher is a pod. The protocol ``Replicas`` says what each function is for."""

    resource: Resource
    controller_name: str
    event_messages: EventMessages
    roles: Callable[[MPIJob], Roles]
    problems: Callable[[MPIJob, Options], Sequence[Problem]]
    wanted: Callable[[MPIJob, Roles, Options, Present], Iterator[tuple[Role, int, Child]]]
    completion_rule: Callable[[MPIJob, Roles, Mapping[str, Counts]], Verdict]
    slot: Callable[[str, Owned], PodSlot | None]
    normal: Callable[[MPIJob], MPIJob]  # pyright: ignore[reportIncompatibleMethodOverride] - a function for a method
    can_create: Callable[[MPIJob, Role, Snapshot, Options], bool]  # pyright: ignore[reportIncompatibleMethodOverride] - a function for a method
    later: Callable[[MPIJob, Snapshot, Options], Collection[str]]  # pyright: ignore[reportIncompatibleMethodOverride] - a function for a method
    extras: Callable[[MPIJob, Snapshot, datetime, Options], Iterable[Child]]  # pyright: ignore[reportIncompatibleMethodOverride] - a function for a method
    due_in: Callable[[MPIJob, Snapshot, datetime, Options], float | None]  # pyright: ignore[reportIncompatibleMethodOverride] - a function for a method
    waits_for: Callable[[MPIJob, Snapshot, datetime, Options], str]  # pyright: ignore[reportIncompatibleMethodOverride] - a function for a method
    while_idle: Callable[[MPIJob], Iterable[Child]]  # pyright: ignore[reportIncompatibleMethodOverride] - a function for a method
    counted: Callable[[Mapping[str, Counts]], Mapping[str, Counts]]  # pyright: ignore[reportIncompatibleMethodOverride] - a function for a method
    model = MPIJob
    framework = "mpi"
    scalable = True
    children = (PODS, CONFIG_MAPS)
    settings_word = "Setted"
    warns_of_unnamed_scheduler = True
    """Source: training-operator 1.9, pkg/common/util/scheduler.go, IsGangSchedulerSet."""

    def __post_init__(self) -> None:
        require(self, name_problems(self))
