"""MPIJobs with worker pods and a batch Job as launcher. The Job controller retries the launcher.

Decisions are made in this order: finished, valid, launcher ended, suspended, then the attempt of a job with a failure policy, then missing,
failed and surplus workers, then the launcher.

Source: mpi-operator 0.8, pkg/controller/mpi_job_controller.go, syncHandler.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from typing_extensions import override

from api import conditions
from api.children import Owned
from api.job import ConditionType
from api.mpijob import MPIJob
from controller.domain import CONTINUES, Child, Plan, Problem, Role, Severity, Snapshot
from controller.kind import Options, PodSlot
from controller.kind.reasons import EventReason
from controller.kinds.mpi.launcher_flavor_spec import LauncherFlavorSpec
from controller.kinds.mpi.launcher_sync import LauncherSync
from controller.kinds.mpi.names import LAUNCHER, WORKER, worker_index
from controller.kinds.mpi.status_builder import MPIStatusBuilder
from controller.policy import attempts, in_place, pending, recovery, validation

_STAYS_SUSPENDED: Final = "the job stays suspended until its spec is valid"


@dataclass(frozen=True, kw_only=True)
class LauncherFlavor(LauncherFlavorSpec):
    """One flavor of such jobs, with the decisions that all of them share."""

    @property
    @override
    def flow(self) -> "LauncherFlavor":
        return self

    @override
    def while_idle(self, job: MPIJob) -> Iterable[Child]:
        return self.idle_support_objects(job)

    def first_pods(self, job: MPIJob, options: Options) -> Iterator[tuple[Role, Mapping[str, Any]]]:
        """Yield the first worker, if the job has any, and the launcher's template."""
        roles = self.roles(job)
        if WORKER in roles and roles[WORKER].replicas:
            yield roles[WORKER], self.worker_pod(job, roles, 0, options)
        yield roles[LAUNCHER], self.launcher_template(job, roles, options)

    def slot(self, job: str, row: Owned) -> PodSlot | None:
        index = worker_index(job, row.name)
        return None if index is None else (WORKER.lower(), index)

    def decide(
        self, job: MPIJob, snapshot: Snapshot, now: datetime, options: Options, malformed: Sequence[Problem]
    ) -> Plan:
        builder = MPIStatusBuilder(self, job, now)
        sync = LauncherSync(self, job, self.roles(job), snapshot, builder, options)
        if builder.is_over:
            return sync.clean_up()
        own, pods = self.problems(job, options), self.first_pods(job, options)
        problems = [*malformed] or validation.spec_problems(
            job, sync.roles, options, own, pods, has_flow=True
        )
        if problems and builder.status.start_time is None:
            builder.invalid(_validation_message(problems))
            return builder.plan()
        builder.created(self.created_note(job, sync.roles))
        if sync.record_end():
            return builder.plan()
        stopping = conditions.is_true(builder.status, ConditionType.SUSPENDED) and snapshot.pods
        if job.spec.policy.suspend or stopping:
            return sync.suspend(is_valid=not problems)
        if problems and conditions.is_true(builder.status, ConditionType.SUSPENDED):
            _record_problems(problems, builder, _STAYS_SUSPENDED)
            return builder.plan()
        if builder.resumed():
            # Write the status before creating pods: a reconcile that reads the old status would delete them as left over from before.
            return builder.plan(requeue_after_seconds=0)
        builder.started()
        if sync.legacy_workers:
            return sync.observe_legacy_job()
        if sync.record_deadline():
            return builder.plan()
        if waits := attempts.begin(job, snapshot, builder, self.idle_support_objects(job)):
            return waits
        in_place.warn(job.spec.policy, options, builder)
        if restarted := in_place.record(job, sync.placed_pods, builder):
            return restarted
        sync.update_counts()
        # While the spec is invalid, no child of a new attempt could be created.
        if (decisive := sync.decisive_failure) and not (problems and decisive.action in recovery.RESTARTS):
            return attempts.end(job, decisive, builder, snapshot.all_pods)
        if problems:
            # The job was valid when it started: keep its pods running, create and delete nothing.
            _record_problems(problems, builder)
            return builder.plan()
        replicas = sync.replicas
        if late := pending.checked(job, builder, replicas):
            return late
        return pending.in_time(job.spec.policy, builder, replicas, sync.sync_children())

    def refuse(self, job: MPIJob, problem: Problem, now: datetime) -> Plan:
        builder = MPIStatusBuilder(self, job, now)
        builder.invalid(_validation_message([problem]))
        return builder.plan()


def _record_problems(problems: Sequence[Problem], builder: MPIStatusBuilder, effect: str = CONTINUES) -> None:
    """Record the problems of a job that has started, and what becomes of it."""
    text = f"{_validation_message(problems)}; {effect}"
    builder.record_event(Severity.WARNING, EventReason.VALIDATION_ERROR, text, once=text)


def _validation_message(problems: Sequence[Problem]) -> str:
    """Format the problems as Go formats an aggregate of errors."""
    texts = ", ".join(map(str, problems))
    return f"Found validation errors: {texts if len(problems) == 1 else f'[{texts}]'}"
