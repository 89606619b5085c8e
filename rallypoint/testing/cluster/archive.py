"""Container images as files for ``ctr images import`` (docker-archive), with folders as layers."""

import hashlib
import io
import json
import platform
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rallypoint.testing.controlplane.download import go_platform


@dataclass(frozen=True, slots=True)
class Image:
    """An image: name with tag, folders as layers, and what a container of it starts."""

    name: str
    layers: tuple[Path, ...]
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    folder: str = "/"
    """The working directory."""


def write(images: Sequence[Image], path: Path) -> Path:
    """Write images to one file, with each folder once; root owns all entries."""
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch, tarfile.open(path, "w") as archive:
        digests: dict[Path, str] = {}
        for folder in dict.fromkeys(folder for image in images for folder in image.layers):
            layer = _layer(folder, Path(scratch, "layer.tar"))
            digests[folder] = _digest(layer)
            archive.add(layer, _file(digests[folder]))
        manifest = []
        for number, image in enumerate(images):
            layers = [digests[folder] for folder in image.layers]
            _add(archive, f"{number}.json", _config(image, layers))
            entry = {"Config": f"{number}.json", "RepoTags": [image.name], "Layers": [*map(_file, layers)]}
            manifest.append(entry)
        _add(archive, "manifest.json", manifest)
    return path


def _file(digest: str) -> str:
    return f"{digest}.tar"


def _config(image: Image, digests: Sequence[str]) -> dict[str, Any]:
    system, architecture = go_platform(platform.system(), platform.machine())
    return {
        "architecture": architecture,
        "os": system,
        "config": {
            "User": image.user,
            "Env": [f"{name}={value}" for name, value in image.environment.items()],
            "Entrypoint": list(image.entrypoint),
            "Cmd": list(image.command),
            "WorkingDir": image.folder,
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
    }


def _layer(folder: Path, path: Path) -> Path:
    with tarfile.open(path, "w") as layer:
        for entry in sorted(folder.iterdir()):
            layer.add(entry, entry.name, filter=_of_root)
    return path


def _of_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    return member


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _add(archive: tarfile.TarFile, name: str, content: Any) -> None:
    raw = json.dumps(content).encode()
    member = tarfile.TarInfo(name)
    member.size = len(raw)
    archive.addfile(member, io.BytesIO(raw))
