"""An image folder as the root of a container: a read-only lower layer below the container's own writable layer."""

import os
from dataclasses import dataclass
from pathlib import Path

from rallypoint.local.node.sandbox.daemon import system

SHARED = ("proc", "dev", "sys")
"""File systems of the kernel that every container gets from the machine."""
ALL_USERS = "0 0 4294967295"


@dataclass(frozen=True, slots=True)
class Image:
    folder: str
    own: str
    """The folder for the writable layer, on a file system that supports an overlay's upper layer."""


def mount_overlay(image: Image, mount_point: str) -> None:
    """Mount the overlay at ``mount_point``.

    Raises:
        OSError: the kernel does not allow an overlay, or not there.
    """
    parts = {"lowerdir": image.folder, "upperdir": f"{image.own}/upper", "workdir": f"{image.own}/work"}
    for part in ("upperdir", "workdir"):
        Path(parts[part]).mkdir(parents=True, exist_ok=True)
    # Named by descriptor: a path may contain characters with a meaning in mount options.
    opened = {part: os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) for part, path in parts.items()}
    try:
        options = [f"{part}=/proc/self/fd/{number}" for part, number in opened.items()]
        system.mount("overlay", mount_point, "overlay", 0, ",".join([*options, *_in_user_namespace()]))
    finally:
        for number in opened.values():
            os.close(number)
    for name in SHARED:
        inner = Path(mount_point, name)
        inner.mkdir(exist_ok=True)
        system.mount(f"/{name}", str(inner), flags=system.BIND | system.RECURSIVE)


def _in_user_namespace() -> list[str]:
    """Return the mount option that an overlay needs in a user namespace."""
    mapped = " ".join(Path("/proc/self/uid_map").read_text().split())
    return [] if mapped == ALL_USERS else ["userxattr"]
