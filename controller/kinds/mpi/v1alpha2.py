"""MPIJobs of v1alpha2, as the MPI Operator of 2020 ran them: the launcher is a batch Job, workers always restart.

Ranks are started by ``kubectl exec`` as in v1, for Open MPI, Intel MPI and MPICH. Workers are pods as in the other flavors, not a
StatefulSet as in the original.

Source: mpi-operator 0.3, pkg/controllers/v1alpha2/mpi_job_controller.go.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Final

from api import labels
from api.batch import BatchJob
from api.job import CleanPodPolicy, RestartPolicy, RunPolicy
from api.meta import STATEFUL_SETS
from api.mpijob import Flavor, MPIJob
from controller.domain import Child, Deletion, Event, EventMessages, Role, Severity, Snapshot, WriteMode
from controller.kind import Options, Roles
from controller.kind.reasons import EventReason
from controller.kinds.mpi import execpods, hosts, kubexec, rbac, v1spec
from controller.kinds.mpi.launcher_flavor import LauncherFlavor
from controller.kinds.mpi.names import LAUNCHER, WORKER, launcher_name, slots, worker_name
from controller.kinds.mpi.options import MPIOptions

OWNER: Final = Flavor.V1ALPHA2.resource
DEFAULT_BACKOFF_LIMIT: Final = 6
"""How often a launcher is retried by default."""

OPEN_MPI: Final = "OpenMPI"
CONTROLLER: Final = "mpi-operator"

_FILES = (kubexec.AGENT, kubexec.HOSTFILE)
_AGENT = f"{execpods.CONFIG_PATH}/{kubexec.AGENT}"
_HOSTFILE = f"{execpods.CONFIG_PATH}/{kubexec.HOSTFILE}"
_VARIABLES: Final = {
    OPEN_MPI: (
        ("OMPI_MCA_plm_rsh_agent", _AGENT),
        ("OMPI_MCA_orte_default_hostfile", _HOSTFILE),
        ("PRTE_MCA_plm_ssh_agent", _AGENT),
        ("PRTE_MCA_prte_default_hostfile", _HOSTFILE),
    ),
    "IntelMPI": (("I_MPI_HYDRA_BOOTSTRAP_EXEC", _AGENT), ("I_MPI_HYDRA_HOST_FILE", _HOSTFILE)),
    "MPICH": (("HYDRA_LAUNCHER_EXEC", _AGENT), ("HYDRA_HOST_FILE", _HOSTFILE)),
}
_OPEN_MPI_5_VARIABLES = ("PRTE_MCA_plm_ssh_agent", "PRTE_MCA_prte_default_hostfile")


def distribution(job: MPIJob) -> str:
    """Return the MPI implementation. An unknown or empty value means Open MPI."""
    distribution = job.spec.mpi_distribution or ""
    return distribution if distribution in _VARIABLES else OPEN_MPI


def run_policy(job: MPIJob) -> RunPolicy:
    """Return the run policy, completed from the fields of the spec. ``spec.cleanPodPolicy`` wins; for limits the run policy wins.

    Workers never end by themselves, so cleanPodPolicy Running means All.

    Differs: the original reads only ``spec.cleanPodPolicy``, and has no ``suspend`` or ``managedBy``. See
    docs/decisions/0021-mpijob-v1alpha2.md.
    """
    spec, given = job.spec, job.spec.policy
    backoff_limit = spec.backoff_limit if given.backoff_limit is None else given.backoff_limit
    seconds = given.active_deadline_seconds
    if backoff_limit is None and given.failure_policy is None:
        backoff_limit = DEFAULT_BACKOFF_LIMIT
    cleaning = spec.clean_pod_policy or given.clean_pod_policy
    return given.model_copy(
        update={
            "clean_pod_policy": CleanPodPolicy.ALL if cleaning == CleanPodPolicy.RUNNING else cleaning,
            "backoff_limit": backoff_limit,
            "active_deadline_seconds": spec.active_deadline_seconds if seconds is None else seconds,
        }
    )


def roles(job: MPIJob) -> Roles:
    """Return the roles of v1 with other restart policies: a launcher is retried unless its policy is Never, workers always restart.

    Differs: the original crashes without workers. See docs/decisions/0021-mpijob-v1alpha2.md.
    """
    specs = job.spec.mpi_replica_specs or {}
    is_final = LAUNCHER in specs and specs[LAUNCHER].restart_policy == RestartPolicy.NEVER
    policies = {
        LAUNCHER: RestartPolicy.NEVER if is_final else RestartPolicy.ON_FAILURE,
        WORKER: RestartPolicy.ALWAYS,
    }
    return {name: replace(role, restart_policy=policies[name]) for name, role in v1spec.roles(job).items()}


def normal(job: MPIJob) -> MPIJob:
    return job.model_copy(update={"spec": job.spec.model_copy(update={"run_policy": run_policy(job)})})


def data(job: MPIJob, order: Iterable[int]) -> dict[str, str]:
    """Return the data of the ConfigMap. It has no host discovery script, as in the original."""
    names = (worker_name(job, index) for index in order)
    is_open = distribution(job) == OPEN_MPI
    return {
        kubexec.HOSTFILE: kubexec.hostfile(names, slots(job), " slots=" if is_open else ":"),
        kubexec.AGENT: kubexec.agent(job) if is_open else kubexec.hydra_agent(job),
    }


def env(job: MPIJob, launcher: Role) -> Iterator[tuple[str, str]]:
    """Return the launcher's variables. Variables of Open MPI 5 that the user has set are kept."""
    given = execpods.set_by_user(launcher)
    yield from (
        variable
        for variable in _VARIABLES[distribution(job)]
        if variable[0] not in given or variable[0] not in _OPEN_MPI_5_VARIABLES
    )
    yield "NVIDIA_VISIBLE_DEVICES", ""
    yield "NVIDIA_DRIVER_CAPABILITIES", ""


