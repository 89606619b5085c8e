"""Removal of folders that may hold unreadable folders."""

import contextlib
import os
import shutil
from pathlib import Path

ALL = 0o700


def clear(folder: Path) -> None:
    """Remove ``folder`` and what is in it. Folders that nobody may enter are opened first.

    Programs make some, and an overlay has one of its own; without root they would stay.
    """
    for place, folders, _ in os.walk(folder):
        for name in folders:
            inner = Path(place, name)
            with contextlib.suppress(OSError):
                if not inner.is_symlink() and inner.stat().st_mode & ALL != ALL:
                    inner.chmod(ALL)
    shutil.rmtree(folder, ignore_errors=True)
