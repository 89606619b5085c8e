"""Builds a release in two fresh clones and compares every byte: nothing of the machine, the user or the path may be in a file."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tools.release import ReleaseError, digests
from tools.version import ROOT

_PERSONAL = ("HOME", "VIRTUAL_ENV", "SOURCE_DATE_EPOCH", "COLUMNS")
_PERSONAL_PREFIXES = ("XDG_", "GIT_", "MAKE", "MFLAGS", "PYTHON")


class Place(NamedTuple):
    """Where and as whom a release is built."""

    path: str
    umask: int
    zone: str
    locale: str


PLACES = (
    Place("a", 0o022, "Pacific/Kiritimati", "C.UTF-8"),
    Place("another/folder with a longer name/b", 0o077, "America/St_Johns", "POSIX"),
)


def compare(release: str, root: Path = ROOT) -> None:
    """Build the commit of a checkout in each place and compare.

    Raises:
        ReleaseError: a build failed, or a file differs.
    """
    with tempfile.TemporaryDirectory(prefix="rallypoint-release-") as scratch:
        clones = [Path(scratch, place.path, "rallypoint") for place in PLACES]
        # All clones first: a commit during a build would make the next clone another one.
        for place, clone in zip(PLACES, clones, strict=True):
            _run(["git", "clone", "--quiet", str(root), str(clone)], Path(scratch), place)
        found = [_build(release, clone, place) for place, clone in zip(PLACES, clones, strict=True)]
    for name, digest in found[0].items():
        print(f"{digest}  {name}")
    if different := sorted(
        name for name in found[0].keys() | found[1].keys() if found[0].get(name) != found[1].get(name)
    ):
        raise ReleaseError(f"not the same in both clones: {', '.join(different)}")
    print(f"{len(found[0])} files, equal in both clones")


def _build(release: str, clone: Path, place: Place) -> dict[str, str]:
    home = clone.parent / "home"
    home.mkdir()
    _run(["make", "release", f"VERSION={release}", f"PYTHON={_python()}"], clone, place, HOME=str(home))
    return digests(clone / "dist" / release, without=())


def _run(command: list[str], folder: Path, place: Place, **variables: str) -> None:
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in _PERSONAL and not name.startswith(_PERSONAL_PREFIXES)
    }
    environment |= {"TZ": place.zone, "LC_ALL": place.locale, **variables}
    print(f"==> {' '.join(command)} (in {folder}, umask {place.umask:03o}, {place.zone})", flush=True)
    done = subprocess.run(command, cwd=folder, env=environment, umask=place.umask, check=False)
    if done.returncode:
        raise ReleaseError(f"`{' '.join(command)}` ended with {done.returncode}")


def _python() -> str:
    """Return the interpreter that this environment was created with."""
    return f"{sys.base_prefix}/bin/python{sys.version_info.major}.{sys.version_info.minor}"
