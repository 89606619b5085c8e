"""The mounts of a container, with subPath and subPathExpr.

Source: Kubernetes, pkg/kubelet/kubelet_pods.go, makeMounts; pkg/kubelet/container/helpers.go, ExpandContainerVolumeMounts.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from rallypoint.local.node.containers.expansion import expand
from rallypoint.local.node.volumes.references import Unresolved
from rallypoint.local.node.volumes.setup import Mount, Volumes


def mounts(
    container: Mapping[str, Any], volumes: Volumes, values: Mapping[str, str], copies: Path
) -> list[Mount]:
    """``values`` are the container's variables, which ``subPathExpr`` names; ``copies`` is a folder for copies.

    A subpath of a projected volume is copied, because it does not follow later updates.

    Raises:
        Unresolved: a subpath cannot be prepared.
    """
    shutil.rmtree(copies, ignore_errors=True)
    found: list[Mount] = []
    for number, mount in enumerate(container.get("volumeMounts") or ()):
        volume = volumes[mount["name"]]
        inside = _inside(container, mount, values)
        source, within = volume.path / inside, volume.path
        if inside and not volume.in_memory:
            _make(container, mount, volume.path, source)
        if inside and volume.is_projected:
            source = within = _copied(source, copies / str(number))
        read_only = bool(mount.get("readOnly")) or volume.read_only
        found.append(Mount(mount["name"], mount["mountPath"], source, read_only, within))
    return found


def _inside(container: Mapping[str, Any], mount: Mapping[str, Any], values: Mapping[str, str]) -> str:
    path = str(mount.get("subPath") or "")
    if written := mount.get("subPathExpr"):
        try:
            path = expand(written, values, strict=True)
        except KeyError as error:
            reason = f'missing value for "{error.args[0]}"'
            raise Unresolved(f"failed to expand subPath for {_about(container, mount)}: {reason}") from error
    if path.startswith("/") or ".." in PurePosixPath(path).parts:
        raise Unresolved(f"subPath {path} of {_about(container, mount)} leaves its volume")
    return path


def _make(container: Mapping[str, Any], mount: Mapping[str, Any], volume: Path, source: Path) -> None:
    """Create the folder if it is missing; refuse a path outside of the volume."""
    try:
        if source.resolve().is_relative_to(volume.resolve()):
            if not source.exists():
                source.mkdir(parents=True)
            return
    except (OSError, RuntimeError):  # RuntimeError: a loop of symbolic links.
        pass
    raise Unresolved(f"failed to prepare subPath for {_about(container, mount)}")


def _copied(source: Path, copy: Path) -> Path:
    copy.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, copy)
    else:
        shutil.copy2(source, copy)
    return copy


def _about(container: Mapping[str, Any], mount: Mapping[str, Any]) -> str:
    return f'volumeMount "{mount["name"]}" of container "{container["name"]}"'
