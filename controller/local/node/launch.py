"""From a container's spec to the process that stands for it: environment, command line, working directory. Pure."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from controller.local.manifest import Manifest, containers
from controller.local.node.environment import Variable
from controller.local.node.expansion import expand
from controller.local.node.gpus import CUDA
from controller.local.node.gpus import variables as gpu_variables
from controller.local.node.isolation import Isolation
from controller.local.node.process import Launch
from controller.local.node.remote.tools import is_delivery
from controller.local.node.volumes import Mount

KUBECONFIG = "KUBECONFIG"
LONGEST_HOST_NAME = 63
CONTAINER_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ALLOW_ROOT = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
"""Without these, mpirun refuses to start for root."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What a container begins from: this machine as a person has it, or an image."""

    env: Mapping[str, str]
    folder: str
    """The working directory when the manifest names none."""
    image: Path | None = None


def launch(
    pod: Manifest,
    container: Manifest,
    found: Mapping[str, Variable],
    mounts: Sequence[Mount],
    *,
    ground: Ground,
    gpus: Sequence[str] | None = None,
    isolation: Isolation,
) -> Launch:
    """The process to start; the pod's variables (``found``) go over those of the ground."""
    values = isolation.variables(pod, found, mounts)
    written = [*container["command"], *(container.get("args") or ())]
    argv = [expand(isolation.paths(part, mounts), values) for part in written]
    folder = isolation.paths(container.get("workingDir") or ground.folder, mounts)
    env = {**ground.env, "HOSTNAME": host_name(pod), **values, **gpu_variables(gpus, values.get(CUDA))}
    return isolation.place(pod, Launch(argv, env, folder, mounts, ground.image))


def of_image(folder: Path, user: int) -> Ground:
    """What an image without a config gives: a container's default variables, and nothing of the person's."""
    users = folder / "etc" / "passwd"
    lines = users.read_text(errors="replace").splitlines() if users.is_file() else []
    homes = {fields[2]: fields[5] for fields in (line.split(":") for line in lines) if len(fields) > 5}
    return Ground({"PATH": CONTAINER_PATH, "HOME": homes.get(str(user)) or "/"}, "/", folder)


def beside(pod: Manifest, begun: Launch, command: Sequence[str], isolation: Isolation) -> Launch:
    """One more process for a container that ``begun`` started, with the environment of that one.

    Nothing of a command is expanded here; its first reader is the program itself.
    """
    argv = [isolation.paths(part, begun.mounts) for part in command]
    return isolation.place(pod, replace(begun, argv=argv))


def host_name(pod: Manifest) -> str:
    """Source: Kubernetes, pkg/kubelet/kubelet_pods.go, truncatePodHostnameIfNeeded."""
    name: str = pod["spec"].get("hostname") or pod["metadata"]["name"]
    return name[:LONGEST_HOST_NAME].rstrip("-.")


def refusal(pod: Manifest) -> str:
    """Why no process can stand for one of the pod's containers; empty when all have a command.

    An image's own command is unknown, because images are not pulled.
    """
    for container in containers(pod):
        if not container.get("command") and not is_delivery(container):
            return (
                f'container "{container["name"]}" has no command; the one of image {container.get("image", "")} is '
                "unknown here, because images are not pulled"
            )
    return ""


def of_person(environment: Mapping[str, str], python: str, *, is_root: bool = False) -> dict[str, str]:
    """The environment that pods start from: the person's own, with ``python`` (an interpreter) first on PATH.

    Clusters of the person's are not the pod's. A console script runs without its virtual environment being active; ``python`` in a manifest still means it. For
    root, Open MPI is told that this is meant, as images do whose user is root.
    """
    folder = str(Path(python).parent)
    allowed = dict.fromkeys(ALLOW_ROOT, "1") if is_root else {}
    path = {"PATH": folder + os.pathsep + environment.get("PATH", os.defpath)}
    return {name: value for name, value in (allowed | {**environment, **path}).items() if name != KUBECONFIG}
