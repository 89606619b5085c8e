"""The spec of a v1 MPIJob with the defaults and validation of training-operator, and the data of its ConfigMap.

Source: training-operator 1.9, pkg/apis/kubeflow.org/v1/mpi_defaults.go and mpi_validation.go.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from api.job import RestartPolicy, RunPolicy
from api.mpijob import MPIJob
from api.names import LONGEST_NAME
from controller.domain import Problem, Role, shortened
from controller.kind import Options, Roles
from controller.kind.checks import container_problems, restart_policy_problems, unsupported_value
from controller.kinds.mpi import hosts, kubexec
from controller.kinds.mpi.names import LAUNCHER, WORKER, slots, worker_name

_CONTAINER_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def run_policy(job: MPIJob) -> RunPolicy:
    """Return the run policy; ``spec.cleanPodPolicy`` applies if the run policy has none."""
    given = job.spec.policy
    return given.model_copy(update={"clean_pod_policy": given.clean_pod_policy or job.spec.clean_pod_policy})


def roles(job: MPIJob) -> Roles:
    """Return the roles with their defaults: one launcher, no workers. Role names are case-sensitive."""
    given = job.spec.mpi_replica_specs or {}
    return {
        name: Role(
            name=name,
            replicas=least if given[name].replicas is None else int(given[name].replicas or 0),
            restart_policy=given[name].restart_policy or RestartPolicy.NEVER,
            template=given[name].template or {},
            container=_first_container(given[name].template or {}),
        )
        for name, least in ((LAUNCHER, 1), (WORKER, 0))
        if name in given
    }


def workers(roles: Roles) -> int:
    return roles[WORKER].replicas if WORKER in roles else 0


def problems(job: MPIJob, options: Options) -> Iterator[Problem]:
    """Return why the job is invalid.

    Differs: the original retries forever, and does not check restart policies. See docs/decisions/0020-mpijob-v1.md.
    """
    if len(job.metadata.name) > LONGEST_NAME:  # the value of a label; no Service has this name
        text = f"must be no more than {LONGEST_NAME} characters"
        yield Problem("metadata.name", f'Invalid value: "{shortened(job.metadata.name, 64)}": {text}')
    specs, path = job.spec.mpi_replica_specs, "spec.mpiReplicaSpecs"
    if not specs:
        yield Problem(path, "Required value: must be required")
        return
    for key in specs:
        if key not in {LAUNCHER, WORKER}:
            text = unsupported_value(key, (LAUNCHER, WORKER))
            yield Problem(f"{path}[{shortened(key, 64)}]", text)
    given = roles(job)
    if LAUNCHER not in given:
        yield Problem(f"{path}[{LAUNCHER}]", "Required value: must be present")
        return
    for role in given.values():
        role_path = f"{path}[{role.name}]"
        if role.name == LAUNCHER and role.replicas != 1:
            yield Problem(f"{role_path}.replicas", "Forbidden: must be 1")
        if role.replicas < 0:
            yield Problem(f"{role_path}.replicas", "Forbidden: must not be negative")
        yield from restart_policy_problems(role, tuple(RestartPolicy), f"{role_path}.restartPolicy")
        yield from container_problems(role, f"{role_path}.template.spec.containers")
    container = job.spec.main_container
    if container and not _CONTAINER_NAME.fullmatch(container[:64]):
        text = f'Invalid value: "{shortened(container, 64)}": must be the name of a container'
        yield Problem("spec.mainContainer", text)
    yield from size_problems(job, given, options, path)


def size_problems(job: MPIJob, given: Roles, options: Options, path: str) -> Iterator[Problem]:
    """Reject more replicas than the limit, or more workers than the lists of hosts can contain."""
    total = sum(role.replicas for role in given.values())
    if total > options.max_replicas:
        yield Problem(path, f"Invalid value: {total} replicas: must be at most {options.max_replicas}")
        return
    desired_workers = workers(given)
    launcher, path = given[LAUNCHER], f"{path}[{WORKER}].replicas"
    yield from hosts.size_problems(desired_workers, lambda order: data(job, launcher, order, order), path)


def data(job: MPIJob, launcher: Role, order: Iterable[int], running: Iterable[int]) -> dict[str, str]:
    """Return the data of the ConfigMap for workers in this order, of which ``running`` are listed for discovery."""
    up = (worker_name(job, index) for index in running)
    return {
        kubexec.HOSTFILE: kubexec.hostfile(kubexec.hosts(job, launcher, order), slots(job)),
        kubexec.AGENT: kubexec.agent(job),
        kubexec.DISCOVERY: kubexec.discovery(job, launcher, up),
    }


def _first_container(template: Mapping[str, Any]) -> str:
    """Return the name of the container that runs MPI and whose exit code counts."""
    containers: Sequence[Mapping[str, Any]] = (template.get("spec") or {}).get("containers") or ({},)
    return str(containers[0].get("name") or "")
