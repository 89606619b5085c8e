"""A folder as the root of a container's file system: nothing is written to it, what the container writes is its own."""

import os
from dataclasses import dataclass
from pathlib import Path

from rallypoint.local.node.sandbox.keeper import system

SHARED = ("proc", "dev", "sys")
"""What a container has of the kernel's file systems, whatever its image holds."""
ALL_USERS = "0 0 4294967295"


@dataclass(frozen=True, slots=True)
class Image:
    folder: str
    own: str
    """A folder of the container, for what it writes; on a file system that an overlay can write to."""


def put_together(image: Image, place: str) -> None:
    """Mount at ``place`` what the container is to have as its root.

    Raises:
        OSError: the kernel does not allow an overlay, or not there.
    """
    parts = {"lowerdir": image.folder, "upperdir": f"{image.own}/upper", "workdir": f"{image.own}/work"}
    for part in ("upperdir", "workdir"):
        Path(parts[part]).mkdir(parents=True, exist_ok=True)
    # Named by descriptor: a path may have signs in it that mean something in these options.
    opened = {part: os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) for part, path in parts.items()}
    try:
        options = [f"{part}=/proc/self/fd/{number}" for part, number in opened.items()]
        system.mount("overlay", place, "overlay", 0, ",".join([*options, *_in_user_namespace()]))
    finally:
        for number in opened.values():
            os.close(number)
    for name in SHARED:
        inner = Path(place, name)
        inner.mkdir(exist_ok=True)
        system.mount(f"/{name}", str(inner), flags=system.BIND | system.RECURSIVE)


def _in_user_namespace() -> list[str]:
    """What an overlay needs where trusted attributes are not ours to write."""
    mapped = " ".join(Path("/proc/self/uid_map").read_text().split())
    return [] if mapped == ALL_USERS else ["userxattr"]
