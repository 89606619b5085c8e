"""Finds the program of a container as ``execvp`` does. The errors have the texts of a container runtime.

Standard library only: the sandbox daemon imports it and searches inside the container's mount namespace.
"""

import os
import shutil
from pathlib import Path


class CannotStart(Exception):
    """The process cannot start. The text is a container runtime's."""


NO_FOLDER = "chdir to cwd"


def is_about_folder(error: CannotStart) -> bool:
    """Return whether the working directory is missing."""
    return str(error).startswith(NO_FOLDER)


def find_program(name: str, folder: str, search: str) -> str:
    """Return the path of ``name``; ``folder`` is the working directory, ``search`` the container's PATH.

    Raises:
        CannotStart: the program does not exist or is not executable, or the working directory does not exist.
    """
    if not Path(folder).is_dir():
        raise CannotStart(f'{NO_FOLDER} ("{folder}"): no such file or directory')
    if "/" not in name:
        found = shutil.which(name, path=search)
        if found is None:
            raise CannotStart(f'exec: "{name}": executable file not found in $PATH')
        return os.path.join(folder, found)  # noqa: PTH118 - an entry of PATH may be relative
    path = Path(folder, name)
    if not path.exists():
        raise CannotStart(f'exec: "{name}": stat {name}: no such file or directory')
    if path.is_dir() or not os.access(path, os.X_OK):
        raise CannotStart(f'exec: "{name}": permission denied')
    return str(path)


def not_executed(name: str, error: OSError) -> CannotStart:
    """Return the error for a program that the kernel does not execute."""
    return CannotStart(f'exec: "{name}": {(error.strerror or str(error)).lower()}')
