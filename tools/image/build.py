"""Composes the image: layers, settings, archives, bill of materials, and the checks of all of them."""

import json
import os
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import Message
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from controller.telemetry.build import COMMIT_VARIABLE
from rallypoint.testing import environment
from rallypoint.testing.controlplane import binaries
from tools.image import ImageError, debian, elf, oci, sbom, wheels
from tools.image.files import Component, File, Link, Tree
from tools.image.interpreter import Interpreter, host_architecture
from tools.image.start import IMPORT_ALL, Container, emulator
from tools.python import image_version

ROOT = Path(__file__).parents[2]
USER = "65532:65532"
PORTS = (8080, 8081)
ENTRYPOINT = ("python", "-m", "controller")
ENVIRONMENT = {
    "PATH": f"/{wheels.PREFIX}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "PYTHONUNBUFFERED": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}
"""User, ports, entry point and environment are those of the Dockerfile."""
_PYTHON = f"python{image_version()}"
_ANNOTATION = "org.opencontainers.image"
_BASE: Tree = {
    "etc/passwd": File(
        b"root:x:0:0:root:/root:/usr/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/usr/sbin/nologin\n"
    ),
    "etc/group": File(b"root:x:0:\nnonroot:x:65532:\n"),
    "etc/nsswitch.conf": File(b"hosts: files dns\n"),
    "usr/lib/ssl/cert.pem": Link(f"/{debian.CERTIFICATES}"),
    "usr/lib/ssl/certs": Link("/etc/ssl/certs"),
}
_ENVIRONMENT: Tree = {
    f"{wheels.PREFIX}/pyvenv.cfg": File(
        f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {image_version()}\n".encode()
    ),
    **{f"{wheels.PREFIX}/bin/{name}": Link(f"/usr/bin/{_PYTHON}") for name in ("python", "python3", _PYTHON)},
}
GENERATED = frozenset({*_BASE, *_ENVIRONMENT})
"""The files that no package has."""


@dataclass(frozen=True, slots=True)
class Sources:
    """What an image is built from: the lock of its packages, the operator's wheel, the commit and its time in seconds since 1970."""

    lock: Path
    wheel: Path
    metadata: Message
    commit: str
    epoch: int

    @property
    def version(self) -> str:
        return str(self.metadata["Version"])

    @property
    def created(self) -> str:
        return f"{datetime.fromtimestamp(self.epoch, UTC):%Y-%m-%dT%H:%M:%SZ}"

    def annotations(self) -> dict[str, str]:
        """Return what registries show of the image. Source: OCI image format specification, predefined annotation keys."""
        urls = dict(entry.split(", ", 1) for entry in self.metadata.get_all("Project-URL", []))
        found = {
            "created": self.created,
            "description": self.metadata["Summary"],
            "documentation": urls.get("Documentation"),
            "licenses": self.metadata["License-Expression"],
            "revision": self.commit,
            "source": urls.get("Source") or urls.get("Repository"),
            "title": "rallypoint",
            "version": self.version,
        }
        return {f"{_ANNOTATION}.{key}": value for key, value in found.items() if value}


def build(
    output: Path,
    sources: Sources,
    architectures: Sequence[str],
    *,
    name: str = "",
    mirror: str = "",
    start: bool = True,
) -> dict[str, Any]:
    """Build, check and start the images; write archives, bills of materials and ``image.json``, and return the content of the latter.

    Raises:
        ImageError: an input cannot be had or is not what is locked, or a check fails.
    """
    output.mkdir(parents=True, exist_ok=True)
    cache = binaries.cache_root() / "image"
    name = name or f"rallypoint:{sources.version}"
    host = host_architecture()
    images, described = [], []
    mirrors = _Mirrors(mirror)
    with Interpreter.unpacked(_tree(_base(host, cache, mirrors), _BASE)) as interpreter:
        for architecture in architectures:
            started = time.monotonic()
            base = _base(architecture, cache, mirrors)
            dependencies = [
                wheels.unpack(path) for path in wheels.download(sources.lock, architecture, cache)
            ]
            operator = wheels.unpack(sources.wheel)
            image = _assemble(architecture, base, dependencies, operator, sources, interpreter)
            archive, bill = output / f"image-{architecture}.tar", output / f"sbom-{architecture}.cdx.json"
            oci.write(image, archive, name)
            bom = sbom.build(
                [*base, *dependencies, operator],
                {
                    "name": "rallypoint",
                    "version": sources.version,
                    "digest": image.digest,
                    "created": sources.created,
                    "license": sources.metadata["License-Expression"],
                },
                architecture,
            )
            bill.write_text(json.dumps(bom, indent=2, sort_keys=True) + "\n")
            check(archive, bill)
            if start:
                _start(archive, sources)
            images.append(image)
            described.append(_describe(image, archive, bill))
            print(f"{archive}: {_sizes(described[-1])}, {time.monotonic() - started:.0f} s", flush=True)
    digest = oci.write_index(images, output / "image.tar", name, sources.annotations())
    summary = {
        "name": name,
        "version": sources.version,
        "revision": sources.commit,
        "created": sources.created,
        "archive": "image.tar",
        "digest": digest,
        "size_bytes": (output / "image.tar").stat().st_size,
        "images": described,
    }
    (output / "image.json").write_text(json.dumps(summary, indent=2) + "\n")
    return summary


def check(archive: Path, bill: Path) -> None:
    """Check an archive: digests, the processor and libraries of each ELF file, and the bill of materials.

    Raises:
        ImageError: one of these is not as it should be.
    """
    config, layers = oci.read(archive)
    tree = {path: entry for layer in layers for path, entry in layer.items()}
    names = {path.rpartition("/")[2] for path in tree}
    problems = []
    for path, entry in tree.items():
        if not isinstance(entry, File) or not elf.is_elf(entry.content):
            continue
        if (found := elf.architecture(entry.content)) != config["architecture"]:
            problems.append(f"/{path} is for {found}")
        elif missing := set(elf.needed(entry.content)) - names:
            problems.append(f"/{path} needs {', '.join(sorted(missing))}, which the image lacks")
    if problems:
        raise ImageError(f"{archive} for {config['architecture']}:\n" + "\n".join(problems))
    sbom.check(json.loads(bill.read_text()), layers, GENERATED)


def sources(lock: Path, version: str, wheel: Path | None, folder: Path) -> Sources:
    """Return the sources of an image of this checkout; without a wheel, build it into the folder.

    Raises:
        ImageError: the wheel has another version than wanted or names no commit, or the commit's time is unknown.
    """
    path = wheel or environment.build_wheel(folder)
    with ZipFile(path) as archive:
        metadata = wheels.read_metadata(archive)
        commit = wheels.read_commit(archive)
    if version not in ("", metadata["Version"]):
        raise ImageError(f"--version {version}: {path.name} has version {metadata['Version']}")
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    epoch = (
        os.environ.get("SOURCE_DATE_EPOCH")
        or subprocess.run(command, capture_output=True, text=True).stdout.strip()
    )
    if not epoch.isdigit():
        raise ImageError(f"SOURCE_DATE_EPOCH is {epoch!r}: set it to the commit's time in seconds since 1970")
    return Sources(lock, path, metadata, commit, int(epoch))


class _Mirrors(dict[str, str]):
    """Debian's mirrors, looked up when a package is not in the cache."""

    def __init__(self, template: str) -> None:
        super().__init__()
        self._template = template

    def __missing__(self, archive: str) -> str:
        self.update(debian.mirrors(self._template))
        return self[archive]


def _base(architecture: str, cache: Path, mirror: _Mirrors) -> list[Component]:
    packages = debian.read_lock(ROOT / debian.LOCK, architecture)
    return [debian.unpack(debian.download(package, cache, mirror), package.sha256) for package in packages]


def _tree(components: Iterable[Component], *others: Tree) -> Tree:
    tree: Tree = {}
    for files in [*(component.files for component in components), *others]:
        tree |= files
    return tree


def _assemble(
    architecture: str,
    base: list[Component],
    dependencies: list[Component],
    operator: Component,
    sources: Sources,
    interpreter: Interpreter,
) -> oci.Image:
    """Complete the components with bytecode and the lists of their files, and make a layer of each group.

    A layer depends on nothing above it, so that releases share those that did not change; hence the same time, 0, for all files.
    """
    for group in (base, dependencies, [operator]):
        bytecode = interpreter.compile(_tree(group))
        for component in group:
            component.files |= {
                path: entry for path, entry in bytecode.items() if _source(path) in component.files
            }
            if component.ecosystem == "pypi":
                wheels.record(component)
    trees = {
        "base": _tree(base, _BASE, debian.database(base, architecture)),
        "dependencies": _tree(dependencies, _ENVIRONMENT),
        "operator": operator.files,
    }
    layers = [oci.Layer.of(name, tree, interpreter.compress) for name, tree in trees.items()]
    variables = {**ENVIRONMENT, COMMIT_VARIABLE: sources.commit}
    settings = {
        "User": USER,
        "ExposedPorts": {f"{port}/tcp": {} for port in PORTS},
        "Env": [f"{name}={value}" for name, value in variables.items()],
        "Entrypoint": list(ENTRYPOINT),
        "WorkingDir": "/",
    }
    return oci.assemble(architecture, layers, settings, sources.annotations(), sources.created)


def _source(path: str) -> str:
    """Return the path of the module that a file of bytecode belongs to. Source: PEP 3147."""
    folder, _, name = path.partition("__pycache__/")
    return f"{folder}{name.partition('.')[0]}.py"


def _start(archive: Path, sources: Sources) -> None:
    config, layers = oci.read(archive)
    architecture = config["architecture"]
    if architecture != host_architecture() and emulator(architecture) is None:
        print(f"{archive} is not started: this machine has no qemu-user-static", flush=True)
        return
    with Container(config, layers) as container:
        shown = container.run("--version")
        if sources.version not in shown or sources.commit not in shown:
            raise ImageError(f"{archive}: --version prints {shown.strip()!r}")
        if (missing := container.run("-c", IMPORT_ALL, entrypoint=["python"]).strip()) != "[]":
            raise ImageError(f"{archive}: modules without bytecode: {missing}")


def _describe(image: oci.Image, archive: Path, bill: Path) -> dict[str, Any]:
    return {
        "architecture": image.architecture,
        "archive": archive.name,
        "digest": image.digest,
        "size_bytes": archive.stat().st_size,
        "unpacked_bytes": sum(layer.size_bytes for layer in image.layers),
        "sbom": bill.name,
        "layers": [
            {
                "name": layer.name,
                "digest": oci.digest(layer.content),
                "size_bytes": len(layer.content),
                "unpacked_bytes": layer.size_bytes,
            }
            for layer in image.layers
        ],
    }


def _sizes(described: dict[str, Any]) -> str:
    layers = ", ".join(f"{layer['name']} {layer['size_bytes'] / 1e6:.1f}" for layer in described["layers"])
    return f"{described['unpacked_bytes'] / 1e6:.1f} MB, compressed {described['size_bytes'] / 1e6:.1f} MB ({layers})"
