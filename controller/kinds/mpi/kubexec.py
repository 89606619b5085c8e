"""What MPI reads where ranks are started by ``kubectl exec``: the hostfile, the agent that takes the place of ssh, the list of hosts.

All of it is in one ConfigMap of the job; v1 and v1alpha2 write it alike. The pods that mount it are in ``execpods``.

Source: training-operator 1.9, pkg/controller.v1/mpi/mpijob_controller.go; mpi-operator 0.3, pkg/controllers/v1alpha2.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from api.job import owner_reference
from api.labels import JOB_NAME
from api.meta import CONFIG_MAPS, Resource
from api.mpijob import MPIJob
from controller.domain import Child, Role, Upkeep
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
    """Whether a container of the launcher has a limit on GPUs; then ranks run on the launcher, too."""
    containers = (launcher.template.get("spec") or {}).get("containers") or ()
    limits = (
        name for container in containers for name in (container.get("resources") or {}).get("limits") or {}
    )
    return any("gpu" in name for name in limits)


def hosts(job: MPIJob, launcher: Role, workers: Iterable[int]) -> Iterator[str]:
    """The names of all hosts with ranks: those workers, in that order, after a launcher with GPUs."""
    if has_gpus(launcher):
        yield launcher_name(job)
    for index in workers:
        yield worker_name(job, index)


def hostfile(names: Iterable[str], count: int, separator: str = " slots=") -> str:
    """One host a line with its slots, as Open MPI reads it; others want ``:`` in separator."""
    return "".join(f"{name}{separator}{count}\n" for name in names)


def agent(job: MPIJob) -> str:
    """The script that mpirun calls in place of ssh: with a pod's name, then what to run there."""
    return _AGENT.format(container=_container(job))


def hydra_agent(job: MPIJob) -> str:
    """The same for Intel MPI and MPICH, which call it with options of ssh, and whose ranks ask for the launcher by its name.

    That name is written into the worker's hosts, if the user there may write it.

    Differs: the original copies a file of all hosts into each pod, which its init container had to watch all pods for. See
    docs/decisions/0021-mpijob-v1alpha2.md.
    """
    return _HYDRA_AGENT.format(container=_container(job))


def discovery(job: MPIJob, launcher: Role, running: Iterable[str]) -> str:
    """The script that tells elastic Horovod which hosts there are; ``running`` are workers, in their order.

    Differs: the original sorts names as text, worker 10 before worker 2. See docs/decisions/0020-mpijob-v1.md.
    """
    lines = [f"\necho {launcher_name(job)}:{slots(job)}\n"] if has_gpus(launcher) else []
    return "".join(["#!/bin/sh", *lines, *(f"\necho {name}:{slots(job)}" for name in running)])


def config_map(owner: Resource, job: MPIJob, data: Callable[[], Mapping[str, str]], version: str) -> Child:
    """The job's ConfigMap, kept equal to that; another version says other things."""
    body = partial(_config_map, owner, job, data)
    return Child(CONFIG_MAPS, config_name(job), body, Upkeep.EQUAL, first=1, lasting=True, version=version)


def _container(job: MPIJob) -> str:
    """The option that chooses the container; the name is checked before, so that it can hold no command."""
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
