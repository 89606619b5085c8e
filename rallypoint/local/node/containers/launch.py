"""From a container's spec to the process that stands for it: environment, command line, working directory. Pure."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rallypoint.local.manifest import Manifest, containers
from rallypoint.local.node.containers.environment import Variable
from rallypoint.local.node.containers.expansion import expand
from rallypoint.local.node.containers.images import Image, command_line
from rallypoint.local.node.containers.process import Launch
from rallypoint.local.node.devices.gpus import CUDA
from rallypoint.local.node.devices.gpus import variables as gpu_variables
from rallypoint.local.node.remote.tools import is_delivery
from rallypoint.local.node.sandbox.isolation import Isolation
from rallypoint.local.node.volumes.setup import Mount

KUBECONFIG = "KUBECONFIG"
LONGEST_HOST_NAME = 63
ALLOW_ROOT = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
"""Without these, mpirun refuses to start for root."""


@dataclass(frozen=True, slots=True)
class BaseEnvironment:
    """What a container begins from: this machine as a person has it, or an image."""

    env: Mapping[str, str]
    folder: str
    """The working directory when the manifest names none."""
    image: Image | None = None


def launch(
    pod: Manifest,
    container: Manifest,
    found: Mapping[str, Variable],
    mounts: Sequence[Mount],
    *,
    base: BaseEnvironment,
    gpus: Sequence[str] | None = None,
    isolation: Isolation,
) -> Launch:
    """The process to start; the pod's variables (``found``) go over those of the ground."""
    values = isolation.variables(pod, found, mounts)
    written = command_line(container, base.image)
    argv = [expand(isolation.paths(part, mounts), values) for part in written]
    folder = isolation.paths(container.get("workingDir") or base.folder, mounts)
    env = {**base.env, "HOSTNAME": host_name(pod), **values, **gpu_variables(gpus, values.get(CUDA))}
    return isolation.adapt(pod, Launch(argv, env, folder, mounts, base.image.folder if base.image else None))


def image_environment(image: Image, user: int, machine: BaseEnvironment) -> BaseEnvironment:
    """What an image gives. One without a root file system of its own adds to what this machine gives."""
    folder = machine.folder if image.folder is None else "/"
    return BaseEnvironment(image.environment(user, machine.env), image.working_dir or folder, image)


def exec_launch(pod: Manifest, started: Launch, command: Sequence[str], isolation: Isolation) -> Launch:
    """One more process for a container that ``started`` started, with the environment of that one.

    Nothing of a command is expanded here; its first reader is the program itself.
    """
    argv = [isolation.paths(part, started.mounts) for part in command]
    return isolation.adapt(pod, replace(started, argv=argv))


def host_name(pod: Manifest) -> str:
    """Source: Kubernetes, pkg/kubelet/kubelet_pods.go, truncatePodHostnameIfNeeded."""
    name: str = pod["spec"].get("hostname") or pod["metadata"]["name"]
    return name[:LONGEST_HOST_NAME].rstrip("-.")


def rejection(pod: Manifest, image_of: Callable[[str], Image | None]) -> str:
    """Why no process can stand for one of the pod's containers; empty when all have a command."""
    for container in containers(pod):
        name = container.get("image", "")
        image = image_of(name)
        if command_line(container, image) or is_delivery(container):
            continue
        if image is None or image.config is None:
            why = f"the one of image {name} is unknown here, because images are not pulled"
        else:
            why = f"the config of image {name} gives none either"
        return f'container "{container["name"]}" has no command; {why}'
    return ""


def user_environment(environment: Mapping[str, str], python: str, *, is_root: bool = False) -> dict[str, str]:
    """The environment that pods start from: the person's own, with ``python`` (an interpreter) first on PATH.

    Clusters of the person's are not the pod's. A console script runs without its virtual environment being active; ``python`` in a manifest still means it. For
    root, Open MPI is told that this is meant, as images do whose user is root.
    """
    folder = str(Path(python).parent)
    allowed = dict.fromkeys(ALLOW_ROOT, "1") if is_root else {}
    path = {"PATH": folder + os.pathsep + environment.get("PATH", os.defpath)}
    return {name: value for name, value in (allowed | {**environment, **path}).items() if name != KUBECONFIG}
