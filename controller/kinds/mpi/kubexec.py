"""The files of MPI where ``kubectl exec`` starts ranks: the hostfile, the agent that replaces ssh, and the host discovery script.

They are in one ConfigMap of the job, in v1 and v1alpha2. ``execpods`` builds the pods that mount it.

Source: training-operator 1.9, pkg/controller.v1/mpi/mpijob_controller.go; mpi-operator 0.3, pkg/controllers/v1alpha2.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from api.job import owner_reference
from api.labels import JOB_NAME
from api.meta import CONFIG_MAPS, Resource
from api.mpijob import MPIJob
from controller.domain import Child, Role, WriteMode
from controller.kinds.mpi.names import config_name, launcher_name, slots, worker_name

HOSTFILE: Final = "hostfile"
AGENT: Final = "kubexec.sh"
DISCOVERY: Final = "discover_hosts.sh"

_HYDRA_AGENT = """\
#!/bin/sh
set -x
while [ "${{1#-}}" != "$1" ]; do shift; done
POD_NAME=$1
shift
LAUNCHER=$(grep -w "${{HOSTNAME:-$(hostname)}}" /etc/hosts | tail -n 1)
KNOW="{{ grep -qF '$LAUNCHER' /etc/hosts || echo '$LAUNCHER' >> /etc/hosts; }} 2>/dev/null"
/opt/kube/kubectl exec ${{POD_NAME}}{container} -- /bin/sh -c "$KNOW; $*"
"""
_AGENT = '#!/bin/sh\nset -x\nPOD_NAME=$1\nshift\n/opt/kube/kubectl exec ${{POD_NAME}}{container} -- /bin/sh -c "$*"'


def has_gpus(launcher: Role) -> bool:
    """Return whether a container of the launcher has a limit on GPUs. Such a launcher runs ranks, too."""
    containers = (launcher.template.get("spec") or {}).get("containers") or ()
    limits = (
        name for container in containers for name in (container.get("resources") or {}).get("limits") or {}
    )
    return any("gpu" in name for name in limits)


def hosts(job: MPIJob, launcher: Role, workers: Iterable[int]) -> Iterator[str]:
    """Return the names of all hosts with ranks: a launcher with GPUs first, then the workers in the given order."""
    if has_gpus(launcher):
        yield launcher_name(job)
    for index in workers:
        yield worker_name(job, index)


def hostfile(names: Iterable[str], count: int, separator: str = " slots=") -> str:
    """Return one line for each host with its slots, in the format of Open MPI. Other implementations use ``:`` as separator."""
    return "".join(f"{name}{separator}{count}\n" for name in names)


def agent(job: MPIJob) -> str:
    """Return the script that mpirun calls instead of ssh. Its arguments are a pod name and a command."""
    return _AGENT.format(container=_container(job))


def hydra_agent(job: MPIJob) -> str:
    """Return the agent of Intel MPI and MPICH, which pass ssh options, and whose ranks resolve the launcher by name.

    The script adds that name to the worker's /etc/hosts if the user can write there.

    Differs: the original copies a file of all hosts into each pod, for which its init container watches all pods. See
    docs/decisions/0021-mpijob-v1alpha2.md.
    """
    return _HYDRA_AGENT.format(container=_container(job))


def discovery(job: MPIJob, launcher: Role, running: Iterable[str]) -> str:
    """Return the host discovery script of elastic Horovod. ``running`` are the names of workers, in order.

    Differs: the original sorts names as text, worker 10 before worker 2. See docs/decisions/0020-mpijob-v1.md.
    """
    lines = [f"\necho {launcher_name(job)}:{slots(job)}\n"] if has_gpus(launcher) else []
    return "".join(["#!/bin/sh", *lines, *(f"\necho {name}:{slots(job)}" for name in running)])


def config_map(owner: Resource, job: MPIJob, data: Callable[[], Mapping[str, str]], version: str) -> Child:
    """Return the job's ConfigMap. It is written again when ``version`` changes."""
    body = partial(_config_map, owner, job, data)
    return Child(CONFIG_MAPS, config_name(job), body, WriteMode.APPLY, first=1, lasting=True, version=version)


def _container(job: MPIJob) -> str:
    """Return the option that selects the container. Validation ensures that the name contains no shell syntax."""
    return f" --container {job.spec.main_container}" if job.spec.main_container else ""


def _config_map(owner: Resource, job: MPIJob, data: Callable[[], Mapping[str, str]]) -> dict[str, Any]:
    return {
        "apiVersion": CONFIG_MAPS.api_version,
        "kind": CONFIG_MAPS.kind,
        "metadata": {
            "name": config_name(job),
            "labels": {"app": job.metadata.name, JOB_NAME: job.metadata.name},
            "ownerReferences": [owner_reference(owner, job)],
        },
        "data": dict(data()),
    }
