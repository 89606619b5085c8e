"""The volumes of a pod, made in a folder of its own. Where a process sees them belongs to ``isolation``.

What is in those that objects fill is ``payload``'s matter; the places of claims are given by ``storage``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from rallypoint.local.manifest import containers
from rallypoint.local.node.volumes import atomic, payload
from rallypoint.local.node.volumes.hostpath import host_path
from rallypoint.local.node.volumes.objects import Reference
from rallypoint.local.node.volumes.payload import Given

CLAIMED = ("persistentVolumeClaim", "ephemeral")
KNOWN = ("emptyDir", "hostPath", *payload.FILLED, *CLAIMED)
PROJECTED = ("configMap", "secret", "downwardAPI", "serviceAccountToken")
MEDIA = ("", "Memory")


@dataclass(frozen=True, slots=True)
class Volume:
    """Where a volume is, and what it is like."""

    path: Path
    read_only: bool = False
    is_filled: bool = False
    in_memory: bool = False
    """Its files are in memory where the isolation has a file system for that; then nobody outside sees them."""


Places: TypeAlias = Mapping[str, Volume]
"""The volumes of a pod by name."""


@dataclass(frozen=True, slots=True)
class Mount:
    """One mounted volume of one container."""

    volume: str
    path: str
    """Where the manifest wants it."""
    place: Path
    """Where it is."""
    read_only: bool = False
    within: Path | None = None
    """The volume that ``place`` must not leave, whatever links are in it."""


def references(pod: Mapping[str, Any]) -> Iterator[Reference]:
    for volume in pod["spec"].get("volumes") or ():
        yield from payload.references(volume)


def unknown(pod: Mapping[str, Any]) -> str:
    """Why a volume of this pod cannot be had here; empty when all can."""
    volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes") or ()}
    for volume in volumes.values():
        if kind := _unknown_kind(volume):
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


def _unknown_kind(volume: Mapping[str, Any]) -> str:
    kind = next((key for key in volume if key != "name"), "emptyDir")
    if kind not in KNOWN:
        return kind
    medium = (volume.get("emptyDir") or {}).get("medium") or ""
    if medium not in MEDIA:
        return f"{kind} of medium {medium}"
    sources = (volume.get("projected") or {}).get("sources") or ()
    return next((f"projected {key}" for source in sources for key in source if key not in PROJECTED), "")


def make(pod: Mapping[str, Any], folder: Path, given: Given, claimed: Places) -> dict[str, Volume]:
    """Make the pod's volumes below ``folder``; ``claimed`` are those of claims.

    Raises:
        Unresolved: a ConfigMap, a Secret or one of its keys does not exist, or a host path is not as it should be.
    """
    return {
        volume["name"]: claimed.get(volume["name"]) or _make(volume, folder / volume["name"], given)
        for volume in pod["spec"].get("volumes") or ()
    }


def refill(pod: Mapping[str, Any], folder: Path, given: Given) -> bool:
    """Bring what is in filled volumes up to date; whether anything has changed.

    Raises:
        Unresolved: something that they need does not exist any more; what follows in the pod is left as it was.
    """
    filled = [volume for volume in pod["spec"].get("volumes") or () if payload.is_filled(volume)]
    changed = [atomic.write(folder / one["name"], payload.files(one, given)) for one in filled]
    return any(changed)


def _make(volume: Mapping[str, Any], folder: Path, given: Given) -> Volume:
    if chosen := volume.get("hostPath"):
        return Volume(host_path(volume["name"], chosen))
    if payload.is_filled(volume):
        atomic.write(folder, payload.files(volume, given))
        return Volume(folder, read_only=True, is_filled=True)
    folder.mkdir(parents=True, exist_ok=True)
    return Volume(folder, in_memory=(volume.get("emptyDir") or {}).get("medium") == "Memory")
