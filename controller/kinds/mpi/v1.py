"""MPIJobs as training-operator 1.9 runs them: a launcher pod that starts ranks in worker pods by ``kubectl exec``.

The launcher's account, the ConfigMap, an empty Role, and the workers are created first. When the job owns all of its workers, the Role gets
its rules and the launcher is created. ``v1spec`` reads the spec, ``v1pods`` builds the pods.

Source: training-operator 1.9, pkg/controller.v1/mpi/mpijob_controller.go.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Final

from api.children import Owned, Pod
from api.job import RestartPolicy
from api.meta import PODS
from api.mpijob import MPIJob
from controller.domain import (
    Child,
    Counts,
    Event,
    EventMessages,
    Present,
    Problem,
    Role,
    Severity,
    Snapshot,
    Verdict,
    WriteMode,
    name_check,
)
from controller.kind import Options, PodSlot, Roles
from controller.kind.reasons import EventReason
from controller.kinds.mpi import hosts, kubexec, rbac, v1spec
from controller.kinds.mpi.launcher_pod_flavor import LauncherPodFlavor
from controller.kinds.mpi.names import LAUNCHER, WORKER, launcher_name, slots, worker_index, worker_name
from controller.kinds.mpi.v1pods import CONTROLLER, OWNER, launcher_body, worker_body
from controller.policy import attempts, count, gang, recovery


def _write_event(verb: str, kind: str, name: str) -> Event | None:
    """Return the event for a pod that was created or deleted; the original has none for other objects."""
    if verb == "Delete":
        return Event(Severity.NORMAL, "SuccessfulDeletePod", f"Deleted pod: {name}")
    if name.endswith("-launcher"):
        return Event(Severity.NORMAL, "MPIJobRunning", f"launcher pod created success: {name}")
    return Event(Severity.NORMAL, "SuccessfulCreatePod", f"Created worker pod: {name}")


def _name_conflict(kind: str, name: str) -> Event:
    text = f'Resource "{name}" of MPIJobKind "{kind}" already exists and is not managed by MPIJob'
    return Event(Severity.WARNING, EventReason.RESOURCE_EXISTS, text)


def normal(job: MPIJob) -> MPIJob:
    spec = job.spec.model_copy(update={"run_policy": v1spec.run_policy(job)})
    return job.model_copy(update={"spec": spec})


def slot(job: str, row: Owned) -> PodSlot | None:
    """Match by name alone: the index label of a launcher may come from the user."""
    if row.name == f"{job}-launcher":
        return LAUNCHER.lower(), 0
    index = worker_index(job, row.name)
    return None if index is None else (WORKER.lower(), index)


def problems(job: MPIJob, options: Options) -> Sequence[Problem]:
    return list(v1spec.problems(job, options))


def wanted(
    job: MPIJob, roles: Roles, options: Options, present: Present
) -> Iterator[tuple[Role, int, Child]]:
    workers, launchers = (present.pods.get(name.lower(), ()) for name in (WORKER, LAUNCHER))
    for index in range(v1spec.workers(roles)):
        if index not in workers:
            body = partial(worker_body, job, roles, index)
            yield roles[WORKER], index, Child(PODS, worker_name(job, index), body)
    if 0 not in launchers:
        body = partial(launcher_body, job, roles, options)
        yield roles[LAUNCHER], 0, Child(PODS, launcher_name(job), body)


def can_create(job: MPIJob, role: Role, snapshot: Snapshot, options: Options) -> bool:
    """Return whether pods of the role can be created. The launcher needs all workers to exist, or to be ready if it waits for them."""
    if role.name == WORKER:
        return True
    workers, needed = _workers(job, snapshot), v1spec.workers(v1spec.roles(job))
    if hosts.should_wait_for_workers(job, options):
        needed -= _ignored_workers(job, snapshot)
        workers = hosts.ready_workers(workers)
    return len(workers) == needed


def _ignored_workers(job: MPIJob, snapshot: Snapshot) -> int:
    """Return how many failed workers a rule of the failure policy ignores: they never become ready."""
    policy, role = job.spec.policy.failure_policy, v1spec.roles(job).get(WORKER)
    if policy is None or role is None:
        return 0
    found = attempts.matches(
        policy, job.metadata.name, role, count.slots(role, count.by_role(snapshot.pods)), 0
    )
    return len(recovery.ignored(found))


def later(job: MPIJob, snapshot: Snapshot, options: Options) -> Collection[str]:
    has_launcher = any(pod.role == LAUNCHER.lower() for pod in snapshot.pods)
    return () if has_launcher or not hosts.should_wait_for_workers(job, options) else (LAUNCHER,)


def extras(job: MPIJob, snapshot: Snapshot, now: datetime, options: Options) -> Iterable[Child]:
    """Return the support objects of the launcher; none while the gang waits to be admitted."""
    if gang.is_waiting(options.gang_scheduler, snapshot):
        return
    roles = v1spec.roles(job)
    if LAUNCHER not in roles:  # an invalid job that is suspended before anything checks it
        return
    launcher, desired, own = roles[LAUNCHER], v1spec.workers(roles), _workers(job, snapshot)
    yield rbac.account(OWNER, job, launcher)
    order = tuple(hosts.worker_order(own, desired, snapshot.node_domains))
    advertised = {pod.index for pod in hosts.advertised_workers(own, desired, now, hosts.running_since(job))}
    running = tuple(index for index in order if index in advertised)
    data = partial(v1spec.data, job, launcher, order, running)
    version = hash((order, running, slots(job), kubexec.has_gpus(launcher), job.spec.main_container))
    yield kubexec.config_map(OWNER, job, data, str(version))
    has_launcher = any(pod.role == LAUNCHER.lower() for pod in snapshot.pods)
    granted = [pod.name for pod in own] if has_launcher or len(own) == desired else []
    yield rbac.role(OWNER, job, granted)
    yield rbac.binding(OWNER, job, rbac.account_name(job, launcher))
    if desired and not snapshot.pods:
        # All other names are checked by now. Check this one before the workers are created.
        yield name_check(PODS, launcher_name(job))


def due_in(job: MPIJob, snapshot: Snapshot, now: datetime, options: Options) -> float | None:
    desired, own = v1spec.workers(v1spec.roles(job)), _workers(job, snapshot)
    more_in = hosts.seconds_until_more(own, desired, now, hosts.running_since(job))
    late_in = hosts.seconds_until_late(job.status, now) if _missing(job, snapshot, options) else 0
    return min((delay for delay in (more_in, late_in) if delay and delay > 0), default=more_in)


def waits_for(job: MPIJob, snapshot: Snapshot, now: datetime, options: Options) -> str:
    """Describe the missing workers and the pods whose init containers fail."""
    missing = _missing(job, snapshot, options) if hosts.seconds_until_late(job.status, now) <= 0 else ""
    return f"{missing} {hosts.init_failures_message(snapshot.pods)}".strip()


def _missing(job: MPIJob, snapshot: Snapshot, options: Options) -> str:
    """Name the workers that the launcher waits for; empty if it waits for none."""
    if not later(job, snapshot, options):
        return ""
    up = {pod.index for pod in hosts.ready_workers(_workers(job, snapshot))}
    return hosts.missing_workers_message(job, up, v1spec.workers(v1spec.roles(job)))


def while_idle(job: MPIJob) -> Iterable[Child]:
    """Revoke the Role's rules: foreign pods may get the workers' names after these are deleted."""
    return (rbac.role(OWNER, job, [], WriteMode.UPDATE_IF_PRESENT),)


def counted(counts: Mapping[str, Counts]) -> Mapping[str, Counts]:
    """Count terminating pods as active. Workers do not count after the launcher has finished."""
    adjusted = {
        name: replace(
            count, active=count.active + count.leaving, failed=count.failed - count.leaving, leaving=0
        )
        for name, count in counts.items()
    }
    launcher = adjusted.get(LAUNCHER, Counts())
    over = launcher.succeeded or launcher.failed
    return {name: count if name == LAUNCHER or not over else Counts() for name, count in adjusted.items()}


def completion_rule(job: MPIJob, roles: Roles, counts: Mapping[str, Counts]) -> Verdict:
    """Return the verdict: the launcher decides, and a failed pod fails the job unless its policy is ExitCode.

    Differs: the original iterates the roles in random order, so that a failed worker may override a launcher that succeeded. See
    docs/decisions/0020-mpijob-v1.md.
    """
    name = job.metadata.name
    launcher = counts.get(LAUNCHER, Counts())
    if launcher.succeeded:
        return Verdict(succeeded=f"MPIJob {name} is successfully completed.")
    failed = restarting = ""
    for role in roles.values():
        lost = counts[role.name].failed
        if lost and role.restart_policy == RestartPolicy.EXIT_CODE:
            restarting = (
                restarting or f"MPIJob {name} is restarting because {lost} {role.name} replica(s) failed."
            )
        elif lost:
            failed = failed or f"MPIJob {name} is failed because {lost} {role.name} replica(s) failed."
    running = f"MPIJob {name} is running." if launcher.active else ""
    return Verdict(running, failed=failed, restarting=restarting, reason="MPIJobFailed")


def _workers(job: MPIJob, snapshot: Snapshot) -> list[Pod]:
    """Return the workers that the job owns and whose index is in range, sorted by index."""
    desired = v1spec.workers(v1spec.roles(job))
    found = (pod for pod in snapshot.pods if pod.role == WORKER.lower() and pod.index < desired)
    return sorted(found, key=lambda pod: pod.index)


V1: Final = LauncherPodFlavor(
    resource=OWNER,
    controller_name=CONTROLLER,
    event_messages=EventMessages(
        done=_write_event, taken=_name_conflict, missing_rights=rbac.missing_rights_event
    ),
    roles=v1spec.roles,
    problems=problems,
    wanted=wanted,
    completion_rule=completion_rule,
    slot=slot,
    normal=normal,
    can_create=can_create,
    later=later,
    extras=extras,
    due_in=due_in,
    waits_for=waits_for,
    while_idle=while_idle,
    counted=counted,
)