def pod_labels(job: MPIJob, role: str) -> dict[str, str]:
    """Return the labels of the original and those of all kinds. ``role`` is in lower case."""
    return {
        "group_name": "kubeflow.org",
        "mpi_job_name": job.metadata.name,
        "mpi_role_type": role,
        labels.OPERATOR_NAME: CONTROLLER,
        labels.JOB_NAME: job.metadata.name,
        labels.REPLICA_TYPE: role,
    }


def worker_body(job: MPIJob, given: Roles, index: int, _: Options) -> dict[str, Any]:
    role = given[WORKER]
    own = {**pod_labels(job, role.label), labels.REPLICA_INDEX: str(index)}
    spec = {**execpods.worker(job, role), "restartPolicy": role.restart_policy}
    return execpods.pod(OWNER, job, worker_name(job, index), role, own, spec)


def launcher_template(job: MPIJob, given: Roles, options: Options) -> dict[str, Any]:
    """Return the pod template of the launcher. It always runs as its own ServiceAccount."""
    role = given[LAUNCHER]
    account, image = launcher_name(job), options.of(MPIOptions).kubectl_delivery_image
    spec = execpods.launcher(job, role, account, list(env(job, role)), image, _FILES)
    body = execpods.pod(
        OWNER, job, "", role, pod_labels(job, role.label), {**spec, "restartPolicy": role.restart_policy}
    )
    metadata = {key: body["metadata"][key] for key in ("annotations", "labels") if key in body["metadata"]}
    return {"metadata": metadata, "spec": body["spec"]}


def support_objects(
    job: MPIJob, given: Roles, snapshot: Snapshot, _: datetime, __: Options
) -> Iterator[Child]:
    """Return the ServiceAccount, ConfigMap, Role and RoleBinding of the launcher. The Role covers only workers that the job owns."""
    desired = v1spec.workers(given)
    workers = sorted((pod for pod in snapshot.pods if pod.index < desired), key=lambda pod: pod.index)
    own = [pod.name for pod in workers]
    yield rbac.own_account(OWNER, job)
    order = tuple(hosts.worker_order(workers, desired, snapshot.node_domains))
    version = hash((order, slots(job), distribution(job), job.spec.main_container))
    yield kubexec.config_map(OWNER, job, partial(data, job, order), str(version))
    if job.spec.policy.suspend:
        yield rbac.role(OWNER, job, own if snapshot.batch_jobs else [], WriteMode.UPDATE_IF_PRESENT)
        return
    yield rbac.role(OWNER, job, own if snapshot.batch_jobs or len(own) == desired else [])
    yield rbac.binding(OWNER, job, launcher_name(job))


def legacy_workers(job: MPIJob, launcher: BatchJob) -> tuple[Deletion, ...]:
    """Return the original's StatefulSet if the original created the launcher, which then has no role label."""
    is_ours = launcher.role == LAUNCHER.lower()
    return () if is_ours else (Deletion(STATEFUL_SETS, f"{job.metadata.name}-worker"),)


def idle_support_objects(job: MPIJob) -> Iterable[Child]:
    """Revoke the Role's rules: foreign pods may get the workers' names."""
    return (rbac.role(OWNER, job, [], WriteMode.UPDATE_IF_PRESENT),)


def _name_conflict(_kind: str, name: str) -> Event:
    text = f'Resource "{name}" already exists and is not managed by MPIJob'
    return Event(Severity.WARNING, EventReason.RESOURCE_EXISTS, text)


V1ALPHA2: Final = LauncherFlavor(
    resource=OWNER,
    controller_name=CONTROLLER,
    managed_by=labels.MANAGED_BY_MPI_OPERATOR,
    event_messages=EventMessages(
        done=lambda *_: None, taken=_name_conflict, missing_rights=rbac.missing_rights_event
    ),
    roles=roles,
    problems=v1spec.problems,
    support_objects=support_objects,
    worker_pod=worker_body,
    launcher_template=launcher_template,
    normal=normal,
    should_wait_for_workers=hosts.should_wait_for_workers,
    creates_workers_first=True,
    reports_retries=True,
    launcher_labels=lambda job: pod_labels(job, LAUNCHER.lower()),
    idle_support_objects=idle_support_objects,
    legacy_workers=legacy_workers,
)
