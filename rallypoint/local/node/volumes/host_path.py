"""hostPath volumes: type checks and creation.

Source: Kubernetes, pkg/volume/hostpath/host_path.go. A missing path without a type becomes a folder, as with
container runtimes.
"""

import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rallypoint.local.node.volumes.references import Unresolved

_CHECKS: Mapping[str, tuple[Callable[[int], bool], str]] = {
    "Directory": (stat.S_ISDIR, "a directory"),
    "DirectoryOrCreate": (stat.S_ISDIR, "a directory"),
    "File": (stat.S_ISREG, "a file"),
    "FileOrCreate": (stat.S_ISREG, "a file"),
    "Socket": (stat.S_ISSOCK, "a socket file"),
    "CharDevice": (stat.S_ISCHR, "a character device"),
    "BlockDevice": (stat.S_ISBLK, "a block device"),
}


def host_path(volume: str, chosen: Mapping[str, Any]) -> Path:
    """Return the path of a hostPath volume; create it if its type says so.

    Raises:
        Unresolved: the path has another type or cannot be created.
    """
    path, kind = Path(chosen["path"]), chosen.get("type") or ""
    failed = f'MountVolume.SetUp failed for volume "{volume}" : '
    try:
        if kind in ("", "DirectoryOrCreate") and not path.exists():
            path.mkdir(mode=0o755, parents=True)
        elif kind == "FileOrCreate" and not path.exists():
            path.touch(mode=0o644)
        mode = path.stat().st_mode if path.exists() else 0
    except OSError as error:
        raise Unresolved(f"{failed}{path}: {error.strerror}") from error
    if kind:
        fits, words = _CHECKS[kind]
        if not fits(mode):
            raise Unresolved(f"{failed}hostPath type check failed: {path} is not {words}")
    return path
