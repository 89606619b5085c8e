"""The file system of a container: the machine's own or an image's, with volumes mounted over it at their paths.

A mount point that the machine lacks is created without changing the machine: a tmpfs with bind mounts of the same
entries replaces the nearest existing folder in this container. An image folder is the read-only lower layer of an
overlay; each container has its own writable layer.
"""

import contextlib
import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rallypoint.local.node.sandbox.daemon import system

SHARED = ("proc", "dev", "sys")
"""File systems of the kernel that every container gets from the machine."""
IDENTITY_MAPPING = "0 0 4294967295"
"""The UID mapping outside of user namespaces."""
TERMINATION_LOG = "termination-log"
"""The file in ``/dev`` over which each container mounts its termination log."""


@dataclass(frozen=True, slots=True)
class Mount:
    source: str
    target: str
    read_only: bool = False
    within: str = ""
    """``source`` must resolve to a path inside this folder; empty for no check."""


@dataclass(frozen=True, slots=True)
class Image:
    folder: str
    own: str
    """The folder for the writable layer, on a file system that supports an overlay's upper layer."""


class FilesystemView:
    """The file system of the current mount namespace."""

    def __init__(self, staging: str) -> None:
        """``staging`` is an empty folder, the mount point of a new root."""
        self._staging = staging
        self._tmpfs_folders: set[str] = set()
        """Folders on a tmpfs, in which mount points can be created."""
        self._volumes: list[str] = []

    def mount(self, mounts: Iterable[Mount], image: Image | None = None) -> None:
        """Mount all, outer ones first. With an image, mount into it and make it the root.

        Raises:
            OSError: one cannot be mounted.
        """
        ordered = sorted(mounts, key=lambda mount: Path(mount.target).parts)
        if image is None and any(
            _nearest(Path(os.path.realpath(mount.target))) == Path("/") for mount in ordered
        ):
            self._replace_with_tmpfs("/")
        for mount in ordered:
            _require_within(mount)
            # A subPath of a volume in memory may be missing: the tmpfs exists only in this mount namespace.
            if not Path(mount.source).exists():
                Path(mount.source).mkdir(parents=True)
        # Open the sources before a mount hides them, but after ``/`` is replaced: nothing can be mounted from a
        # detached root.
        sources = [os.open(mount.source, os.O_PATH | os.O_CLOEXEC) for mount in ordered]
        try:
            if image is not None:
                mount_overlay(image, self._staging)
                system.pivot_root(self._staging)
                self._volumes.append("/")
            for mount, source in zip(ordered, sources, strict=True):
                self._mount(f"/proc/self/fd/{source}", mount)
            if image is not None:
                system.detach_old_root()
        finally:
            for source in sources:
                os.close(source)

    def make_working_directory(self, folder: str) -> None:
        """Create a missing working directory if it is in a volume or an image."""
        path = Path(os.path.realpath(folder))
        if not path.exists() and self._is_writable(str(_nearest(path))):
            with contextlib.suppress(OSError):  # The start of the program reports the missing folder.
                path.mkdir(parents=True)

    def mount_tmpfs(self, target: str, options: str) -> None:
        path = self._mount_point(target, is_folder=True)
        system.mount("tmpfs", path, "tmpfs", system.MS_NOSUID | system.MS_NODEV, options)
        self._volumes.append(path)

    def _mount(self, source: str, mount: Mount) -> None:
        path = self._mount_point(mount.target, is_folder=Path(source).is_dir())
        system.mount(source, path, flags=system.MS_BIND | system.MS_REC)
        if mount.read_only:
            system.make_read_only(path)
        self._volumes.append(path)

    def _mount_point(self, target: str, *, is_folder: bool) -> str:
        """Return the mount point with symbolic links resolved; create it if it is missing."""
        path = Path(os.path.realpath(target))
        if path.exists():
            return str(path)
        folder = _nearest(path)
        if not self._is_writable(str(folder)):
            self._replace_with_tmpfs(str(folder))
        for parent in reversed([path, *path.parents]):
            if not parent.exists():
                if parent == path and not is_folder:
                    parent.touch()
                else:
                    parent.mkdir()
                    self._tmpfs_folders.add(str(parent))
        return str(path)

    def _is_writable(self, folder: str) -> bool:
        """Return whether entries can be created there without changing the machine's file system."""
        if folder in self._tmpfs_folders:
            return True
        return os.access(folder, os.W_OK) and any(
            Path(folder).is_relative_to(volume) for volume in self._volumes
        )

    def _replace_with_tmpfs(self, folder: str) -> None:
        """Replace ``folder`` by a tmpfs with bind mounts of the same entries."""
        before = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            there = os.fstat(before)
            path = self._staging if folder == "/" else folder
            system.mount("tmpfs", path, "tmpfs", 0, f"mode={there.st_mode & 0o7777:o}")
            _set_owner(path, there.st_uid, there.st_gid)
            bind_entries(before, path)
        finally:
            os.close(before)
        if folder == "/":
            system.make_root(path)
        self._tmpfs_folders.add(folder)


def _set_owner(path: str, user: int, group: int) -> None:
    """Set the owner if the user namespace maps it; otherwise the owner stays the current user.

    Source: chown(2) and user_namespaces(7), EINVAL and EPERM for ids without a mapping.
    """
    try:
        os.chown(path, user, group)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EPERM):
            raise


def _require_within(mount: Mount) -> None:
    inner = Path(os.path.realpath(mount.source))
    if mount.within and not inner.is_relative_to(os.path.realpath(mount.within)):
        raise PermissionError(errno.EPERM, "the path leads out of its volume", mount.source)


def _nearest(target: Path) -> Path:
    """Return the path itself if it exists, or its nearest existing parent."""
    return next(path for path in (target, *target.parents) if path.exists())


def bind_entries(source: int, target: str) -> None:
    """Bind the entries of the folder with descriptor ``source`` in ``target`` unless they exist; copy symbolic links."""
    with os.scandir(source) as entries:
        for entry in entries:
            path, original = Path(target, entry.name), Path(f"/proc/self/fd/{source}/{entry.name}")
            if os.path.lexists(path):
                continue
            with contextlib.suppress(FileNotFoundError):  # The entry has been removed meanwhile.
                if entry.is_symlink():
                    path.symlink_to(original.readlink())
                    continue
                if entry.is_dir():
                    path.mkdir()
                else:
                    path.touch()
                system.mount(str(original), str(path), flags=system.MS_BIND | system.MS_REC)


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
        system.mount(f"/{name}", str(inner), flags=system.MS_BIND | system.MS_REC)


def _in_user_namespace() -> list[str]:
    """Return the mount option that an overlay needs in a user namespace."""
    mapped = " ".join(Path("/proc/self/uid_map").read_text().split())
    return [] if mapped == IDENTITY_MAPPING else ["userxattr"]


class Devices:
    """``/dev`` in the current mount namespace and in those derived from it: a tmpfs with bind mounts of the devices.

    The daemon creates it once, before any pod, because to bind all devices again for each container is slow.
    """

    def __init__(self, folder: str = "/dev") -> None:
        self._folder = folder
        self._host_folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        mode = os.fstat(self._host_folder).st_mode & 0o7777
        system.mount("tmpfs", folder, "tmpfs", 0, f"mode={mode:o}")
        self.refresh()
        if not (file := Path(folder, TERMINATION_LOG)).exists():
            file.touch()

    def refresh(self) -> None:
        """Add devices that the machine has created since; some drivers create them at first use."""
        bind_entries(self._host_folder, self._folder)
