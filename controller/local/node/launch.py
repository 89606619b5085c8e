"""From a container's spec to the process that stands for it: environment, command line, working directory. Pure."""

import os
from collections.abc import Mapping
from pathlib import Path

from controller.local.manifest import Manifest
from controller.local.node.environment import Place, Sources, variables
from controller.local.node.expansion import expand
from controller.local.node.isolation import Isolation
from controller.local.node.process import Launch
from controller.local.node.volumes import Mount

LONGEST_HOST_NAME = 63


def launch(
    pod: Manifest,
    container: Manifest,
    *,
    place: Place,
    sources: Sources,
    mounts: list[Mount],
    person: Mapping[str, str],
    isolation: Isolation,
) -> Launch:
    """The process to start. ``person`` is the environment of whoever started the node; the pod's goes over it.

    Raises:
        Unresolved: a variable has no value (yet).
    """
    values = isolation.variables(pod, variables(pod, container, place, sources), mounts)
    written = [*container["command"], *(container.get("args") or ())]
    argv = [expand(isolation.paths(part, mounts), values) for part in written]
    folder = isolation.paths(container.get("workingDir") or str(Path.cwd()), mounts)
    env = {**person, "HOSTNAME": host_name(pod), **values}
    return isolation.place(pod, Launch(argv, env, folder, mounts))


def host_name(pod: Manifest) -> str:
    """Source: Kubernetes, pkg/kubelet/kubelet_pods.go, truncatePodHostnameIfNeeded."""
    name: str = pod["spec"].get("hostname") or pod["metadata"]["name"]
    return name[:LONGEST_HOST_NAME].rstrip("-.")


def refusal(pod: Manifest) -> str:
    """Why no process can stand for one of the pod's containers; empty when all have a command.

    An image's own command is unknown, because images are not pulled.
    """
    for container in [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]:
        if not container.get("command"):
            return (
                f'container "{container["name"]}" has no command; the one of image {container.get("image", "")} is '
                "unknown here, because images are not pulled"
            )
    return ""


def of_person(environment: Mapping[str, str], python: str) -> dict[str, str]:
    """The environment that pods start from: the person's own, with ``python`` (an interpreter) first on PATH.

    A console script runs without its virtual environment being active; ``python`` in a manifest still means it.
    """
    folder = str(Path(python).parent)
    return {**environment, "PATH": folder + os.pathsep + environment.get("PATH", os.defpath)}
