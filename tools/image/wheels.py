"""Python distributions of the image: the locked wheels for its interpreter and platform, and the files of each."""

import json
import re
import subprocess
import sys
import tempfile
from email.message import Message
from email.parser import BytesParser
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

from tools.image import ImageError, elf
from tools.image.debian import ARCHITECTURES
from tools.image.files import Component, File
from tools.python import image_version

PREFIX = "opt/rallypoint"
"""The folder of the environment, as in the Dockerfile."""
SITE_PACKAGES = f"{PREFIX}/lib/python{image_version()}/site-packages"
_GLIBC = 41
"""The minor version of the GNU C Library of the base; wheels for older ones run, too."""
_OLDEST_GLIBC = 5
_UNUSED = re.compile(
    r".*\.(pyi|pyx|pxd|pxi|c|h|cpp|hpp|rs)$|(.*/)?(tests?|__pycache__|\.hash)/|.*/_testcapi\.[^/]*\.so$"
    r"|[^/]*\.dist-info/(RECORD|WHEEL|entry_points\.txt|top_level\.txt)$"
)
"""Tests, sources of compiled modules, types for checkers; and what only pip reads. The image has a RECORD of its own."""


class Pin(NamedTuple):
    """A locked distribution: its name and version, and the hashes of its files."""

    name: str
    version: str
    hashes: frozenset[str]


def pins(lock: Path, architecture: str) -> list[Pin]:
    """Return what a lock pins for the image's interpreter on Linux."""
    target: dict[str, str] = {
        **{name: str(value) for name, value in default_environment().items()},
        "implementation_name": "cpython",
        "os_name": "posix",
        "platform_machine": ARCHITECTURES[architecture],
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "python_full_version": f"{image_version()}.0",
        "python_version": image_version(),
        "sys_platform": "linux",
    }
    text = re.sub(r"^\s*#.*$", "", lock.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    found = []
    for line in filter(str.strip, text.splitlines()):
        entry, *hashes = re.split(r"\s--hash=sha256:", line)
        requirement = Requirement(entry)
        if requirement.marker is None or requirement.marker.evaluate(target):
            (specifier,) = requirement.specifier
            name = canonicalize_name(requirement.name)
            found.append(Pin(name, specifier.version, frozenset(map(str.strip, hashes))))
    return found


def download(lock: Path, architecture: str, cache: Path) -> list[Path]:
    """Return a wheel for each pin, from the cache or by pip, each with a locked hash.

    Raises:
        ImageError: pip finds no wheel for the platform, or a wheel does not have a locked hash.
    """
    pinned = pins(lock, architecture)
    key = sha256(json.dumps([image_version(), _GLIBC, *map(_sorted, pinned)]).encode()).hexdigest()
    folder = cache / "wheels" / f"{architecture}-{key[:16]}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            _pip_download(pinned, architecture, Path(scratch))
            Path(scratch, "wheels").rename(folder)
    wheels = sorted(folder.glob("*.whl"))
    by_name = {pin.name: pin for pin in pinned}
    for wheel in wheels:
        name, version, *_ = parse_wheel_filename(wheel.name)
        pin = by_name.pop(name, None)
        if pin is None or str(version) != pin.version or digest(wheel) not in pin.hashes:
            raise ImageError(f"{wheel} does not have a hash that {lock} locks: remove {folder}")
    if by_name:
        raise ImageError(f"{folder} lacks {', '.join(sorted(by_name))}: remove it")
    return wheels


def _sorted(pin: Pin) -> list[str]:
    return [pin.name, pin.version, *sorted(pin.hashes)]


def _pip_download(pinned: list[Pin], architecture: str, folder: Path) -> None:
    """Let pip download the wheels into ``folder/wheels``; it checks the hashes, too."""
    requirements = folder / "requirements.txt"
    lines = [
        " ".join([f"{pin.name}=={pin.version}", *(f"--hash=sha256:{hash_}" for hash_ in sorted(pin.hashes))])
        for pin in pinned
    ]
    requirements.write_text("\n".join(lines) + "\n")
    machine = ARCHITECTURES[architecture]
    tags = [f"manylinux_2_{minor}_{machine}" for minor in range(_GLIBC, _OLDEST_GLIBC - 1, -1)]
    options = ["--quiet", "--no-deps", "--require-hashes", "--only-binary=:all:", "--implementation=cp"]
    options += [f"--python-version={image_version()}", f"--dest={folder / 'wheels'}"]
    options += [f"--platform={tag}" for tag in (*tags, f"manylinux2014_{machine}")]
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", *options]
    done = subprocess.run([*command, "-r", str(requirements)], capture_output=True, text=True)
    if done.returncode:
        raise ImageError(f"pip cannot download the wheels for {architecture}:\n{done.stderr.strip()}")


def digest(path: Path) -> str:
    """Return a file's SHA-256 in hex digits."""
    return sha256(path.read_bytes()).hexdigest()


def unpack(wheel: Path) -> Component:
    """Return the component of a wheel, with the files that the image keeps, and of compiled modules the loaded part.

    Scripts are left out: the operator is started as a module.

    Raises:
        ImageError: the wheel has files for other places than site-packages, or no license.
    """
    files = {}
    with ZipFile(wheel) as archive:
        for info in archive.infolist():
            if info.is_dir() or _UNUSED.match(info.filename):
                continue
            if ".data/" in info.filename:
                raise ImageError(
                    f"{wheel.name}: {info.filename} is not for site-packages; the image has no place for it"
                )
            content = archive.read(info)
            files[f"{SITE_PACKAGES}/{info.filename}"] = File(
                elf.loaded(content) if elf.is_elf(content) else content
            )
        metadata = read_metadata(archive)
    return Component(
        "pypi",
        canonicalize_name(metadata["Name"]),
        metadata["Version"],
        licenses(metadata),
        digest(wheel),
        dict(files),
    )


def read_metadata(archive: ZipFile) -> Message:
    """Return the metadata of a wheel."""
    (name,) = (name for name in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name))
    return BytesParser().parsebytes(archive.read(name))


