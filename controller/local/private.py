"""Folders and files of a site that no other account of this machine can read, whatever the person's umask is.

Secrets, tokens and logs are in them. A folder closes all that is below it, so what pods see in there keeps the modes
that the manifest gives it.
"""

import os
from pathlib import Path

FOLDER_MODE = 0o700
FILE_MODE = 0o600


def folder(path: Path) -> Path:
    """Make a folder of the site's own, or close the one that is there, and return it. Those above it are only made."""
    path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    path.chmod(FOLDER_MODE)
    return path


def file(path: Path) -> Path:
    """Make a file of the owner's alone, or close the one that is there, and return it."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))  # Its times stay.
    path.chmod(FILE_MODE)
    return path
