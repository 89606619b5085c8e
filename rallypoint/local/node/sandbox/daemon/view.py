"""The file system of a container: the machine's own, with volumes mounted over it at their paths.

A mount point that the machine lacks is created without changing the machine: a tmpfs with bind mounts of the same
entries replaces the nearest existing folder in this container.
"""

import contextlib
import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rallypoint.local.node.sandbox.daemon import system
from rallypoint.local.node.sandbox.daemon.overlay import Image, mount_overlay


@dataclass(frozen=True, slots=True)
class Mount:
    source: str
    target: str
    read_only: bool = False
    within: str = ""
    """``source`` must resolve to a path inside this folder; empty for no check."""


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
            if not Path(
                mount.source
            ).exists():  # A folder of a volume in memory: only here does one see inside.
                Path(mount.source).mkdir(parents=True)
        # Opened before anything is mounted over them, and after the root has changed: a detached root cannot be mounted.
        sources = [os.open(mount.source, os.O_PATH | os.O_CLOEXEC) for mount in ordered]
        try:
            if image is not None:
                mount_overlay(image, self._staging)
                system.change_root(self._staging)
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
            with contextlib.suppress(OSError):  # Starting the program reports it.
                path.mkdir(parents=True)

    def memory(self, target: str, options: str = "mode=1777") -> None:
        """Mount a tmpfs."""
        path = self._mount_point(target, is_folder=True)
        system.mount("tmpfs", path, "tmpfs", system.NO_SETUID | system.NO_DEVICES, options)
        self._volumes.append(path)

    def _mount(self, source: str, mount: Mount) -> None:
        path = self._mount_point(mount.target, is_folder=Path(source).is_dir())
        system.mount(source, path, flags=system.BIND | system.RECURSIVE)
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
        """Whether entries can be created there without changing the machine's file system."""
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
            with os.scandir(before) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):
                        bind_entry(entry, f"/proc/self/fd/{before}/{entry.name}", f"{path}/{entry.name}")
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
        raise PermissionError(errno.EPERM, "it leads out of its volume", mount.source)


def _nearest(target: Path) -> Path:
    """Return the path itself if it exists, or its nearest existing parent."""
    return next(path for path in (target, *target.parents) if path.exists())


def bind_entry(entry: "os.DirEntry[str]", source: str, path: str) -> None:
    """Bind ``source`` at ``path``; copy it if it is a symbolic link."""
    if entry.is_symlink():
        Path(path).symlink_to(Path(source).readlink())
        return
    if entry.is_dir():
        Path(path).mkdir()
    else:
        Path(path).touch()
    system.mount(source, path, flags=system.BIND | system.RECURSIVE)
