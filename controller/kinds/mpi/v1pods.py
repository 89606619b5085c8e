"""The pods of v1 MPIJobs.

Source: training-operator 1.9, pkg/controller.v1/mpi/mpijob_controller.go, newWorker and newLauncher.
"""

from collections.abc import Iterator
from typing import Any, Final

from api import labels
from api.mpijob import Flavor, MPIJob
from api.names import child_labels
from controller.domain import Role
from controller.kind import Options, Roles
from controller.kind.pods import effective_restart_policy
from controller.kinds.mpi import execpods, kubexec, rbac
from controller.kinds.mpi.names import LAUNCHER, WORKER, launcher_name, worker_name
from controller.kinds.mpi.options import MPIOptions

OWNER: Final = Flavor.V1.resource
CONTROLLER: Final = "mpijob-controller"

_FILES = (kubexec.AGENT, kubexec.HOSTFILE, kubexec.DISCOVERY)


def env(launcher: Role) -> Iterator[tuple[str, str]]:
    """Return the launcher's variables in the original's order; those of Open MPI 5 come last.

    Differs: Open MPI 5 ignores the original's variables and runs every rank on the launcher. See docs/decisions/0020-mpijob-v1.md.
    """
    agent, hostfile = f"{execpods.CONFIG_PATH}/{kubexec.AGENT}", f"{execpods.CONFIG_PATH}/{kubexec.HOSTFILE}"
    given = execpods.set_by_user(launcher)
    yield "OMPI_MCA_plm_rsh_agent", agent
    yield "OMPI_MCA_orte_default_hostfile", hostfile
    if not kubexec.has_gpus(launcher):
        yield "NVIDIA_VISIBLE_DEVICES", ""
        yield "NVIDIA_DRIVER_CAPABILITIES", ""
    for name, value in (
        ("I_MPI_HYDRA_BOOTSTRAP", "rsh"),
        ("I_MPI_HYDRA_BOOTSTRAP_EXEC", agent),
        ("PRTE_MCA_plm_ssh_agent", agent),
        ("PRTE_MCA_prte_default_hostfile", hostfile),
    ):
        if name not in given:
            yield name, value


def worker_body(job: MPIJob, roles: Roles, index: int) -> dict[str, Any]:
    role = roles[WORKER]
    own_labels = child_labels(CONTROLLER, job.metadata.name, role.label, index)
    spec = {**execpods.worker(job, role), "restartPolicy": effective_restart_policy(role)}
    return execpods.pod(OWNER, job, worker_name(job, index), role, own_labels, spec)


def launcher_body(job: MPIJob, roles: Roles, options: Options) -> dict[str, Any]:
    role = roles[LAUNCHER]
    own_labels = {
        labels.OPERATOR_NAME: CONTROLLER,
        labels.JOB_NAME: job.metadata.name,
        labels.REPLICA_TYPE: role.label,
        labels.JOB_ROLE: "master",
    }
    account, image = rbac.account_name(job, role), options.of(MPIOptions).kubectl_delivery_image
    spec = execpods.launcher(job, role, account, list(env(role)), image, _FILES)
    name = launcher_name(job)
    return execpods.pod(
        OWNER, job, name, role, own_labels, {**spec, "restartPolicy": effective_restart_policy(role)}
    )
