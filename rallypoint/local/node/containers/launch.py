"""Builds the process of a container from its spec: environment, command line, working directory. Pure."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rallypoint.local.manifest import Manifest, containers
from rallypoint.local.node.containers.environment import Variable, expand
from rallypoint.local.node.containers.guard import POD
from rallypoint.local.node.containers.images import Image, command_line
from rallypoint.local.node.containers.process import Launch
from rallypoint.local.node.gpus import CUDA
from rallypoint.local.node.gpus import variables as gpu_variables
from rallypoint.local.node.remote.tools import is_delivery
from rallypoint.local.node.sandbox.isolation import Isolation
from rallypoint.local.node.volumes.setup import Mount

KUBECONFIG = "KUBECONFIG"
MAX_HOST_NAME_LENGTH = 63
ALLOW_ROOT = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
"""Without these, mpirun refuses to start for root."""


RENDEZVOUS = ("PET_RDZV_BACKEND", "c10d")
"""The variable of an elastic PyTorchJob whose torchrun keeps a store."""
NEW_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
"""Makes torchrun open a store for each round. It otherwise keeps the first round's, whose addresses are wrong once workers come or go."""


@dataclass(frozen=True, slots=True)
class BaseEnvironment:
    """The environment before the pod's own variables: the user's on this machine, or an image's."""

    env: Mapping[str, str]
    folder: str
    """The default working directory."""
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
    """Return the process to start. The pod's variables (``found``) override those of ``base``.

    A relative ``workingDir`` starts at the folder of ``base``. Only this environment, not the pod, gets ``NEW_STORE``.
    """
    values = isolation.variables(pod, found, mounts)
    command = command_line(container, base.image)
    argv = [expand(isolation.paths(part, mounts), values) for part in command]
    folder = isolation.paths(str(Path(base.folder, container.get("workingDir") or "")), mounts)
    elastic = {NEW_STORE: "1"} if RENDEZVOUS in values.items() else {}
    env = {
        **elastic,
        **base.env,
        "HOSTNAME": host_name(pod),
        **values,
        **gpu_variables(gpus, values.get(CUDA)),
        POD: pod["metadata"]["uid"],  # A manifest cannot set it.
    }
    return isolation.adapt(pod, Launch(argv, env, folder, mounts, base.image.folder if base.image else None))


def image_environment(image: Image, user: int, machine: BaseEnvironment) -> BaseEnvironment:
    """Return the environment of an image. An image without a root file system extends this machine's environment."""
    folder = machine.folder if image.folder is None else "/"
    return BaseEnvironment(image.environment(user, machine.env), image.working_dir or folder, image)


def exec_launch(pod: Manifest, started: Launch, command: Sequence[str], isolation: Isolation) -> Launch:
    """Return a further process for the container of ``started``, with the same environment.

    The command is not expanded.
    """
    argv = [isolation.paths(part, started.mounts) for part in command]
    return isolation.adapt(pod, replace(started, argv=argv))


def host_name(pod: Manifest) -> str:
    """Source: Kubernetes, pkg/kubelet/kubelet_pods.go, truncatePodHostnameIfNeeded."""
    name: str = pod["spec"].get("hostname") or pod["metadata"]["name"]
    return name[:MAX_HOST_NAME_LENGTH].rstrip("-.")


def rejection(pod: Manifest, image_of: Callable[[str], Image | None]) -> str:
    """Return why a container of the pod has no command; empty if all have one."""
    for container in containers(pod):
        name = container.get("image", "")
        image = image_of(name)
        if command_line(container, image) or is_delivery(container):
            continue
        if image is None or image.config is None:
            why = f"the command of image {name} is unknown, because images are not pulled; set command, or start with --image {name}=CONFIG"
        else:
            why = f"the config of image {name} has no command either; set command"
        return f'container "{container["name"]}" has no command; {why}'
    return ""


def user_environment(environment: Mapping[str, str], python: str, *, is_root: bool = False) -> dict[str, str]:
    """Return the environment that pods start from: the user's own, with the folder of ``python`` first on PATH.

    ``python`` in a manifest is then the interpreter of this command, even if its virtual environment is not active.
    KUBECONFIG is removed. For root, Open MPI gets the variables that allow it, as in images whose user is root.
    """
    folder = str(Path(python).parent)
    allowed = dict.fromkeys(ALLOW_ROOT, "1") if is_root else {}
    path = {"PATH": folder + os.pathsep + environment.get("PATH", os.defpath)}
    return {name: value for name, value in (allowed | {**environment, **path}).items() if name != KUBECONFIG}
