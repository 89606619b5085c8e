"""Another commit of this repository with an environment of its own, kept in the user's cache."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from rallypoint.testing.controlplane import binaries

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Checkout:
    """The files of a commit, and the Python that runs them."""

    commit: str
    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / ".venv" / "bin" / "python"


def check_out(revision: str) -> Checkout:
    """Return a commit with its packages installed by its own lock; a later call with the same commit reuses them.

    Raises:
        subprocess.CalledProcessError: there is no such commit, or its environment cannot be made.
    """
    commit = _output("git", "rev-parse", "--verify", f"{revision}^{{commit}}").strip()
    folder = binaries.cache_root() / "commits" / commit
    if not folder.is_dir():
        _output("git", "worktree", "prune")
        _output("git", "worktree", "add", "--detach", str(folder), commit)
    subprocess.run([sys.executable, "tools/venv.py", ".venv", "requirements/dev.txt"], cwd=folder, check=True)
    return Checkout(commit, folder)


def _output(*command: str) -> str:
    return subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=True).stdout
