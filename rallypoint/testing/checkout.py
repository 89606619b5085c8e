"""Another commit of this repository, with or without an environment of its own, kept in the user's cache."""

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rallypoint.testing.controlplane import binaries

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Checkout:
    """The files of a commit."""

    commit: str
    folder: Path

    @property
    def python(self) -> Path:
        """The interpreter with the packages of the commit, which only ``check_out`` installs."""
        return self.folder / ".venv" / "bin" / "python"


def check_out(revision: str) -> Checkout:
    """Return a commit with its packages installed by its own lock; a later call with the same commit reuses them.

    Raises:
        subprocess.CalledProcessError: there is no such commit, or its environment cannot be made.
    """
    checkout = extract(revision)
    subprocess.run(
        [sys.executable, "tools/venv.py", ".venv", "requirements/dev.txt"], cwd=checkout.folder, check=True
    )
    return checkout


def extract(revision: str) -> Checkout:
    """Return the files of a commit; a later call with the same commit reuses them.

    Raises:
        subprocess.CalledProcessError: there is no such commit.
    """
    commit = _git("rev-parse", "--verify", f"{revision}^{{commit}}").decode().strip()
    folder = binaries.cache_root() / "commits" / commit
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as parent:
            incomplete = Path(parent, commit)
            incomplete.mkdir()
            subprocess.run(["tar", "-x"], input=_git("archive", commit), cwd=incomplete, check=True)
            incomplete.rename(folder)
    return Checkout(commit, folder)


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=_ROOT, stdout=subprocess.PIPE, check=True).stdout
