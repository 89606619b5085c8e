"""MPIJobs whose launcher is a Job of batch/v1: worker pods beside it, and its controller tries the launcher again.

Order of questions: over, runnable, suspended, ended, then what is missing, lost or too many, and whether the launcher may start.

Source: mpi-operator 0.8, pkg/controller/mpi_job_controller.go, syncHandler.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from api import conditions
from api.children import Owned
from api.job import ConditionType
from api.mpijob import MPIJob
from controller.domain import Child, Plan, Problem, Severity, Snapshot
from controller.kind import Options, Place
from controller.kinds.mpi.launcher_flavor_spec import Traits
from controller.kinds.mpi.launcher_sync import Look
from controller.kinds.mpi.names import WORKER, worker_index
from controller.kinds.mpi.status_builder import Story


@dataclass(frozen=True, kw_only=True)
class LaunchedKind(Traits):
    """One flavor of such jobs: what its children say is its own, what becomes of them is all flavors'."""

    @property
    def flow(self) -> "LaunchedKind":
        return self

    @property
    def variants(self) -> "tuple[LaunchedKind, ...]":
        return (self,)

    def variant(self, job: MPIJob, children: Iterable[Owned] = ()) -> "LaunchedKind":
        return self

    def while_idle(self, job: MPIJob) -> Iterable[Child]:
        return self.afterwards(job)

    def place(self, job: str, row: Owned) -> Place | None:
        index = worker_index(job, row.name)
        return None if index is None else (WORKER.lower(), index)

    def decide(
        self, job: MPIJob, snapshot: Snapshot, now: datetime, options: Options, malformed: Sequence[Problem]
    ) -> Plan:
        story = Story(self, job, now)
        look = Look(self, job, self.roles(job), snapshot, story, options)
        if story.is_over:
            return look.clean_up()
        problems = [*malformed] or [*self.check(job, options)]
        if problems and story.status.start_time is None:
            story.invalid(_found(problems))
            return story.plan()
        story.created(self.remark(job, look.roles))
        if look.has_ended():
            return story.plan()
        stopping = conditions.is_true(story.status, ConditionType.SUSPENDED) and snapshot.pods
        if (job.spec.policy.suspend or stopping) and not problems:
            return look.suspend()
        if story.resumed():
            # Stored before there is a pod: a pass that still read of the suspension would take it for one of before, and delete it.
            return story.plan(requeue_after_seconds=0)
        story.started()
        if look.relics:
            return look.watch()
        look.count()
        if problems:
            # It was valid when it started: what runs goes on, and nothing is made or deleted.
            story.tell(Severity.WARNING, "ValidationError", _found(problems), once=_found(problems))
            return story.plan()
        return look.go_on()

    def refuse(self, job: MPIJob, problem: Problem, now: datetime) -> Plan:
        story = Story(self, job, now)
        story.invalid(_found([problem]))
        return story.plan()


def _found(problems: Sequence[Problem]) -> str:
    """As Go shows an aggregate of errors."""
    texts = ", ".join(map(str, problems))
    return f"Found validation errors: {texts if len(problems) == 1 else f'[{texts}]'}"
