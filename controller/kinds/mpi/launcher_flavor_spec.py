"""The data and functions in which the flavors with a batch Job as launcher differ."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from api import labels
from api.batch import BATCH_JOBS, BatchJob
from api.children import Pod
from api.meta import CONFIG_MAPS, PODS, SERVICES, Resource
from api.mpijob import MPIJob
from controller.domain import Child, Deletion, EventMessages, Probe, Problem, Snapshot
from controller.kind import KindDefaults, Options, Roles
from controller.kind.definition import name_problems, require


@dataclass(frozen=True, kw_only=True)
class LauncherFlavorSpec(KindDefaults):
    """One flavor whose launcher is a batch Job."""

    resource: Resource
    controller_name: str
    managed_by: str
    event_messages: EventMessages
    roles: Callable[[MPIJob], Roles]
    """Launcher and Worker with their defaults, if the spec contains them."""
    problems: Callable[[MPIJob, Options], Iterable[Problem]]
    support_objects: Callable[[MPIJob, Roles, Snapshot, datetime, Options], Iterable[Child]]
    """Children such as ConfigMaps and Services, which are created before all others and which decisions do not read."""
    worker_pod: Callable[[MPIJob, Roles, int, Options], dict[str, Any]]
    """The body of one worker pod."""
    launcher_template: Callable[[MPIJob, Roles, Options], dict[str, Any]]
    """The pod template of the launcher."""
    normal: Callable[[MPIJob], MPIJob]  # pyright: ignore[reportIncompatibleMethodOverride] - a function for a method
    should_wait_for_workers: Callable[[MPIJob, Options], bool]
    """Whether the launcher starts only when all workers are ready."""
    worker_probe: Callable[[MPIJob, Roles, Pod], Probe] | None = None
    """The probe that checks whether a ready worker can start ranks; without one, readiness is enough."""
    created_note: Callable[[MPIJob, Roles], str] = lambda *_: ""
    """Text that follows the message of the Created condition."""
    creates_workers_first: bool = False
    """Whether the launcher is created only after all workers exist and are owned by the job."""
    reports_retries: bool = False
    """Whether a launcher retry sets the condition Restarting."""
    launcher_labels: Callable[[MPIJob], Mapping[str, str]] = lambda job: {"app": job.metadata.name}
    """The labels of the launcher's Job."""
    idle_support_objects: Callable[[MPIJob], Iterable[Child]] = lambda _: ()
    """The support objects that are kept up to date after the job has finished."""
    legacy_workers: Callable[[MPIJob, BatchJob], tuple[Deletion, ...]] = lambda *_: ()
    """The workers that an older operator created, if that operator created the launcher."""
    role_label: str = labels.REPLICA_TYPE
    """The label of a pod with its role."""
    model = MPIJob
    framework = "mpi"
    scalable = True
    children = (PODS, BATCH_JOBS, SERVICES, CONFIG_MAPS)

    def __post_init__(self) -> None:
        require(self, name_problems(self))
