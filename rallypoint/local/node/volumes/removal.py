"""Removal of folders that may hold unreadable folders."""

import contextlib
import os
import shutil
from pathlib import Path

ALL = 0o700


def remove_tree(folder: Path) -> None:
    """Remove a folder tree. Make inaccessible folders in it accessible first.

    Programs create such folders, and so does an overlay mount; without root they could not be removed.
    """
    for path, folders, _ in os.walk(folder):
        for name in folders:
            inner = Path(path, name)
            with contextlib.suppress(OSError):
                if not inner.is_symlink() and inner.stat().st_mode & ALL != ALL:
                    inner.chmod(ALL)
    shutil.rmtree(folder, ignore_errors=True)
