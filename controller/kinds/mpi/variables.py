"""The environment variables that tell each MPI implementation its hosts and ssh options.

Source: mpi-operator 0.8, pkg/controller/mpi_job_controller.go, newLauncherPodTemplate.
"""

from collections.abc import Iterator
from typing import Final

from api.mpijob import MPIJob
from controller.kind import Options
from controller.kinds.mpi.names import slots
from controller.kinds.mpi.options import MPIOptions

CONFIG_PATH: Final = "/etc/mpi"
HOSTFILE: Final = "hostfile"
ROLE: Final = "K_MPI_JOB_ROLE"
OPEN_MPI, INTEL, MPICH = "OpenMPI", "Intel", "MPICH"

OPERATOR_VARIABLES: Final = frozenset({ROLE, "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"})
"""Variables that override the template: the role of a pod, and no GPUs for a launcher that is not a worker."""

_HOSTS = f"{CONFIG_PATH}/{HOSTFILE}"
_SSH = "-o ConnectionAttempts=10"

Variables = Iterator[tuple[str, str]]


def implementation(job: MPIJob) -> str:
    return job.spec.mpi_implementation or OPEN_MPI


def launcher_env(job: MPIJob, options: Options) -> Variables:
    """Return the launcher's variables in the original's order; those of Open MPI 5 and HYDRA_LAUNCHER_EXTRA_ARGS come last.

    Differs: Open MPI 5 ignores the original's variables and runs every rank on the launcher. MPICH reads HYDRA_LAUNCHER_EXTRA_ARGS;
    with the original's name for it, it tries each connection once and then hangs. See docs/decisions/0018-mpijob-v2beta1.md.
    """
    yield ROLE, "launcher"
    yield from {OPEN_MPI: _open_mpi, INTEL: _intel, MPICH: _mpich}[implementation(job)](job)
    if not job.spec.run_launcher_as_worker:
        yield "NVIDIA_VISIBLE_DEVICES", ""
        yield "NVIDIA_DRIVER_CAPABILITIES", ""
    if implementation(job) == OPEN_MPI:
        yield from _open_mpi_5(job, options)
    if implementation(job) == MPICH:
        yield "HYDRA_LAUNCHER_EXTRA_ARGS", _SSH


def _open_mpi(job: MPIJob) -> Variables:
    yield "OMPI_MCA_orte_keep_fqdn_hostnames", "true"
    yield "OMPI_MCA_orte_default_hostfile", _HOSTS
    yield "OMPI_MCA_plm_rsh_args", _SSH
    yield "OMPI_MCA_orte_set_default_slots", str(slots(job))


def _open_mpi_5(job: MPIJob, options: Options) -> Variables:
    yield "PRTE_MCA_prte_default_hostfile", _HOSTS
    yield "PRTE_MCA_plm_ssh_args", _SSH
    yield "PRTE_MCA_prte_set_default_slots", str(slots(job))
    if options.of(MPIOptions).launcher_only_key:  # without a private key no worker can start another
        yield "OMPI_MCA_plm_rsh_no_tree_spawn", "1"
        yield "PRTE_MCA_plm_ssh_no_tree_spawn", "1"


def _intel(job: MPIJob) -> Variables:
    yield "I_MPI_HYDRA_HOST_FILE", _HOSTS
    yield "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS", _SSH
    yield "I_MPI_PERHOST", str(slots(job))


def _mpich(_: MPIJob) -> Variables:
    yield "HYDRA_HOST_FILE", _HOSTS
    yield "HYDRA_LAUNCH_EXTRA_ARGS", _SSH
