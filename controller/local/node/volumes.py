"""The files of a pod's volumes, made in a folder of its own. Where a process sees them belongs to ``isolation``."""

import base64
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

from controller.local.node.environment import Reference, Unresolved

KNOWN = ("emptyDir", "configMap", "secret", "hostPath")

Contents: TypeAlias = Mapping[Reference, Mapping[str, bytes] | None]
"""The files of each ConfigMap and Secret; None where the object does not exist."""


@dataclass(frozen=True, slots=True)
class Mount:
    """One mounted volume of one container."""

    volume: str
    path: str
    """Where the manifest wants it."""
    place: Path
    """Where it is."""
    read_only: bool = False


def references(pod: Mapping[str, Any]) -> Iterator[Reference]:
    for volume in pod["spec"].get("volumes") or ():
        if chosen := volume.get("configMap"):
            yield Reference("configmap", chosen.get("name", ""))
        if chosen := volume.get("secret"):
            yield Reference("secret", chosen.get("secretName", ""))


def unknown(pod: Mapping[str, Any]) -> str:
    """Why a volume of this pod cannot be had here; empty when all can."""
    for volume in pod["spec"].get("volumes") or ():
        sources = [key for key in volume if key != "name"] or ["emptyDir"]
        if sources[0] not in KNOWN:
            return f'volume "{volume["name"]}" is a {sources[0]}, which local mode does not provide'
    there = {volume["name"] for volume in pod["spec"].get("volumes") or ()}
    for container in [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]:
        for mount in container.get("volumeMounts") or ():
            if mount["name"] not in there:
                name = container["name"]
                return f'container "{name}" mounts volume "{mount["name"]}", which the pod does not have'
    return ""


def make(
    pod: Mapping[str, Any], folder: Path, contents: Contents, rewrite: Callable[[str], str]
) -> dict[str, Path]:
    """Make the pod's volumes below ``folder``; ``rewrite`` is applied to the texts of ConfigMaps.

    Raises:
        Unresolved: a ConfigMap, a Secret or one of its keys does not exist, or a host path is not as it should be.
    """
    return {
        volume["name"]: _make(volume, folder / volume["name"], contents, rewrite)
        for volume in pod["spec"].get("volumes") or ()
    }


def mounts(container: Mapping[str, Any], places: Mapping[str, Path]) -> list[Mount]:
    """The mounts of a container; a missing folder of a ``subPath`` is made, as a kubelet does."""
    found: list[Mount] = []
    for mount in container.get("volumeMounts") or ():
        place = places[mount["name"]]
        if inside := mount.get("subPath"):
            place = place / inside
            if not place.exists():
                place.mkdir(parents=True)
        found.append(Mount(mount["name"], mount["mountPath"], place, bool(mount.get("readOnly"))))
    return found


def remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _make(volume: Mapping[str, Any], folder: Path, contents: Contents, rewrite: Callable[[str], str]) -> Path:
    if chosen := volume.get("hostPath"):
        return _host_path(volume["name"], chosen)
    folder.mkdir(parents=True, exist_ok=True)
    if (chosen := volume.get("configMap")) is not None:
        reference = Reference("configmap", chosen.get("name", ""))
        _fill(
            folder,
            chosen,
            _files(volume, chosen, reference, contents),
            lambda data: _rewritten(data, rewrite),
        )
    elif (chosen := volume.get("secret")) is not None:
        reference = Reference("secret", chosen.get("secretName", ""))
        _fill(folder, chosen, _files(volume, chosen, reference, contents), lambda data: data)
    return folder


def _files(
    volume: Mapping[str, Any], chosen: Mapping[str, Any], reference: Reference, contents: Contents
) -> Mapping[str, bytes]:
    files = contents.get(reference)
    if files is not None:
        return files
    if chosen.get("optional"):
        return {}
    name = volume["name"]
    raise Unresolved(
        f'MountVolume.SetUp failed for volume "{name}" : {reference.kind} "{reference.name}" not found'
    )


def _fill(
    folder: Path, chosen: Mapping[str, Any], files: Mapping[str, bytes], finish: Callable[[bytes], bytes]
) -> None:
    default = int(chosen.get("defaultMode") or 0o644)
    items = chosen.get("items") or [{"key": key, "path": key} for key in files]
    for item in items:
        if item["key"] not in files:
            if chosen.get("optional"):
                continue
            raise Unresolved(f"references non-existent config key: {item['key']}")
        if ".." in PurePosixPath(item["path"]).parts or item["path"].startswith("/"):
            raise Unresolved(f"path {item['path']} leaves its volume")
        file = folder / item["path"]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)  # A file that an earlier run left may be read-only.
        file.write_bytes(finish(files[item["key"]]))
        file.chmod(int(item.get("mode") or default))


def _rewritten(data: bytes, rewrite: Callable[[str], str]) -> bytes:
    try:
        return rewrite(data.decode()).encode()
    except UnicodeDecodeError:
        return data


def _host_path(name: str, chosen: Mapping[str, Any]) -> Path:
    path, kind = Path(chosen["path"]), chosen.get("type") or ""
    if kind == "DirectoryOrCreate":
        path.mkdir(parents=True, exist_ok=True)
    elif kind == "FileOrCreate":
        path.touch(exist_ok=True)
    elif (
        (kind == "Directory" and not path.is_dir())
        or (kind == "File" and not path.is_file())
        or not path.exists()
    ):
        raise Unresolved(
            f'MountVolume.SetUp failed for volume "{name}" : hostPath {path} is not a {kind or "path"}'
        )
    return path


def decoded(reference: Reference, manifest: Mapping[str, Any]) -> dict[str, bytes]:
    """The files that a ConfigMap or a Secret holds."""
    if reference.kind == "secret":
        return {key: base64.b64decode(value) for key, value in (manifest.get("data") or {}).items()}
    plain = {key: value.encode() for key, value in (manifest.get("data") or {}).items()}
    return plain | {key: base64.b64decode(value) for key, value in (manifest.get("binaryData") or {}).items()}
