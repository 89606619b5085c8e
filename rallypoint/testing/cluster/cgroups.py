"""The control groups of a node: beneath those that this process is in, so that whatever limits it limits the node too.

Where hierarchies are separate (version 1) a node has a group in each; where there is one (version 2), one.
"""

import time
from dataclasses import dataclass
from pathlib import Path

MOUNTS = Path("/sys/fs/cgroup")
_COPIED = ("cpuset.cpus", "cpuset.mems")
_GONE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """A hierarchy's mount point and mount option; ``own`` is the group of this process below it."""

    mount: Path
    option: str
    own: str

    def folder(self, name: str) -> Path:
        return self.mount / self.own.lstrip("/") / name


def hierarchies(mounts: str, groups: str) -> list[Hierarchy]:
    """Return the hierarchies in ``/proc/self/mounts`` and ``/proc/self/cgroup``; in version 2 the option is empty."""
    own = {
        tuple(sorted(line.split(":")[1].split(","))): line.split(":", 2)[2] for line in groups.splitlines()
    }
    found = []
    for line in mounts.splitlines():
        _, mount, kind, options, *_ = line.split()
        if kind == "cgroup":
            found += [
                Hierarchy(Path(mount), ",".join(n), own[n])
                for n in own
                if n[0] and set(n) <= set(options.split(","))
            ]
        elif kind == "cgroup2" and mount == str(MOUNTS):
            return [Hierarchy(Path(mount), "", own[("",)])]
    return found


def ours() -> list[Hierarchy]:
    return hierarchies(Path("/proc/self/mounts").read_text(), Path("/proc/self/cgroup").read_text())


_PREFIX = "rallypoint-"


def make(name: str) -> list[Path]:
    """Create the node's groups, one in each hierarchy."""
    return [_made(hierarchy.folder(_PREFIX + name)) for hierarchy in ours()]


def remove(name: str) -> None:
    """Remove the node's groups and all groups below. Their processes have been killed."""
    for hierarchy in ours():
        _remove_tree(hierarchy.folder(_PREFIX + name))


def remove_all() -> None:
    """Remove the groups of all nodes."""
    for hierarchy in ours():
        for top in hierarchy.folder("").glob(f"{_PREFIX}node-*"):
            _remove_tree(top)


def _remove_tree(top: Path) -> None:
    for folder in [*sorted(top.rglob("*/"), key=lambda path: -len(path.parts)), top]:
        if folder.is_dir():
            _remove(folder)


def _made(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    for name in _COPIED:
        if (folder / name).exists() and not (folder / name).read_text().strip():
            (folder / name).write_text((folder.parent / name).read_text())
    return folder


def _remove(folder: Path) -> None:
    """Remove a folder; the kernel needs a moment after the last process has ended."""
    deadline = time.monotonic() + _GONE_SECONDS
    while True:
        try:
            folder.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return
