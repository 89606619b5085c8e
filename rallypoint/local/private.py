"""Creates files and folders that only their owner can access, independent of the umask.

They contain Secrets, tokens and logs. A private folder protects its contents, so files of pods in it keep the modes of
the manifest. Where other accounts can write to the parent folder, an existing file or folder may be an attack: a link to
a folder of the user, or a folder that another account owns.
"""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

FOLDER_MODE = 0o700
FILE_MODE = 0o600


class NotOurs(PermissionError):
    """An existing file or folder cannot be used; ``strerror`` says why."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(errno.EPERM, f"{why}; remove it or choose another folder", str(path))


def folder(path: Path) -> Path:
    """Create a private folder, or restrict the existing one, and return it. Parent folders get the usual mode.

    Raises:
        NotOurs: the path exists and is no folder, or another account owns it.
    """
    try:
        path.mkdir(mode=FOLDER_MODE, parents=True)
    except OSError:  # Also for an existing folder on a read-only file system.
        if not os.path.lexists(path):
            raise
        _require_own(path, stat.S_ISDIR, "no folder")
    path.chmod(FOLDER_MODE)
    return path


def file(path: Path) -> Path:
    """Create a private file, or restrict the existing one, and return it.

    Raises:
        NotOurs: the path exists and is no regular file, or another account owns it.
    """
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
    except FileExistsError:
        _require_own(path, stat.S_ISREG, "no file")  # An existing file is not touched.
    path.chmod(FILE_MODE)
    return path


def _require_own(path: Path, is_expected_type: Callable[[int], bool], otherwise: str) -> None:
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        raise NotOurs(path, "it is a symbolic link")
    if not is_expected_type(found.st_mode):
        raise NotOurs(path, f"it is {otherwise}")
    if found.st_uid != os.geteuid():
        raise NotOurs(path, "it belongs to another account")
