"""Files of the image in memory, by their path without the leading slash."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True)
class File:
    content: bytes
    executable: bool = False


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link."""

    target: str


@dataclass(frozen=True, slots=True)
class Folder:
    mode: int = 0o755


Tree = dict[str, File | Link | Folder]


@dataclass(slots=True)
class Component:
    """A Debian package or a Python distribution, with its files in the image.

    ``licenses`` are SPDX expressions where the component says so, and otherwise names. ``sha256`` is of the package or wheel.
    """

    ecosystem: Literal["deb", "pypi"]
    name: str
    version: str
    licenses: tuple[str, ...]
    sha256: str
    files: Tree = field(default_factory=dict)
    control: str = ""
    """A Debian package's entry in dpkg's database."""


def write(tree: Tree, folder: Path) -> None:
    """Write the files below a folder on this machine, with the modes that they have in the image."""
    for path, entry in sorted(tree.items()):
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        match entry:
            case File(content, executable):
                target.write_bytes(content)
                target.chmod(0o755 if executable else 0o644)
            case Link(destination):
                target.symlink_to(destination)
            case Folder(mode):
                target.mkdir(exist_ok=True)
                target.chmod(mode)
