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
from controller.kinds.mpi.launcher_flavor_spec import Traits
from controller.kinds.mpi.names import LAUNCHER, WORKER, launcher_name, worker_name
from controller.kinds.mpi.status_builder import Story
from controller.kinds.mpi.version_warnings import MISMATCH
from controller.policy import gang, replacement


@dataclass(frozen=True, slots=True)
class Look:
    """One look at one job."""

    kind: Traits
    job: MPIJob
    roles: Roles
    snapshot: Snapshot
    story: Story
    options: Options

    @property
    def wanted(self) -> int:
        """How many workers there shall be."""
        return self.roles[WORKER].replicas if WORKER in self.roles else 0

    @property
    def workers(self) -> list[Pod]:
        """Those that fill a place, by index."""
        return sorted(
            (pod for pod in self.snapshot.pods if pod.index < self.wanted), key=lambda pod: pod.index
        )

    @property
    def launcher(self) -> BatchJob | None:
        name = launcher_name(self.job)
        return next((one for one in self.snapshot.batch_jobs if one.name == name), None)

    @property
    def relics(self) -> tuple[Doomed, ...]:
        return self.kind.relics(self.job, self.launcher) if self.launcher else ()

    @property
    def attempts(self) -> int:
        return launcher_job.tries(self.job, self.snapshot)

    def count(self) -> None:
        """Launchers and workers as they are; once the launcher has ended, workers do not count."""
        launched, before = self.launcher, self.story.before(WORKER) or ReplicaStatus()
        # A launcher whose pod is another one may have fewer tries behind it than workers were replaced for.
        replaced_for = min(before.restarts or 0, self.attempts) or None
        # The end of the Job may be known before that of its pod, and a job that is over is not counted again.
        has_ended = launched is not None and launched.is_finished
        active = 0 if has_ended else sum(pod.phase == "Running" for pod in self.snapshot.batch_pods)
        launchers = ReplicaStatus(
            active=active or None,
            succeeded=1 if launched and launched.complete else None,
            failed=(launched.failures if launched else 0) or None,
        )
        workers = ReplicaStatus(restarts=replaced_for)
        if not has_ended:
            phases = [pod.phase for pod in self.workers if pod.phase != "Running" or not pod.deleting]
            workers = ReplicaStatus(
                active=phases.count("Running") or None,
                succeeded=phases.count("Succeeded") or None,
                failed=phases.count("Failed") or None,
                restarts=replaced_for,
            )
        is_due = launched or self.job.spec.policy.suspend or not self.kind.waits(self.job, self.options)
        counts = {LAUNCHER: launchers, WORKER: workers}
        self.story.count(counts if is_due or self.story.before(LAUNCHER) else {WORKER: workers})

    def has_ended(self) -> bool:
        """Whether the launcher has, which is the end of the job."""
        launched = self.launcher
        if launched is None or not launched.is_finished:
            return False
        self.count()
        if launched.failure is None:
            self.story.completed(launched.completed_at or self.story.now)
        else:
            self.story.gave_up(*launcher_job.why(*launched.failure, self.snapshot.batch_pods))
        return True

    def go_on(self) -> Plan:
        """Make what is missing, replace what is lost, delete what is too much, and start the launcher when it may start."""
        workers, launched = self.workers, self.launcher
        lost, is_news = self._lost(workers)
        if is_news:
            return self.story.plan(requeue_after_seconds=0)
        if not self.snapshot.is_held_up:
            self.story.unblocked()
        are_all_up = sum(pod.is_active for pod in workers) == self.wanted
        if are_all_up and any(pod.phase == "Running" for pod in self.snapshot.batch_pods):
            self.story.runs()
        elif self.kind.tells_of_retries and launched and launched.failures:
            self.story.retries()
        knocks = self._knocks(workers) if self._is_to_wait(launched) else []
        waits = self.kind.waits(self.job, self.options) and len(hosts.up(workers)) - len(knocks) < self.wanted
        more_in = hosts.more_in(workers, self.wanted, self.story.now, hosts.running_since(self.job))
        troubles = hosts.failing([*workers, *self.snapshot.batch_pods])
        if waits and self._is_to_wait(launched):
            more_in = _sooner(more_in, self._name_the_missing(workers, troubles))
        elif troubles and not self.snapshot.is_held_up:
            self.story.waits_for(troubles)
        more_in = _sooner(
            more_in, replacement.next_due_in(self.snapshot.failures, _evicted(workers), self.story.now)
        )
        surplus = [pod for pod in self.snapshot.pods if pod.index >= self.wanted]
        is_early = self.kind.knows_its_workers and len(workers) < self.wanted
        start = () if waits or is_early else self._start(launched)
        # Who has the launcher's name is found out before there is a worker, which would hold its GPUs for nothing.
        checked = [] if launched else [name_check(BATCH_JOBS, launcher_name(self.job))]
        return self.story.plan(
            create=(*self._group(), *checked, *self._belongings(), *self._missing_workers(), *start),
            delete=_doomed([*lost, *surplus]),
            knocks=tuple(knocks),
            requeue_after_seconds=more_in,
            again=is_early,
        )

    def watch(self) -> Plan:
        """Leave all as another operator has made it, until the job ends or is suspended. Its pods are not known here, so not counted."""
        made = ", ".join(f"{one.resource.kind} {one.name}" for one in self.relics)
        text = (
            f"another operator has started this job, with {made}; it goes on so until it ends or is suspended"
        )
        self.story.tell(Severity.WARNING, MISMATCH, text, once=text)
        return self.story.plan()

    def suspend(self) -> Plan:
        """No pods while suspended. The launcher's Job is there, and suspended with it.

        Differs: under cleanPodPolicy Running mpi-operator keeps workers that have ended, which nobody replaces after the suspension.
        See docs/decisions/0018-mpijob-v2beta1.md.
        """
        self.count()
        self.story.suspended()
        launched = self.launcher
        if self.snapshot.pods and not conditions.is_true(
            self.job.status or JobStatus(), ConditionType.SUSPENDED
        ):
            # Stored before a pod goes: a pass that read nothing of the suspension would make it anew.
            return self.story.plan(requeue_after_seconds=0)
        create = [*self._belongings()]
        if launched is None:
            create.append(self._new_launcher(suspended=True))
        elif self.relics:
            gone = (Doomed(BATCH_JOBS, launched.name, launched.uid), *self.relics)
            return self.story.plan(delete=() if launched.deleting else gone)
        elif not launched.suspended and not launched.is_finished:
            # Begun before the belongings: it must not wait for one of them that is held up.
            create.insert(0, replace(launcher_job.change(launched, {"suspend": True}), first=1))
        doomed = _doomed(self.snapshot.pods) + gang.remains(self.options.gang_scheduler, self.snapshot)
        return self.story.plan(create=tuple(create), delete=doomed)

    def clean_up(self) -> Plan:
        """What is left of a job that is over: workers by policy, the launcher for its TTL, and no group, which may hold quota.

        A job that the API server would not take leaves nothing: its launcher has not ended, and would look for workers in vain.

        Differs: mpi-operator leaves the group under cleanPodPolicy None, and gives the launcher its TTL from the start, so that it may
        be gone before it was seen to end. See docs/decisions/0018-mpijob-v2beta1.md.
        """
        policy = self.job.spec.policy.clean_pod_policy
        going: list[Pod] = []
        if policy == CleanPodPolicy.ALL or self.story.is_invalid:
            going = list(self.snapshot.pods)
        elif policy == CleanPodPolicy.RUNNING:
            going = [pod for pod in self.snapshot.pods if pod.phase in {"Running", "Pending"}]
        launched, ttl = self.launcher, self.job.spec.policy.ttl_seconds_after_finished
        change: tuple[Child, ...] = ()
        if launched and ttl is not None and launched.ttl_seconds != ttl and launched.is_finished:
            change = (launcher_job.change(launched, {"ttlSecondsAfterFinished": ttl}),)
        group = gang.remains(self.options.gang_scheduler, self.snapshot)
        kept = self.kind.afterwards(self.job)
        others = self.relics if policy == CleanPodPolicy.ALL else ()
        if launched and self.story.is_invalid and not launched.deleting:
            others = (*others, Doomed(BATCH_JOBS, launched.name, launched.uid))
        return self.story.plan(create=(*change, *kept), delete=_doomed(going) + group + others)

    def _lost(self, workers: Sequence[Pod]) -> tuple[list[Pod], bool]:
        """Failed workers to replace now, and whether the status has to tell of them first.

        One that was evicted is replaced, after a pause if it was evicted before; any other when the launcher tries again, which would find
        nobody there.

        Differs: mpi-operator replaces none. See docs/decisions/0018-mpijob-v2beta1.md.
        """
        failed = [pod for pod in workers if pod.phase == "Failed"]
        evicted = _evicted(workers)
        failures, now = self.snapshot.failures, self.story.now
        held = replacement.described(failures, evicted, now)
        if evicted and self.story.lost(f"{len(evicted)}/{self.wanted} workers are evicted", held):
            self.story.counted += [Count.RESTARTED] * len(evicted)
            return [], True
        before = self.story.before(WORKER) or ReplicaStatus()
        if len(failed) > len(evicted) and self.attempts > (before.restarts or 0):
            self.story.use_restarts(WORKER, self.attempts - (before.restarts or 0), [])
            return failed, False
        return [pod for pod in evicted if not replacement.wait_seconds(failures, pod, now)], False

    def _is_to_wait(self, launched: BatchJob | None) -> bool:
        """Whether the launcher waits for its workers, and has not been started."""
        is_idle = launched is None or launched.suspended
        return is_idle and self.kind.waits(self.job, self.options)

    def _knocks(self, workers: Sequence[Pod]) -> list[Knock]:
        """The workers that are up by their own word, have an address, and have not been asked."""
        if self.kind.knock is None or not self.options.mpi_ssh_check:
            return []
        unsure = [pod for pod in hosts.up(workers) if pod.address and pod.uid not in self.snapshot.answered]
        return [self.kind.knock(self.job, self.roles, pod) for pod in unsure]

    def _group(self) -> Iterator[Child]:
        scheduler = self.options.gang_scheduler
        if scheduler:
            yield from gang.group(
                scheduler,
                self.kind.resource,
                self.job,
                self.roles,
                self.snapshot,
                gang.MPI_OPERATOR,
                later=(LAUNCHER,) if self._is_to_wait(self.launcher) else (),
            )

    def _belongings(self) -> Iterable[Child]:
        return self.kind.belongings(self.job, self.roles, self.snapshot, self.story.now, self.options)

    def _missing_workers(self) -> Iterator[Child]:
        there = {pod.name for pod in self.snapshot.pods}
        for index in range(self.wanted):
            name = worker_name(self.job, index)
            if name not in there:
                child = Child(PODS, name, partial(self._worker_body, index))
                yield replacement.marked(self.snapshot.failures, child)

    def _worker_body(self, index: int) -> dict[str, Any]:
        return self._member(self.kind.worker(self.job, self.roles, index, self.options))

    def _start(self, launched: BatchJob | None) -> Iterable[Child]:
        """The launcher, or what lets one that is suspended run where the spec now says."""
        if launched is None:
            return [self._new_launcher(suspended=False)]
        if launched.deleting or not launched.suspended:
            return []
        return launcher_job.resumed(launched, self._template())

    def _new_launcher(self, *, suspended: bool) -> Child:
        role, job = self.roles[LAUNCHER], self.job
        if not suspended and (role.template.get("spec") or {}).get("restartPolicy"):
            text = "Restart policy in pod template overridden by restart policy in replica spec"
            self.story.tell(Severity.WARNING, "SetPodTemplateRestartPolicy", text, once=text)
        body = partial(self._launcher_body, suspended)
        return Child(BATCH_JOBS, launcher_name(job), body)

    def _launcher_body(self, suspended: bool) -> dict[str, Any]:
        marks = self.kind.marks_of_job(self.job)
        return launcher_job.body(self.job, self.kind.resource, marks, self._template(), suspended=suspended)

    def _template(self) -> dict[str, Any]:
        return self._member(self.kind.launcher(self.job, self.roles, self.options))

    def _member(self, body: dict[str, Any]) -> dict[str, Any]:
        scheduler = self.options.gang_scheduler
        return gang.enlisted(scheduler, self.job.metadata.name, body) if scheduler else body

    def _name_the_missing(self, workers: Sequence[Pod], troubles: str) -> float | None:
        """Say which workers the launcher waits for, if it is late, and what is known of why; the seconds until it is."""
        left = hosts.late_in(self.story.status, self.story.now)
        if left > 0:
            return left
        unsure = {one.uid for one in self._knocks(workers)}
        up = {pod.index for pod in hosts.up(workers) if pod.uid not in unsure}
        if not self.snapshot.is_held_up:  # which is why they are missing, and is said instead
            self.story.waits_for(f"{hosts.missing(self.job, up, self.wanted)} {troubles}".rstrip())
        return None


def _doomed(pods: Iterable[Pod]) -> tuple[Doomed, ...]:
    return tuple(Doomed(PODS, pod.name, pod.uid) for pod in pods if not pod.deleting)


def _evicted(workers: Iterable[Pod]) -> list[Pod]:
    return [pod for pod in workers if pod.phase == "Failed" and pod.reason == "Evicted"]


def _sooner(*seconds: float | None) -> float | None:
    return min((one for one in seconds if one is not None), default=None)
