"""Sets up the volumes of a pod in a folder of its own; the isolation mounts them.

``projected`` builds the files of projected volumes; ``storage`` provides the paths of claims.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from rallypoint.local.manifest import containers
from rallypoint.local.node.volumes import atomic_writer, projected
from rallypoint.local.node.volumes.host_path import host_path
from rallypoint.local.node.volumes.projected import ProjectionSources
from rallypoint.local.node.volumes.references import Reference

CLAIMED = ("persistentVolumeClaim", "ephemeral")
KNOWN = ("emptyDir", "hostPath", *projected.PROJECTED_KINDS, *CLAIMED)
PROJECTED = ("configMap", "secret", "downwardAPI", "serviceAccountToken")
MEDIA = ("", "Memory")


@dataclass(frozen=True, slots=True)
class Volume:
    """The path and the properties of a volume."""

    path: Path
    read_only: bool = False
    is_projected: bool = False
    in_memory: bool = False
    """On a tmpfs if the isolation has one; then its files are invisible outside of the pod."""


Volumes: TypeAlias = Mapping[str, Volume]
"""The volumes of a pod by name."""


@dataclass(frozen=True, slots=True)
class Mount:
    """One mounted volume of one container."""

    volume: str
    path: str
    """The mount path of the manifest."""
    source: Path
    """The path on this machine."""
    read_only: bool = False
    within: Path | None = None
    """``source`` must resolve to a path inside this volume."""


def references(pod: Mapping[str, Any]) -> Iterator[Reference]:
    for volume in pod["spec"].get("volumes") or ():
        yield from projected.references(volume)


def unsupported(pod: Mapping[str, Any]) -> str:
    """Return why a volume of this pod is unsupported; empty if all are supported."""
    volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes") or ()}
    for volume in volumes.values():
        if kind := _unsupported_kind(volume):
            return f'volume "{volume["name"]}" is a {kind}, which local mode does not provide'
    for container in containers(pod):
        if devices := container.get("volumeDevices"):
            name = devices[0]["name"]
            return f'volume "{name}" is wanted as a block device, which local mode does not provide'
        for mount in container.get("volumeMounts") or ():
            if mount["name"] not in volumes:
                name = container["name"]
                return f'container "{name}" mounts volume "{mount["name"]}", which the pod does not have'
            if mount.get("mountPropagation") == "Bidirectional":
                return (
                    f'volume "{mount["name"]}" is mounted with mountPropagation Bidirectional, which local mode does not '
                    "provide"
                )
    return ""


def _unsupported_kind(volume: Mapping[str, Any]) -> str:
    kind = next((key for key in volume if key != "name"), "emptyDir")
    if kind not in KNOWN:
        return kind
    medium = (volume.get("emptyDir") or {}).get("medium") or ""
    if medium not in MEDIA:
        return f"{kind} of medium {medium}"
    sources = (volume.get("projected") or {}).get("sources") or ()
    return next((f"projected {key}" for source in sources for key in source if key not in PROJECTED), "")


def make(
    pod: Mapping[str, Any], folder: Path, sources: ProjectionSources, claimed: Volumes
) -> dict[str, Volume]:
    """Create the pod's volumes in ``folder``; ``claimed`` are those of claims.

    Raises:
        Unresolved: a required object or key does not exist, or a host path fails its type check.
    """
    return {
        volume["name"]: claimed.get(volume["name"]) or _make(volume, folder / volume["name"], sources)
        for volume in pod["spec"].get("volumes") or ()
    }


def refresh(pod: Mapping[str, Any], folder: Path, sources: ProjectionSources) -> bool:
    """Update projected volumes; return whether anything changed.

    Raises:
        Unresolved: a required object no longer exists; later volumes of the pod are not updated.
    """
    filled = [volume for volume in pod["spec"].get("volumes") or () if projected.is_projected(volume)]
    changed = [
        atomic_writer.write(folder / volume["name"], projected.files(volume, sources)) for volume in filled
    ]
    return any(changed)


def _make(volume: Mapping[str, Any], folder: Path, sources: ProjectionSources) -> Volume:
    if chosen := volume.get("hostPath"):
        return Volume(host_path(volume["name"], chosen))
    if projected.is_projected(volume):
        atomic_writer.write(folder, projected.files(volume, sources))
        return Volume(folder, read_only=True, is_projected=True)
    folder.mkdir(parents=True, exist_ok=True)
    return Volume(folder, in_memory=(volume.get("emptyDir") or {}).get("medium") == "Memory")
