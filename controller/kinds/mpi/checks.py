"""Validation of v2beta1 jobs: the rules of mpi-operator, and rules against later failures.

Source: mpi-operator 0.8, pkg/apis/kubeflow/validation/validation.go.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Any

from api.job import CleanPodPolicy, RestartPolicy
from api.mpijob import MPIJob
from controller.domain import Problem, Role, shortened
from controller.kind import Options, Roles
from controller.kind.checks import (
    container_problems,
    label_problem,
    restart_policy_problems,
    unsupported_value,
)
from controller.kinds.mpi.names import LAUNCHER, WORKER, worker_name

IMPLEMENTATIONS = ("OpenMPI", "Intel", "MPICH")
CREATION_POLICIES = ("AtStartup", "WaitForWorkersReady")
_SPECS = "spec.mpiReplicaSpecs"
_POLICY = "spec.runPolicy"


def problems(job: MPIJob, roles: Callable[[MPIJob], Roles], options: Options) -> Iterator[Problem]:
    """Return why a v2beta1 job is invalid.

    Differs: unknown roles, unknown values of launcherCreationPolicy, and more replicas than the limit are rejected.
    See docs/decisions/0018-mpijob-v2beta1.md.
    """
    given = roles(job)
    workers = given[WORKER].replicas if WORKER in given else 0
    longest = worker_name(job, max(workers, 1) - 1)
    if wrong := label_problem(longest):
        text = f"will not able to create pod and service with invalid DNS label {_quoted(longest)}: {wrong}"
        yield Problem("metadata.name", f"Invalid value: {_quoted(job.metadata.name)}: {text}")
    if not job.spec.mpi_replica_specs:
        yield Problem(_SPECS, "Required value: must have replica specs")
        return
    for key in job.spec.mpi_replica_specs:
        if key not in {LAUNCHER, WORKER}:
            yield Problem(f"{_SPECS}[{shortened(key, 64)}]", unsupported_value(key, (LAUNCHER, WORKER)))
    if LAUNCHER not in given:
        yield Problem(f"{_SPECS}[{LAUNCHER}]", f"Required value: must have {LAUNCHER} replica spec")
    for role in given.values():
        yield from _role_problems(role)
    if workers > options.max_replicas:
        text = f"Invalid value: {workers}: must be less than or equal to {options.max_replicas}"
        yield Problem(f"{_SPECS}[{WORKER}].replicas", text)
    yield from _spec_problems(job)


def _role_problems(role: Role) -> Iterator[Problem]:
    path = f"{_SPECS}[{role.name}]"
    if role.name == LAUNCHER and role.replicas != 1:
        yield Problem(f"{path}.replicas", f"Invalid value: {role.replicas}: must be 1")
    if role.name == WORKER and role.replicas < 1:
        text = "must be greater than or equal to 1; without workers, leave Worker out and set runLauncherAsWorker"
        yield Problem(f"{path}.replicas", f"Invalid value: {role.replicas}: {text}")
    known = (RestartPolicy.NEVER, RestartPolicy.ON_FAILURE)
    yield from restart_policy_problems(role, known, f"{path}.restartPolicy")
    yield from container_problems(role, f"{path}.template.spec.containers")


def _spec_problems(job: MPIJob) -> Iterator[Problem]:
    spec, policy = job.spec, job.spec.policy
    yield from _negative("spec.slotsPerWorker", spec.slots_per_worker)
    yield from _unknown(f"{_POLICY}.cleanPodPolicy", policy.clean_pod_policy, tuple(CleanPodPolicy))
    yield from _negative(f"{_POLICY}.ttlSecondsAfterFinished", policy.ttl_seconds_after_finished)
    yield from _negative(f"{_POLICY}.activeDeadlineSeconds", policy.active_deadline_seconds)
    yield from _negative(f"{_POLICY}.backoffLimit", policy.backoff_limit)
    yield from _unknown("spec.mpiImplementation", spec.mpi_implementation or None, IMPLEMENTATIONS)
    yield from _unknown(
        "spec.launcherCreationPolicy", spec.launcher_creation_policy or None, CREATION_POLICIES
    )


def _negative(path: str, value: int | None) -> Iterator[Problem]:
    if value is not None and value < 0:
        yield Problem(path, f"Invalid value: {value}: must be greater than or equal to 0")


def _unknown(path: str, value: str | None, known: Collection[Any]) -> Iterator[Problem]:
    if value is not None and value not in set(known):
        yield Problem(path, unsupported_value(value, known))


def _quoted(value: str) -> str:
    return f'"{shortened(value, 64)}"'
