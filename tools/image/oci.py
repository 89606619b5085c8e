"""OCI images as archives, written and read. Source: OCI image format specification 1.1."""

import io
import json
import tarfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from tools.image import ImageError
from tools.image.files import File, Folder, Link, Tree

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_INDEX = "application/vnd.oci.image.index.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
_NAMES = ("io.containerd.image.name", "org.opencontainers.image.ref.name")
"""The annotations in which containerd, and other readers, find the name under which they store an image."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer; ``diff_id`` is the digest of the uncompressed archive and ``size_bytes`` the size of that."""

    name: str
    content: bytes
    diff_id: str
    size_bytes: int

    @classmethod
    def of(cls, name: str, tree: Tree, compress: Callable[[bytes], bytes]) -> "Layer":
        archive = _tar(tree)
        return cls(name, compress(archive), digest(archive), len(archive))


@dataclass(frozen=True, slots=True)
class Image:
    """An image of one architecture: its blobs by digest, and the descriptor of its manifest."""

    architecture: str
    layers: tuple[Layer, ...]
    blobs: Mapping[str, bytes]
    descriptor: Mapping[str, Any]

    @property
    def digest(self) -> str:
        value: str = self.descriptor["digest"]
        return value


def assemble(
    architecture: str,
    layers: Sequence[Layer],
    settings: Mapping[str, Any],
    annotations: Mapping[str, str],
    created: str,
) -> Image:
    """Return the image of these layers; ``settings`` say what a container of it starts."""
    config = {
        "created": created,
        "architecture": architecture,
        "os": "linux",
        "config": {**settings, "Labels": dict(annotations)},
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
        "history": [{"created": created, "created_by": f"tools.image: {layer.name}"} for layer in layers],
    }
    blobs: dict[str, bytes] = {}
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": _add(blobs, _CONFIG, _json(config)),
        "layers": [_add(blobs, _LAYER, layer.content) for layer in layers],
        "annotations": dict(annotations),
    }
    descriptor = _add(blobs, _MANIFEST, _json(manifest))
    platform = {"architecture": architecture, "os": "linux"}
    return Image(architecture, tuple(layers), blobs, {**descriptor, "platform": platform})


def write(image: Image, path: Path, name: str) -> None:
    """Write the archive of one image, which containerd imports under this name."""
    _write_layout(image.blobs, image.descriptor, path, name)


def write_index(images: Sequence[Image], path: Path, name: str, annotations: Mapping[str, str]) -> str:
    """Write one archive with the images of all architectures; return the digest of their index."""
    blobs = {key: content for image in images for key, content in image.blobs.items()}
    index = {
        "schemaVersion": 2,
        "mediaType": _INDEX,
        "manifests": [dict(image.descriptor) for image in images],
        "annotations": dict(annotations),
    }
    descriptor = _add(blobs, _INDEX, _json(index))
    _write_layout(blobs, descriptor, path, name)
    return str(descriptor["digest"])


def full_name(name: str) -> str:
    """Return the name of an image with the registry and folder that a client adds to a short one."""
    first, slash, _ = name.partition("/")
    if not slash:
        return f"docker.io/library/{name}"
    return name if "." in first or ":" in first or first == "localhost" else f"docker.io/{name}"


def read(path: Path) -> tuple[dict[str, Any], list[Tree]]:
    """Return the configuration of the archive's image, and the files of each of its layers.

    Raises:
        ImageError: it is no OCI archive, has several images, a blob without its digest, or a file that does not belong to root.
    """
    try:
        with tarfile.open(path) as archive:
            contents = {
                member.name: file.read() for member in archive if (file := archive.extractfile(member))
            }
    except tarfile.TarError as error:
        raise ImageError(f"{path} is no OCI archive: {error}") from error
    if "index.json" not in contents:
        raise ImageError(f"{path} is no OCI archive: it has no index.json")

    def blob(descriptor: Mapping[str, Any]) -> bytes:
        content = contents[_path(descriptor["digest"])]
        if digest(content) != descriptor["digest"] or len(content) != descriptor["size"]:
            raise ImageError(f"{path}: a blob does not have its digest {descriptor['digest']}")
        return content

    (descriptor,) = json.loads(contents["index.json"])["manifests"]
    manifest = json.loads(blob(descriptor))
    if manifest["mediaType"] != _MANIFEST:
        raise ImageError(f"{path} has images of several architectures: read that of one")
    config: dict[str, Any] = json.loads(blob(manifest["config"]))
    layers = [zlib.decompress(blob(layer), 31) for layer in manifest["layers"]]
    if [digest(layer) for layer in layers] != config["rootfs"]["diff_ids"]:
        raise ImageError(f"{path}: a layer does not have the digest that its configuration names")
    return config, [_untar(layer) for layer in layers]


def digest(content: bytes) -> str:
    """Return the digest of a blob as OCI writes it."""
    return f"sha256:{sha256(content).hexdigest()}"


def _write_layout(blobs: Mapping[str, bytes], descriptor: Mapping[str, Any], path: Path, name: str) -> None:
    reference = {**descriptor, "annotations": dict.fromkeys(_NAMES, full_name(name))}
    index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": [reference]}
    tree: Tree = {
        "oci-layout": File(_json({"imageLayoutVersion": "1.0.0"})),
        "index.json": File(_json(index)),
        **{_path(key): File(content) for key, content in blobs.items()},
    }
    path.write_bytes(_tar(tree))


def _add(blobs: dict[str, bytes], media_type: str, content: bytes) -> dict[str, Any]:
    key = digest(content)
    blobs[key] = content
    return {"mediaType": media_type, "digest": key, "size": len(content)}


def _path(key: str) -> str:
    return f"blobs/{key.replace(':', '/')}"


def _json(content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":"), sort_keys=True).encode()


def _tar(tree: Tree) -> bytes:
    """Return a tar archive whose bytes depend on the files only: sorted, of root, of the time 0."""
    folders = {
        "/".join(parts[:end]): Folder()
        for parts in (path.split("/") for path in tree)
        for end in range(1, len(parts))
    }
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, entry in sorted({**folders, **tree}.items()):
            member = tarfile.TarInfo(path)
            content = b""
            match entry:
                case File(content, executable):
                    member.mode, member.size = 0o755 if executable else 0o644, len(content)
                case Link(target):
                    member.type, member.mode, member.linkname = tarfile.SYMTYPE, 0o777, target
                case Folder(mode):
                    member.type, member.mode = tarfile.DIRTYPE, mode
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def _untar(content: bytes) -> Tree:
    tree: Tree = {}
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            if member.uid or member.gid or member.mode & 0o6000:
                raise ImageError(f"/{member.name} does not belong to root, or changes the user")
            if file := archive.extractfile(member) if member.isfile() else None:
                tree[member.name] = File(file.read(), executable=bool(member.mode & 0o100))
            elif member.issym():
                tree[member.name] = Link(member.linkname)
            else:
                tree[member.name] = Folder(member.mode)
    return tree
