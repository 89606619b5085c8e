"""What the flavors whose launcher is a Job of batch/v1 have of their own: data and functions, and no decision."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from api.batch import BATCH_JOBS, BatchJob
from api.children import Pod
from api.meta import CONFIG_MAPS, PODS, SERVICES, Resource
from api.mpijob import MPIJob
from controller.domain import Child, Doomed, Knock, Problem, Snapshot, Voice
from controller.kind import Options, Quiet, Roles


@dataclass(frozen=True, kw_only=True)
class LauncherFlavorSpec(Quiet):
    """One such flavor."""

    resource: Resource
    controller_name: str
    managed_by: str
    voice: Voice
    roles: Callable[[MPIJob], Roles]
    """Launcher and Worker with their defaults, where the spec has them."""
    problems: Callable[[MPIJob, Options], Iterable[Problem]]
    support_objects: Callable[[MPIJob, Roles, Snapshot, datetime, Options], Iterable[Child]]
    """Children that the job has as long as it is there and decisions do not read; they go before all others."""
    worker_pod: Callable[[MPIJob, Roles, int, Options], dict[str, Any]]
    """The body of one worker pod."""
    launcher_template: Callable[[MPIJob, Roles, Options], dict[str, Any]]
    """The pod template of the launcher."""
    normal: Callable[[MPIJob], MPIJob]
    should_wait_for_workers: Callable[[MPIJob, Options], bool]
    """Whether the launcher starts only once all workers are up."""
    worker_probe: Callable[[MPIJob, Roles, Pod], Knock] | None = None
    """How a worker that is ready is asked whether ranks can be started there; by default its word is taken."""
    created_note: Callable[[MPIJob, Roles], str] = lambda *_: ""
    """What is said of a job beside that it is created."""
    creates_workers_first: bool = False
    """Whether there is no launcher before every worker is known to be the job's own."""
    reports_retries: bool = False
    """Whether a launcher that is tried again makes the job Restarting."""
    launcher_labels: Callable[[MPIJob], Mapping[str, str]] = lambda job: {"app": job.metadata.name}
    """The labels of the launcher's Job."""
    idle_support_objects: Callable[[MPIJob], Iterable[Child]] = lambda _: ()
    """What is kept of the belongings once the job is over."""
    legacy_workers: Callable[[MPIJob, BatchJob], tuple[Doomed, ...]] = lambda *_: ()
    """Workers in the form of an older operator, if it was that one that started the launcher."""
    model = MPIJob
    framework = "mpi"
    scalable = False
    children = (PODS, BATCH_JOBS, SERVICES, CONFIG_MAPS)
    ttl_event_reasons = ("SuccessfulDeleteJob", "FailedDeleteJob")
