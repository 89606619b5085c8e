"""Sets up the volumes of a pod in its own folder; the isolation mounts them.

``projected`` builds the files of projected volumes; ``storage`` provides the paths of claims.

Source: Kubernetes, pkg/volume/hostpath/host_path.go, pkg/volume/util/atomic_writer.go.
"""

import contextlib
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from rallypoint.local.manifest import containers
from rallypoint.local.node.volumes import projected
from rallypoint.local.node.volumes.projected import Files, ProjectionSources
from rallypoint.local.node.volumes.references import Reference, Unresolved

CLAIMED = ("persistentVolumeClaim", "ephemeral")
KNOWN = ("emptyDir", "hostPath", *projected.PROJECTED_KINDS, *CLAIMED)
PROJECTED = ("configMap", "secret", "downwardAPI", "serviceAccountToken")
MEDIA = ("", "Memory")
_HOST_PATH_CHECKS: Mapping[str, tuple[Callable[[int], bool], str]] = {
    "Directory": (stat.S_ISDIR, "a directory"),
    "DirectoryOrCreate": (stat.S_ISDIR, "a directory"),
    "File": (stat.S_ISREG, "a file"),
    "FileOrCreate": (stat.S_ISREG, "a file"),
    "Socket": (stat.S_ISSOCK, "a socket file"),
    "CharDevice": (stat.S_ISCHR, "a character device"),
    "BlockDevice": (stat.S_ISBLK, "a block device"),
}
_OWNER_ACCESS = 0o700
DATA = "..data"
"""The symbolic link of a projected volume to the folder with its current files."""


@dataclass(frozen=True, slots=True)
class Volume:
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
            return f'volume "{name}" is requested as a block device, which local mode does not provide'
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
        write_atomically(folder / volume["name"], projected.files(volume, sources)) for volume in filled
    ]
    return any(changed)


def _make(volume: Mapping[str, Any], folder: Path, sources: ProjectionSources) -> Volume:
    if chosen := volume.get("hostPath"):
        return Volume(host_path(volume["name"], chosen))
    if projected.is_projected(volume):
        write_atomically(folder, projected.files(volume, sources))
        return Volume(folder, read_only=True, is_projected=True)
    folder.mkdir(parents=True, exist_ok=True)
    return Volume(folder, in_memory=(volume.get("emptyDir") or {}).get("medium") == "Memory")


def host_path(volume: str, chosen: Mapping[str, Any]) -> Path:
    """Return the path of a hostPath volume; create it if its type says so or, as a folder, if it has no type.

    A relative path starts at this process's working directory.

    Raises:
        Unresolved: the path has another type or cannot be created.
    """
    path, kind = Path(chosen["path"]).absolute(), chosen.get("type") or ""
    failed = f'MountVolume.SetUp failed for volume "{volume}" : '
    try:
        if kind in ("", "DirectoryOrCreate") and not path.exists():
            path.mkdir(mode=0o755, parents=True)
        elif kind == "FileOrCreate" and not path.exists():
            path.touch(mode=0o644)
        mode = path.stat().st_mode if path.exists() else 0
    except OSError as error:
        raise Unresolved(f"{failed}{path}: {error.strerror}") from error
    if kind:
        fits, words = _HOST_PATH_CHECKS[kind]
        if not fits(mode):
            raise Unresolved(f"{failed}hostPath type check failed: {path} is not {words}")
    return path


def remove_tree(folder: Path) -> None:
    """Remove a folder tree. Make inaccessible folders in it accessible first.

    Programs create such folders, and so does an overlay mount; without root they could not be removed.
    """
    for path, folders, _ in os.walk(folder):
        for name in folders:
            inner = Path(path, name)
            with contextlib.suppress(OSError):
                if not inner.is_symlink() and inner.stat().st_mode & _OWNER_ACCESS != _OWNER_ACCESS:
                    inner.chmod(_OWNER_ACCESS)
    shutil.rmtree(folder, ignore_errors=True)


def write_atomically(folder: Path, files: Files) -> bool:
    """Make ``folder`` hold exactly ``files``; return whether anything changed.

    Readers see either all old files or all new files: the visible names are symbolic links into ``..data``, and a
    rename replaces that link.
    """
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / DATA
    before = data.readlink() if data.is_symlink() else None
    if before is not None and _is_up_to_date(folder / before, files):
        return False
    now = folder / f"..{secrets.token_hex(6)}"
    _write_files(now, files)
    visible = {path.partition("/")[0] for path in files}
    temporary = folder / "..data_tmp"
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(now.name)
    temporary.rename(data)
    for name in visible:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"{DATA}/{name}")
    for entry in folder.iterdir():
        if entry.is_symlink() and entry.name != DATA and entry.name not in visible:
            entry.unlink()
    if before is not None:
        shutil.rmtree(folder / before, ignore_errors=True)
    return True


def _write_files(folder: Path, files: Files) -> None:
    folder.mkdir()
    for path, file in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.data)
        target.chmod(file.mode)


def _is_up_to_date(folder: Path, files: Files) -> bool:
    existing = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return existing.keys() == {str(Path(path)) for path in files} and all(
        existing[str(Path(path))].stat().st_mode & 0o7777 == file.mode
        and existing[str(Path(path))].read_bytes() == file.data
        for path, file in files.items()
    )
