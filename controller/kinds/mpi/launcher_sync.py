"""One look at one job whose launcher is a Job of batch/v1, and what is to be done about it.

Source: mpi-operator 0.8, pkg/controller/mpi_job_controller.go, syncHandler.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from api import conditions
from api.batch import BATCH_JOBS, BatchJob
from api.children import Pod
from api.job import CleanPodPolicy, ConditionType, JobStatus, ReplicaStatus
from api.meta import PODS
from api.mpijob import MPIJob
from controller.domain import Child, Count, Doomed, Knock, Plan, Severity, Snapshot, name_check
from controller.kind import Options, Roles
from controller.kinds.mpi import hosts, launcher_job
from controller.kinds.mpi.launcher_flavor_spec import LauncherFlavorSpec
from controller.kinds.mpi.names import LAUNCHER, WORKER, launcher_name, worker_name
from controller.kinds.mpi.status_builder import MPIStatusBuilder
from controller.kinds.mpi.version_warnings import MISMATCH
from controller.policy import gang, replacement


@dataclass(frozen=True, slots=True)
class LauncherSync:
    """One look at one job."""

    kind: LauncherFlavorSpec
    job: MPIJob
    roles: Roles
    snapshot: Snapshot
    builder: MPIStatusBuilder
    options: Options

    @property
    def desired_workers(self) -> int:
        """How many workers there shall be."""
        return self.roles[WORKER].replicas if WORKER in self.roles else 0

    @property
    def workers(self) -> list[Pod]:
        """Those that fill a place, by index."""
        return sorted(
            (pod for pod in self.snapshot.pods if pod.index < self.desired_workers), key=lambda pod: pod.index
        )

    @property
    def launcher(self) -> BatchJob | None:
        name = launcher_name(self.job)
        return next((batch_job for batch_job in self.snapshot.batch_jobs if batch_job.name == name), None)

    @property
    def legacy_workers(self) -> tuple[Doomed, ...]:
        return self.kind.legacy_workers(self.job, self.launcher) if self.launcher else ()

    @property
    def failed_attempts(self) -> int:
        return launcher_job.failed_attempts(self.job, self.snapshot)

    def update_counts(self) -> None:
        """Launchers and workers as they are; once the launcher has ended, workers do not count."""
        launcher, before = self.launcher, self.builder.before(WORKER) or ReplicaStatus()
        # A launcher whose pod is another one may have fewer tries behind it than workers were replaced for.
        restarts = min(before.restarts or 0, self.failed_attempts) or None
        # The end of the Job may be known before that of its pod, and a job that is over is not counted again.
        has_ended = launcher is not None and launcher.is_finished
        active = 0 if has_ended else sum(pod.phase == "Running" for pod in self.snapshot.batch_pods)
        launchers = ReplicaStatus(
            active=active or None,
            succeeded=1 if launcher and launcher.complete else None,
            failed=(launcher.failures if launcher else 0) or None,
        )
        workers = ReplicaStatus(restarts=restarts)
        if not has_ended:
            phases = [pod.phase for pod in self.workers if pod.phase != "Running" or not pod.deleting]
            workers = ReplicaStatus(
                active=phases.count("Running") or None,
                succeeded=phases.count("Succeeded") or None,
                failed=phases.count("Failed") or None,
                restarts=restarts,
            )
        is_launcher_counted = (
            launcher
            or self.job.spec.policy.suspend
            or not self.kind.should_wait_for_workers(self.job, self.options)
        )
        counts = {LAUNCHER: launchers, WORKER: workers}
        self.builder.set_replica_statuses(
            counts if is_launcher_counted or self.builder.before(LAUNCHER) else {WORKER: workers}
        )

    def record_end(self) -> bool:
        """Whether the launcher has, which is the end of the job."""
        launcher = self.launcher
        if launcher is None or not launcher.is_finished:
            return False
        self.update_counts()
        if launcher.failure is None:
            self.builder.launcher_completed(launcher.completed_at or self.builder.now)
        else:
            self.builder.launcher_failed(
                *launcher_job.failure_reason(*launcher.failure, self.snapshot.batch_pods)
            )
        return True

    def sync_children(self) -> Plan:
        """Make what is missing, replace what is lost, delete what is too much, and start the launcher when it may start."""
        workers, launcher = self.workers, self.launcher
        lost, is_new_eviction = self._workers_to_replace(workers)
        if is_new_eviction:
            return self.builder.plan(requeue_after_seconds=0)
        if not self.snapshot.is_held_up:
            self.builder.unblocked()
        are_all_active = sum(pod.is_active for pod in workers) == self.desired_workers
        if are_all_active and any(pod.phase == "Running" for pod in self.snapshot.batch_pods):
            self.builder.launcher_running()
        elif self.kind.reports_retries and launcher and launcher.failures:
            self.builder.launcher_restarting()
        probes = self._pending_probes(workers) if self._is_waiting_for_workers(launcher) else []
        is_waiting = (
            self.kind.should_wait_for_workers(self.job, self.options)
            and len(hosts.ready_workers(workers)) - len(probes) < self.desired_workers
        )
        requeue_after = hosts.seconds_until_more(
            workers, self.desired_workers, self.builder.now, hosts.running_since(self.job)
        )
        init_failures = hosts.init_failures_message([*workers, *self.snapshot.batch_pods])
        if is_waiting and self._is_waiting_for_workers(launcher):
            requeue_after = _earliest(requeue_after, self._report_missing_workers(workers, init_failures))
        elif init_failures and not self.snapshot.is_held_up:
            self.builder.waits_for(init_failures)
        requeue_after = _earliest(
            requeue_after,
            replacement.next_due_in(self.snapshot.failures, _evicted(workers), self.builder.now),
        )
        surplus = [pod for pod in self.snapshot.pods if pod.index >= self.desired_workers]
        is_missing_workers = self.kind.creates_workers_first and len(workers) < self.desired_workers
        start = () if is_waiting or is_missing_workers else self._start_launcher(launcher)
        # Who has the launcher's name is found out before there is a worker, which would hold its GPUs for nothing.
        name_checks = [] if launcher else [name_check(BATCH_JOBS, launcher_name(self.job))]
        return self.builder.plan(
            create=(
                *self._pod_group(),
                *name_checks,
                *self._support_objects(),
                *self._missing_workers(),
                *start,
            ),
            delete=_deletions([*lost, *surplus]),
            knocks=tuple(probes),
            requeue_after_seconds=requeue_after,
            again=is_missing_workers,
        )

    def observe_legacy_job(self) -> Plan:
        """Leave all as another operator has made it, until the job ends or is suspended. Its pods are not known here, so not counted."""
        objects = ", ".join(f"{deletion.resource.kind} {deletion.name}" for deletion in self.legacy_workers)
        text = f"another operator has started this job, with {objects}; it goes on so until it ends or is suspended"
        self.builder.tell(Severity.WARNING, MISMATCH, text, once=text)
        return self.builder.plan()

    def suspend(self) -> Plan:
        """No pods while suspended. The launcher's Job is there, and suspended with it.

        Differs: under cleanPodPolicy Running mpi-operator keeps workers that have ended, which nobody replaces after the suspension.
        See docs/decisions/0018-mpijob-v2beta1.md.
        """
        self.update_counts()
        self.builder.suspended()
        launcher = self.launcher
        if self.snapshot.pods and not conditions.is_true(
            self.job.status or JobStatus(), ConditionType.SUSPENDED
        ):
            # Stored before a pod goes: a pass that read nothing of the suspension would make it anew.
            return self.builder.plan(requeue_after_seconds=0)
        create = [*self._support_objects()]
        if launcher is None:
            create.append(self._new_launcher(suspended=True))
        elif self.legacy_workers:
            gone = (Doomed(BATCH_JOBS, launcher.name, launcher.uid), *self.legacy_workers)
            return self.builder.plan(delete=() if launcher.deleting else gone)
        elif not launcher.suspended and not launcher.is_finished:
            # Begun before the support objects: it must not wait for one of them that is held up.
            create.insert(0, replace(launcher_job.patch(launcher, {"suspend": True}), first=1))
        deletions = _deletions(self.snapshot.pods) + gang.remains(self.options.gang_scheduler, self.snapshot)
        return self.builder.plan(create=tuple(create), delete=deletions)

    def clean_up(self) -> Plan:
        """What is left of a job that is over: workers by policy, the launcher for its TTL, and no group, which may hold quota.

        A job that the API server would not take leaves nothing: its launcher has not ended, and would look for workers in vain.

        Differs: mpi-operator leaves the group under cleanPodPolicy None, and gives the launcher its TTL from the start, so that it may
        be gone before it was seen to end. See docs/decisions/0018-mpijob-v2beta1.md.
        """
        policy = self.job.spec.policy.clean_pod_policy
        leaving: list[Pod] = []
        if policy == CleanPodPolicy.ALL or self.builder.is_invalid:
            leaving = list(self.snapshot.pods)
        elif policy == CleanPodPolicy.RUNNING:
            leaving = [pod for pod in self.snapshot.pods if pod.phase in {"Running", "Pending"}]
        launcher, ttl = self.launcher, self.job.spec.policy.ttl_seconds_after_finished
        change: tuple[Child, ...] = ()
        if launcher and ttl is not None and launcher.ttl_seconds != ttl and launcher.is_finished:
            change = (launcher_job.patch(launcher, {"ttlSecondsAfterFinished": ttl}),)
        group = gang.remains(self.options.gang_scheduler, self.snapshot)
        kept = self.kind.idle_support_objects(self.job)
        other_deletions = self.legacy_workers if policy == CleanPodPolicy.ALL else ()
        if launcher and self.builder.is_invalid and not launcher.deleting:
            other_deletions = (*other_deletions, Doomed(BATCH_JOBS, launcher.name, launcher.uid))
        return self.builder.plan(
            create=(*change, *kept), delete=_deletions(leaving) + group + other_deletions
        )

    def _workers_to_replace(self, workers: Sequence[Pod]) -> tuple[list[Pod], bool]:
        """Failed workers to replace now, and whether the status has to tell of them first.

        One that was evicted is replaced, after a pause if it was evicted before; any other when the launcher tries again, which would find
        nobody there.

        Differs: mpi-operator replaces none. See docs/decisions/0018-mpijob-v2beta1.md.
        """
        failed = [pod for pod in workers if pod.phase == "Failed"]
        evicted = _evicted(workers)
        failures, now = self.snapshot.failures, self.builder.now
        delayed = replacement.described(failures, evicted, now)
        if evicted and self.builder.workers_evicted(
            f"{len(evicted)}/{self.desired_workers} workers are evicted", delayed
        ):
            self.builder.counted += [Count.RESTARTED] * len(evicted)
            return [], True
        before = self.builder.before(WORKER) or ReplicaStatus()
        if len(failed) > len(evicted) and self.failed_attempts > (before.restarts or 0):
            self.builder.use_restarts(WORKER, self.failed_attempts - (before.restarts or 0), [])
            return failed, False
        return [pod for pod in evicted if not replacement.wait_seconds(failures, pod, now)], False

    def _is_waiting_for_workers(self, launcher: BatchJob | None) -> bool:
        """Whether the launcher waits for its workers, and has not been started."""
        is_idle = launcher is None or launcher.suspended
        return is_idle and self.kind.should_wait_for_workers(self.job, self.options)

    def _pending_probes(self, workers: Sequence[Pod]) -> list[Knock]:
        """The workers that are up by their own word, have an address, and have not been asked."""
        if self.kind.worker_probe is None or not self.options.mpi_ssh_check:
            return []
        unprobed = [
            pod
            for pod in hosts.ready_workers(workers)
            if pod.address and pod.uid not in self.snapshot.answered
        ]
        return [self.kind.worker_probe(self.job, self.roles, pod) for pod in unprobed]

    def _pod_group(self) -> Iterator[Child]:
        scheduler = self.options.gang_scheduler
        if scheduler:
            yield from gang.group(
                scheduler,
                self.kind.resource,
                self.job,
                self.roles,
                self.snapshot,
                gang.MPI_OPERATOR,
                later=(LAUNCHER,) if self._is_waiting_for_workers(self.launcher) else (),
            )

    def _support_objects(self) -> Iterable[Child]:
        return self.kind.support_objects(self.job, self.roles, self.snapshot, self.builder.now, self.options)

    def _missing_workers(self) -> Iterator[Child]:
        existing = {pod.name for pod in self.snapshot.pods}
        for index in range(self.desired_workers):
            name = worker_name(self.job, index)
            if name not in existing:
                child = Child(PODS, name, partial(self._worker_body, index))
                yield replacement.marked(self.snapshot.failures, child)

    def _worker_body(self, index: int) -> dict[str, Any]:
        return self._with_gang(self.kind.worker_pod(self.job, self.roles, index, self.options))

    def _start_launcher(self, launcher: BatchJob | None) -> Iterable[Child]:
        """The launcher, or what lets one that is suspended run where the spec now says."""
        if launcher is None:
            return [self._new_launcher(suspended=False)]
        if launcher.deleting or not launcher.suspended:
            return []
        return launcher_job.resume_patches(launcher, self._launcher_template())

    def _new_launcher(self, *, suspended: bool) -> Child:
        role, job = self.roles[LAUNCHER], self.job
        if not suspended and (role.template.get("spec") or {}).get("restartPolicy"):
            text = "Restart policy in pod template overridden by restart policy in replica spec"
            self.builder.tell(Severity.WARNING, "SetPodTemplateRestartPolicy", text, once=text)
        body = partial(self._launcher_body, suspended)
        return Child(BATCH_JOBS, launcher_name(job), body)

    def _launcher_body(self, suspended: bool) -> dict[str, Any]:
        labels = self.kind.launcher_labels(self.job)
        return launcher_job.body(
            self.job, self.kind.resource, labels, self._launcher_template(), suspended=suspended
        )

    def _launcher_template(self) -> dict[str, Any]:
        return self._with_gang(self.kind.launcher_template(self.job, self.roles, self.options))

    def _with_gang(self, body: dict[str, Any]) -> dict[str, Any]:
        scheduler = self.options.gang_scheduler
        return gang.enlisted(scheduler, self.job.metadata.name, body) if scheduler else body

    def _report_missing_workers(self, workers: Sequence[Pod], init_failures: str) -> float | None:
        """Say which workers the launcher waits for, if it is late, and what is known of why; the seconds until it is."""
        late_in = hosts.seconds_until_late(self.builder.status, self.builder.now)
        if late_in > 0:
            return late_in
        unready = {probe.uid for probe in self._pending_probes(workers)}
        up = {pod.index for pod in hosts.ready_workers(workers) if pod.uid not in unready}
        if not self.snapshot.is_held_up:  # which is why they are missing, and is said instead
            self.builder.waits_for(
                f"{hosts.missing_workers_message(self.job, up, self.desired_workers)} {init_failures}".rstrip()
            )
        return None


def _deletions(pods: Iterable[Pod]) -> tuple[Doomed, ...]:
    return tuple(Doomed(PODS, pod.name, pod.uid) for pod in pods if not pod.deleting)


def _evicted(workers: Iterable[Pod]) -> list[Pod]:
    return [pod for pod in workers if pod.phase == "Failed" and pod.reason == "Evicted"]


def _earliest(*seconds: float | None) -> float | None:
    return min((value for value in seconds if value is not None), default=None)