def read_commit(archive: ZipFile) -> str:
    """Return the commit that the operator's wheel names; ``deploy/operator/hatch_build.py`` writes it.

    Raises:
        ImageError: it names none.
    """
    for name in archive.namelist():
        if name.endswith(".dist-info/extra_metadata/COMMIT"):
            return archive.read(name).decode().strip()
    raise ImageError(f"{archive.filename} names no commit: build it from a git repository")


def licenses(metadata: Message) -> tuple[str, ...]:
    """Return a distribution's license: the SPDX expression, or else what older metadata says."""
    if expression := metadata["License-Expression"]:
        return (expression,)
    classifiers = [
        line.rpartition(" :: ")[2]
        for line in metadata.get_all("Classifier", [])
        if line.startswith("License ::")
    ]
    text = (metadata["License"] or "").strip()
    if text and "\n" not in text:
        return (text,)
    if not classifiers:
        raise ImageError(f"{metadata['Name']} {metadata['Version']} names no license")
    return tuple(classifiers)


def record(component: Component) -> None:
    """Add the RECORD of the files that the image has of a distribution. Source: PyPA, Recording installed projects."""
    dist_info = next(path.rpartition("/")[0] for path in component.files if path.endswith("/METADATA"))
    path = f"{dist_info}/RECORD"
    lines = [
        f"{name.removeprefix(f'{SITE_PACKAGES}/')},sha256={sha256(entry.content).hexdigest()},{len(entry.content)}\n"
        for name, entry in sorted(component.files.items())
        if isinstance(entry, File)
    ]
    component.files[path] = File("".join([*lines, f"{path.removeprefix(f'{SITE_PACKAGES}/')},,\n"]).encode())
