"""What one reconcile does with a job whose launcher is a batch Job.

Source: mpi-operator 0.8, pkg/controller/mpi_job_controller.go, syncHandler.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import attrgetter
from typing import Any

from api import conditions
from api.batch import BATCH_JOBS, BatchJob
from api.children import Pod
from api.job import CleanPodPolicy, ConditionType, JobStatus, ReplicaStatus, RestartPolicy
from api.meta import PODS
from api.mpijob import MPIJob
from api.names import role_selector
from controller.domain import (
    Child,
    Count,
    Deletion,
    Plan,
    Probe,
    Role,
    Severity,
    Snapshot,
    earliest,
    limited,
    name_check,
)
from controller.kind import Options, Roles
from controller.kind.reasons import EventReason
from controller.kinds.mpi import hosts, launcher_job
from controller.kinds.mpi.launcher_flavor_spec import LauncherFlavorSpec
from controller.kinds.mpi.names import LAUNCHER, WORKER, launcher_name, worker_name
from controller.kinds.mpi.options import MPIOptions
from controller.kinds.mpi.status_builder import MPIStatusBuilder
from controller.policy import (
    attempts,
    cleanup,
    count,
    gang,
    hangs,
    in_place,
    limits,
    pending,
    recovery,
    replacement,
)


@dataclass(frozen=True)
class LauncherSync:
    """One job, its children, and the status that is built for it."""

    kind: LauncherFlavorSpec
    job: MPIJob
    roles: Roles
    snapshot: Snapshot
    builder: MPIStatusBuilder
    options: Options

    @property
    def desired_workers(self) -> int:
        """The number of workers in the spec."""
        return self.roles[WORKER].replicas if WORKER in self.roles else 0

    @property
    def workers(self) -> list[Pod]:
        """The workers whose index is in range, sorted by index."""
        desired = self.desired_workers
        return sorted((pod for pod in self.snapshot.pods if pod.index < desired), key=attrgetter("index"))

    @property
    def launcher(self) -> BatchJob | None:
        name = launcher_name(self.job)
        return next((batch_job for batch_job in self.snapshot.batch_jobs if batch_job.name == name), None)

    @property
    def has_attempts(self) -> bool:
        return recovery.has_attempts(self.job.spec.policy, self.builder.status)

    @property
    def decisive_failure(self) -> recovery.Match | None:
        """The failure that ends the attempt by the failure policy."""
        return recovery.decisive(self._matches)

    @cached_property
    def _matches(self) -> list[recovery.Match]:
        """The failures of the current attempt that a rule matches."""
        policy, roles = self.job.spec.policy.failure_policy, self.roles
        if policy is None:
            return []
        found: list[recovery.Match] = []
        if WORKER in roles:
            filled = count.slots(roles[WORKER], count.by_role(self.snapshot.pods))
            vanished = self._vanished_workers(filled)
            found += attempts.matches(policy, self.job.metadata.name, roles[WORKER], filled, vanished)
        if LAUNCHER in roles:
            failures = self._launcher_failures(roles[LAUNCHER])
            found += [matched for failure in failures if (matched := recovery.match(policy, failure))]
        return found + hangs.ending(self.job, roles, self.snapshot.hang)

    def _vanished_workers(self, filled: count.Slots) -> int:
        """Return how many workers of a running job are gone without a trace."""
        status = self.job.status or JobStatus()
        if not conditions.is_true(status, ConditionType.RUNNING):
            return 0
        before = (status.replica_statuses or {}).get(WORKER)
        return count.counts(self.roles[WORKER], filled, before, "").vanished

    def _launcher_failures(self, role: Role) -> Iterator[recovery.PodFailure]:
        """Yield the failures of the launcher's pods. Its Job may have retried it since."""
        launcher, pods = self.launcher, self.snapshot.batch_pods
        if launcher is None or launcher.deleting:
            return
        for pod in pods:
            if failure := recovery.failure_of(role, pod):
                yield failure
        # The Job's failures may be known before those of its pods.
        if all(pod.phase == "Failed" for pod in pods) and launcher.failures > len(pods):
            yield recovery.gone(role, launcher.name)

    @cached_property
    def agents(self) -> in_place.Agents | None:
        """The agents of a job that restarts in place. Without workers, nobody knows the name of the launcher's pod."""
        if not (self.desired_workers and in_place.is_enabled(self.job.spec.policy, self.options)):
            return None
        body = partial(self.kind.worker_pod, self.job, self.roles, 0, self.options)
        first = Child(PODS, worker_name(self.job, 0), body)
        return in_place.Agents(self.kind.resource, self.job, self.roles, first, has_service=False)

    @property
    def placed_pods(self) -> Iterator[tuple[Role, Pod]]:
        """The pods with their roles."""
        for name, pods in ((WORKER, self.snapshot.pods), (LAUNCHER, self.snapshot.batch_pods)):
            yield from ((self.roles[name], pod) for pod in pods if name in self.roles)

    @property
    def replicas(self) -> list[pending.Replica]:
        """The pods that must run in time; none if the job need not, or waits for its gang."""
        snapshot, launcher = self.snapshot, self.launcher
        is_waiting = gang.is_waiting(self.options.gang_scheduler, snapshot)
        if self.job.spec.policy.pending_timeout_seconds is None or is_waiting:
            return []
        tried = bool(snapshot.pods or snapshot.batch_pods) or snapshot.is_blocked
        names = [worker_name(self.job, index) for index in range(self.desired_workers)]
        there = {pod.name: pod for pod in snapshot.pods}
        workers = [pending.Replica(WORKER, name, there.get(name), tried) for name in names]
        pods = [pending.Replica(LAUNCHER, pod.name, pod) for pod in snapshot.batch_pods]
        # The Job controller creates it, when the Job is not suspended.
        coming = [pending.Replica(LAUNCHER, launcher_name(self.job), is_due=False)]
        return workers + (pods if launcher and pods else coming)

    @property
    def legacy_workers(self) -> tuple[Deletion, ...]:
        return self.kind.legacy_workers(self.job, self.launcher) if self.launcher else ()

    @property
    def _is_launcher_lost(self) -> bool:
        """Whether a pod of the launcher is on a lost node. Its Job waits for the end of that pod, which nobody will report."""
        return any(pod.lost_since is not None for pod in self.snapshot.batch_pods)

    @property
    def failed_attempts(self) -> int:
        return launcher_job.failed_attempts(self.job, self.snapshot)

    def update_counts(self, *, is_stopping: bool = False) -> None:
        """Set the replica statuses. Workers count only until the launcher has ended.

        With ``is_stopping``, workers that run and are being deleted count as active: a queue returns the quota of a suspended job when no
        pod is active.

        Differs: mpi-operator sets 0 when it requests the deletion. See docs/decisions/0018-mpijob-v2beta1.md.
        """
        launcher, before = self.launcher, self.builder.before(WORKER) or ReplicaStatus()
        # A new launcher pod may have fewer failed attempts than the restarts that are recorded for workers.
        restarts = min(before.restarts or 0, self.failed_attempts) or None
        # The Job may finish before its pod does, and a finished job is not counted again.
        has_ended = launcher is not None and launcher.is_finished
        active = 0 if has_ended else sum(pod.phase == "Running" for pod in self.snapshot.batch_pods)
        launchers = ReplicaStatus(
            active=active or None,
            succeeded=1 if launcher and launcher.complete else None,
            failed=(launcher.failures if launcher else 0) or None,
        )
        pods = () if has_ended else self.snapshot.pods if is_stopping else self.workers
        phases = [pod.phase for pod in pods if is_stopping or pod.phase != "Running" or not pod.deleting]
        workers = ReplicaStatus(
            active=phases.count("Running") or None,
            succeeded=phases.count("Succeeded") or None,
            failed=phases.count("Failed") or None,
            selector=role_selector(
                self.kind.controller_name, self.job.metadata.name, WORKER.lower(), self.kind.role_label
            ),
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
        """Record the end of the job if the launcher has ended, and return whether it has. A rule of the failure policy precedes its failure."""
        launcher = self.launcher
        if (
            launcher is None
            or not launcher.is_finished
            or launcher.attempt < self.builder.status.pods_attempt
        ):
            return False
        if launcher.failure is not None and self.decisive_failure:
            return False
        self.update_counts()
        if launcher.failure is None:
            self.builder.launcher_completed(launcher.completed_at or self.builder.now)
        else:
            self.builder.launcher_failed(
                *launcher_job.failure_reason(*launcher.failure, self.snapshot.batch_pods)
            )
        return True

    def record_deadline(self) -> bool:
        """Record that a job with attempts has exceeded its deadline, and return whether it has. Otherwise the launcher's Job has the deadline."""
        policy, started = self.job.spec.policy, self.builder.status.start_time
        if not (self.has_attempts and limits.past_deadline(policy, started, self.builder.now)):
            return False
        text = "Job was active longer than specified deadline"
        self.builder.launcher_failed(launcher_job.DEADLINE_EXCEEDED, text)
        return True

    def sync_children(self) -> Plan:
        """Create missing workers, replace failed ones, delete surplus ones, and start the launcher when it is due."""
        workers, launcher = self.workers, self.launcher
        lost, is_new_eviction = self._workers_to_replace(workers)
        if is_new_eviction:
            return self.builder.plan(requeue_after_seconds=0)
        if not self.snapshot.is_blocked:
            self.builder.unblocked()
        ignored = {matched.failure.uid for matched in recovery.ignored(self._matches)}
        needed_workers = self.desired_workers - sum(pod.uid in ignored for pod in workers)
        are_all_active = sum(pod.is_active for pod in workers) == needed_workers
        status, now = self.builder.status, self.builder.now
        is_restarting = in_place.is_restarting(status, self.snapshot.all_pods, now)
        launcher_runs = any(pod.phase == "Running" for pod in self.snapshot.batch_pods)
        if are_all_active and launcher_runs and not is_restarting:
            self.builder.launcher_running()
            self.builder.update(recovery.recovered(self.builder.status, self.builder.now))
        elif self.kind.reports_retries and launcher and launcher.failures:
            self.builder.launcher_restarting()
        probes = self._pending_probes(workers) if self._is_waiting_for_workers(launcher) else []
        is_waiting = (
            self.kind.should_wait_for_workers(self.job, self.options)
            and len(hosts.ready_workers(workers)) - len(probes) < needed_workers
        )
        requeue_after = hosts.seconds_until_more(
            workers, self.desired_workers, self.builder.now, hosts.running_since(self.job)
        )
        init_failures = hosts.init_failures_message([*workers, *self.snapshot.batch_pods])
        wait = gang.gang_wait(
            self.options.gang_scheduler, self.job, self.builder.status, self.snapshot, self.builder.now
        )
        waits_for, late_in = init_failures, None
        if is_waiting and self._is_waiting_for_workers(launcher):
            waits_for, late_in = self._missing_workers_report(workers, init_failures)
        if not self.snapshot.is_blocked:  # a blocked job reports why instead
            self.builder.waits_for_start(wait.message, waits_for)
        requeue_after = earliest(requeue_after, late_in, wait.due_seconds, in_place.due_in(status, now))
        started = self.builder.status.start_time
        requeue_after = earliest(
            requeue_after,
            replacement.next_due_in(self.snapshot.failures, self._replaceable(workers), self.builder.now),
            limits.deadline_in(self.job.spec.policy, started, self.builder.now)
            if self.has_attempts
            else None,
        )
        surplus = [pod for pod in self.snapshot.pods if pod.index >= self.desired_workers]
        is_missing_workers = self.kind.creates_workers_first and len(workers) < self.desired_workers
        is_held = gang.is_leaving(self.options.gang_scheduler, self.snapshot)
        missing, is_partial = limited(() if is_held else self._missing_workers(), self.options.most_missing)
        start = () if is_held or is_waiting or is_missing_workers else self._start_launcher(launcher)
        # Check the launcher's name before creating workers, which would otherwise hold GPUs in vain.
        name_checks = [] if launcher else [name_check(BATCH_JOBS, launcher_name(self.job))]
        return self.builder.plan(
            create=(
                *self._pod_group(),
                *name_checks,
                *self._support_objects(),
                *(self.agents.children() if self.agents else ()),
                *missing,
                *start,
            ),
            delete=_deletions([*lost, *surplus])
            + (_launcher_deletion(launcher) if launcher and self._is_launcher_lost else ()),
            probes=tuple(probes),
            requeue_after_seconds=requeue_after,
            again=is_missing_workers,
            is_partial=is_partial,
        )

    def observe_legacy_job(self) -> Plan:
        """Leave the objects of another operator alone until the job ends or is suspended. Its pods are unknown here and not counted."""
        objects = ", ".join(f"{deletion.resource.kind} {deletion.name}" for deletion in self.legacy_workers)
        text = f"another operator created {objects} for this job; they stay unchanged until the job ends or is suspended"
        self.builder.record_event(Severity.WARNING, EventReason.FLAVOR_MISMATCH, text, once=text)
        return self.builder.plan()

    def suspend(self, *, is_valid: bool = True) -> Plan:
        """Delete all pods, and suspend the launcher's Job. Without a valid spec nothing is created.

        Differs: under cleanPodPolicy Running mpi-operator keeps workers that have ended, and never replaces them.
        See docs/decisions/0018-mpijob-v2beta1.md.
        """
        self.update_counts(is_stopping=True)
        self.builder.suspended()
        launcher = self.launcher
        if self.snapshot.pods and not conditions.is_true(
            self.job.status or JobStatus(), ConditionType.SUSPENDED
        ):
            # Write the status before deleting pods: a reconcile that reads the old status would create them again.
            return self.builder.plan(requeue_after_seconds=0)
        create = [*self._support_objects()] if is_valid else []
        leaving: tuple[Deletion, ...] = ()
        if launcher is None:
            create += [self._new_launcher(suspended=True)] if is_valid else []
        elif self.legacy_workers:
            gone = (Deletion(BATCH_JOBS, launcher.name, launcher.uid), *self.legacy_workers)
            return self.builder.plan(delete=() if launcher.deleting else gone)
        elif self._is_launcher_lost or (self.has_attempts and not launcher.suspended):
            # Deleted, not suspended: its Job would count the pod that ends now as a failure.
            leaving = _launcher_deletion(launcher)
        elif not launcher.suspended and not launcher.is_finished:
            # Suspend the launcher first: it must not wait for a blocked support object.
            create.insert(0, replace(launcher_job.patch(launcher, {"suspend": True}), first=1))
        deletions = _deletions(self.snapshot.pods) + gang.remains(self.options.gang_scheduler, self.snapshot)
        return self.builder.plan(create=tuple(create), delete=leaving + deletions)

    def clean_up(self) -> Plan:
        """Clean up after a finished job: delete workers by policy, set the launcher's TTL, and delete the PodGroup, which may hold quota.

        A job that hung, whose pods do not run in time, or whose children the API server rejected, keeps nothing: its launcher would wait forever.

        Differs: mpi-operator keeps the PodGroup under cleanPodPolicy None, and sets the launcher's TTL when it creates the launcher, so
        that the launcher may be deleted before the operator sees it end. See docs/decisions/0018-mpijob-v2beta1.md.
        """
        policy = cleanup.clean_pod_policy(
            self.job.spec.policy, self.builder.status, cleans_failed=self.options.clean_finished_pods
        )
        leaving: list[Pod] = []
        if policy == CleanPodPolicy.ALL or self.builder.leaves_nothing:
            leaving = list(self.snapshot.pods)
        elif policy == CleanPodPolicy.RUNNING:
            leaving = [pod for pod in self.snapshot.pods if pod.phase in {"Running", "Pending"}]
        launcher, ttl = self.launcher, self.job.spec.policy.ttl_seconds_after_finished
        change: tuple[Child, ...] = ()
        if launcher and self.has_attempts and not self.builder.leaves_nothing:
            change = tuple(launcher_job.end_patch(launcher))
        if launcher and ttl is not None and launcher.ttl_seconds != ttl and launcher.is_finished:
            change = (launcher_job.patch(launcher, {"ttlSecondsAfterFinished": ttl}),)
        group = gang.remains(self.options.gang_scheduler, self.snapshot)
        idle_objects = self.kind.idle_support_objects(self.job)
        other_deletions = self.legacy_workers if policy == CleanPodPolicy.ALL else ()
        if launcher and self.builder.leaves_nothing and not launcher.deleting:
            other_deletions = (*other_deletions, Deletion(BATCH_JOBS, launcher.name, launcher.uid))
        return self.builder.plan(
            create=(*change, *idle_objects), delete=_deletions(leaving) + group + other_deletions
        )

    def _workers_to_replace(self, workers: Sequence[Pod]) -> tuple[list[Pod], bool]:
        """Return the failed workers to replace now, and whether the status must record their failure first.

        An evicted worker is replaced, after a back-off if it was evicted before, and so is one that a rule of the failure policy replaces.
        Any other failed worker is replaced when the launcher is retried.

        Differs: mpi-operator replaces no workers. See docs/decisions/0018-mpijob-v2beta1.md.
        """
        failed_count = sum(pod.phase == "Failed" for pod in workers)
        ignored = attempts.record_ignored(self._matches, self.builder)
        workers = [pod for pod in workers if pod.uid not in ignored]
        failed = [pod for pod in workers if pod.phase == "Failed"]
        evicted = _evicted(workers)
        failures, now = self.snapshot.failures, self.builder.now
        delayed = replacement.described(failures, evicted, now)
        known = ((self.job.status or JobStatus()).replica_statuses or {}).get(WORKER) or ReplicaStatus()
        new = failed_count - (known.failed or 0)
        text = f"{len(evicted)}/{self.desired_workers} workers are evicted"
        if evicted and self.builder.workers_evicted(text, delayed, is_new=new > 0):
            self.builder.counted += [Count.RESTARTED] * (len(evicted) if new > 0 else 0)
            return [], True
        replaceable = self._replaceable(workers)
        if len(replaceable) > len(evicted) and new > 0:
            self.builder.counted += [Count.RESTARTED] * new
            return [], True
        before = self.builder.before(WORKER) or ReplicaStatus()
        if len(failed) > len(evicted) and self.failed_attempts > (before.restarts or 0):
            self.builder.use_restarts(WORKER, self.failed_attempts - (before.restarts or 0), [])
            return failed, False
        return [pod for pod in replaceable if not replacement.wait_seconds(failures, pod, now)], False

    def _replaceable(self, workers: Sequence[Pod]) -> list[Pod]:
        """Return the failed workers that are replaced whatever the launcher does.

        The kubelet restarts no container of a job with attempts, so the operator also replaces workers whose role's policy restarts them.
        """
        if not self.has_attempts:
            return _evicted(workers)
        restarts = self.roles[WORKER].restart_policy != RestartPolicy.NEVER if WORKER in self.roles else False
        by_rule = recovery.reactions(workers, self._matches)
        return [
            pod
            for pod in workers
            if pod.phase == "Failed" and (restarts or pod.reason == "Evicted" or pod in by_rule)
        ]

    def _is_waiting_for_workers(self, launcher: BatchJob | None) -> bool:
        """Return whether the launcher has not started and waits for its workers."""
        is_idle = launcher is None or launcher.suspended
        return is_idle and self.kind.should_wait_for_workers(self.job, self.options)

    def _pending_probes(self, workers: Sequence[Pod]) -> list[Probe]:
        """Return probes of the workers that are ready, have an address, and have not answered yet."""
        if self.kind.worker_probe is None or not self.options.of(MPIOptions).ssh_check:
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
                later=self._later,
            )

    @property
    def _later(self) -> tuple[str, ...]:
        """The roles whose pods are created when others run."""
        return (LAUNCHER,) if self._is_waiting_for_workers(self.launcher) else ()

    def _support_objects(self) -> Iterable[Child]:
        return self.kind.support_objects(self.job, self.roles, self.snapshot, self.builder.now, self.options)

    def _missing_workers(self) -> Iterator[Child]:
        existing = {pod.index for pod in self.snapshot.pods}
        for index in range(self.desired_workers):
            if index not in existing:
                child = Child(PODS, worker_name(self.job, index), partial(self._worker_body, index))
                child = replacement.marked(self.snapshot.failures, child)
                child = recovery.marked(child, self.builder.status) if self.has_attempts else child
                agents, role = self.agents, self.roles[WORKER]
                yield agents.added(child, role, self.builder.status) if agents else child

    def _worker_body(self, index: int) -> dict[str, Any]:
        return self._with_gang(WORKER, self.kind.worker_pod(self.job, self.roles, index, self.options))

    def _start_launcher(self, launcher: BatchJob | None) -> Iterable[Child]:
        """Return the launcher, or the patches that resume a suspended one with the scheduling directives of the current spec."""
        if launcher is None:
            return [self._new_launcher(suspended=False)]
        if launcher.deleting or not launcher.suspended:
            return []
        return launcher_job.resume_patches(launcher, self._launcher_template())

    def _new_launcher(self, *, suspended: bool) -> Child:
        role, job = self.roles[LAUNCHER], self.job
        if not suspended and (role.template.get("spec") or {}).get("restartPolicy"):
            text = "Restart policy in pod template overridden by restart policy in replica spec"
            self.builder.record_event(
                Severity.WARNING, f"Set{EventReason.POD_TEMPLATE_RESTART_POLICY}", text, once=text
            )
        body = partial(self._launcher_body, suspended)
        return Child(BATCH_JOBS, launcher_name(job), body)

    def _launcher_body(self, suspended: bool) -> dict[str, Any]:
        labels = self.kind.launcher_labels(self.job)
        body = launcher_job.body(
            self.job, self.kind.resource, labels, self._launcher_template(), suspended=suspended
        )
        number = self.builder.status.restarts or 0
        return launcher_job.of_attempt(body, number) if self.has_attempts else body

    def _launcher_template(self) -> dict[str, Any]:
        template = self._with_gang(LAUNCHER, self.kind.launcher_template(self.job, self.roles, self.options))
        status, agents = self.builder.status, self.agents
        template = recovery.of_attempt(template, status) if self.has_attempts else template
        return agents.with_agent(template, self.roles[LAUNCHER], status) if agents else template

    def _with_gang(self, role: str, body: dict[str, Any]) -> dict[str, Any]:
        scheduler = self.options.gang_scheduler
        if not scheduler:
            return body
        members = gang.Membership(scheduler, self.job, self.roles, self.snapshot, self._later)
        return members.enlisted(self.roles[role], body)

    def _missing_workers_report(self, workers: Sequence[Pod], init_failures: str) -> tuple[str, float | None]:
        """Return the missing workers and the known causes if they are late; else an empty text and the seconds until they are."""
        late_in = hosts.seconds_until_late(self.builder.status, self.builder.now)
        if late_in > 0:
            return "", late_in
        unready = {probe.uid for probe in self._pending_probes(workers)}
        up = {pod.index for pod in hosts.ready_workers(workers) if pod.uid not in unready}
        missing = hosts.missing_workers_message(self.job, up, self.desired_workers)
        return f"{missing} {init_failures}".rstrip(), None


def _deletions(pods: Iterable[Pod]) -> tuple[Deletion, ...]:
    return tuple(Deletion(PODS, pod.name, pod.uid) for pod in pods if not pod.deleting)


def _launcher_deletion(launcher: BatchJob) -> tuple[Deletion, ...]:
    """Return the deletion of a launcher that is created again once its pods are gone."""
    gone = Deletion(BATCH_JOBS, launcher.name, launcher.uid, is_foreground=True)
    return () if launcher.deleting else (gone,)


def _evicted(workers: Iterable[Pod]) -> list[Pod]:
    return [pod for pod in workers if pod.phase == "Failed" and pod.reason == "Evicted"]
