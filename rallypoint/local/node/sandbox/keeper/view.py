"""What a container sees of the file system: the machine's own, and volumes mounted over it at their real paths.

A path that the machine does not have is made room for without touching the machine: its nearest folder is replaced,
for this container alone, by one in memory that holds the same things, each bound to where it was.
"""

import contextlib
import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rallypoint.local.node.sandbox.keeper import system
from rallypoint.local.node.sandbox.keeper.image import Image, put_together


@dataclass(frozen=True, slots=True)
class Mount:
    source: str
    target: str
    read_only: bool = False
    within: str = ""
    """A folder that ``source`` must not lead out of, whatever links are in it."""


class View:
    """The file system of the mount namespace that this process is in now."""

    def __init__(self, staging: str) -> None:
        """``staging`` is an empty folder that a new root is put together in when one is needed."""
        self._staging = staging
        self._open: set[str] = set()
        """Folders in memory, in which entries can be made."""
        self._volumes: list[str] = []

    def mount(self, mounts: Iterable[Mount], image: Image | None = None) -> None:
        """Mount all, outer ones first; with an image, into that, which is the root from then on.

        Raises:
            OSError: one cannot be mounted.
        """
        wanted = sorted(mounts, key=lambda one: Path(one.target).parts)
        if image is None and any(_nearest(Path(os.path.realpath(one.target))) == Path("/") for one in wanted):
            self._mirror("/")
        for one in wanted:
            _require_inside(one)
            if not Path(
                one.source
            ).exists():  # A folder of a volume in memory: only here does one see inside.
                Path(one.source).mkdir(parents=True)
        # Opened before anything is mounted over them, and after the root has changed: what is let go with the old one
        # can no longer be mounted.
        sources = [os.open(one.source, os.O_PATH | os.O_CLOEXEC) for one in wanted]
        try:
            if image is not None:
                put_together(image, self._staging)
                system.change_root(self._staging)
                self._volumes.append("/")
            for one, source in zip(wanted, sources, strict=True):
                self._mount(f"/proc/self/fd/{source}", one)
            if image is not None:
                system.let_go()
        finally:
            for source in sources:
                os.close(source)

    def provide(self, folder: str) -> None:
        """Make a working directory that is missing, where that is in a volume or an image."""
        place = Path(os.path.realpath(folder))
        if not place.exists() and self._is_ours(str(_nearest(place))):
            with contextlib.suppress(OSError):  # Said when the program is to begin there.
                place.mkdir(parents=True)

    def memory(self, target: str, options: str = "mode=1777") -> None:
        """A file system in memory; it is gone with the last namespace that has it."""
        place = self._way(target, is_folder=True)
        system.mount("tmpfs", place, "tmpfs", system.NO_SETUID | system.NO_DEVICES, options)
        self._volumes.append(place)

    def _mount(self, source: str, one: Mount) -> None:
        place = self._way(one.target, is_folder=Path(source).is_dir())
        system.mount(source, place, flags=system.BIND | system.RECURSIVE)
        if one.read_only:
            system.make_read_only(place)
        self._volumes.append(place)

    def _way(self, target: str, *, is_folder: bool) -> str:
        """The place to mount at, symbolic links followed; made when it is missing."""
        place = Path(os.path.realpath(target))
        if place.exists():
            return str(place)
        folder = _nearest(place)
        if not self._is_ours(str(folder)):
            self._mirror(str(folder))
        for parent in reversed([place, *place.parents]):
            if not parent.exists():
                if parent == place and not is_folder:
                    parent.touch()
                else:
                    parent.mkdir()
                    self._open.add(str(parent))
        return str(place)

    def _is_ours(self, folder: str) -> bool:
        """Whether entries can be made there that the machine does not see: not in a folder of an image that is another
        user's."""
        if folder in self._open:
            return True
        return os.access(folder, os.W_OK) and any(
            Path(folder).is_relative_to(volume) for volume in self._volumes
        )

    def _mirror(self, folder: str) -> None:
        """Put a folder in memory in the place of ``folder``, with the same entries."""
        before = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            there = os.fstat(before)
            place = self._staging if folder == "/" else folder
            system.mount("tmpfs", place, "tmpfs", 0, f"mode={there.st_mode & 0o7777:o}")
            _give(place, there.st_uid, there.st_gid)
            with os.scandir(before) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):
                        show(entry, f"/proc/self/fd/{before}/{entry.name}", f"{place}/{entry.name}")
        finally:
            os.close(before)
        if folder == "/":
            system.make_root(place)
        self._open.add(folder)


def _give(place: str, user: int, group: int) -> None:
    """Set the owner where that can be done; otherwise the folder stays that of the person who runs this.

    A user namespace shows ids that it does not map, root's among them, as one that nothing can be given to.

    Source: chown(2) and user_namespaces(7), EINVAL and EPERM for ids without a mapping.
    """
    try:
        os.chown(place, user, group)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EPERM):
            raise


def _require_inside(one: Mount) -> None:
    inner = Path(os.path.realpath(one.source))
    if one.within and not inner.is_relative_to(os.path.realpath(one.within)):
        raise PermissionError(errno.EPERM, "it leads out of its volume", one.source)


def _nearest(place: Path) -> Path:
    """The place itself, or the folder that exists nearest to it."""
    return next(path for path in (place, *place.parents) if path.exists())


def show(entry: "os.DirEntry[str]", source: str, place: str) -> None:
    """Have at ``place`` what ``source``, an entry of some folder, is."""
    if entry.is_symlink():
        Path(place).symlink_to(Path(source).readlink())
        return
    if entry.is_dir():
        Path(place).mkdir()
    else:
        Path(place).touch()
    system.mount(source, place, flags=system.BIND | system.RECURSIVE)
