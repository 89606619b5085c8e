"""Folders and files of a site that no other account of this machine can read, whatever the person's umask is.

Secrets, tokens and logs are in them. A folder closes all that is below it, so what pods see in there keeps the modes
that the manifest gives it. What is there already may be another account's trap, where that can write to the folder
above: a link to a folder of the person's, or a folder that stays its own.
"""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

FOLDER_MODE = 0o700
FILE_MODE = 0o600


class NotOurs(PermissionError):
    """What is there already cannot be used; ``strerror`` says why."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(errno.EPERM, f"{why}; remove it or choose another folder", str(path))


def folder(path: Path) -> Path:
    """Make a folder of the site's own, or close the one that is there, and return it. Those above it are only made.

    Raises:
        NotOurs: something else is there, or another account's folder.
    """
    try:
        path.mkdir(mode=FOLDER_MODE, parents=True)
    except OSError:  # Of a folder on a read-only file system, too.
        if not os.path.lexists(path):
            raise
        _require_own(path, stat.S_ISDIR, "no folder")
    path.chmod(FOLDER_MODE)
    return path


def file(path: Path) -> Path:
    """Make a file of the owner's alone, or close the one that is there, and return it.

    Raises:
        NotOurs: something else is there, or another account's file.
    """
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
    except FileExistsError:
        _require_own(path, stat.S_ISREG, "no file")  # Its times stay.
    path.chmod(FILE_MODE)
    return path


def _require_own(path: Path, is_right: Callable[[int], bool], otherwise: str) -> None:
    there = path.lstat()
    if stat.S_ISLNK(there.st_mode):
        raise NotOurs(path, "it is a symbolic link")
    if not is_right(there.st_mode):
        raise NotOurs(path, f"it is {otherwise}")
    if there.st_uid != os.geteuid():
        raise NotOurs(path, "it belongs to another account")
