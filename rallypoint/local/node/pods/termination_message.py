"""The termination message of a container.

The program writes it to a file, ``/dev/termination-log`` unless the manifest names another one. With
FallbackToLogsOnError, the end of the log replaces an empty message of a failed container.

Source: Kubernetes, pkg/kubelet/kuberuntime/kuberuntime_container.go (getTerminationMessage), pkg/kubelet/container/
runtime.go (the lengths), pkg/kubelet/status/status_manager.go (normalizeStatus).
"""

import os
import shutil
import stat
from pathlib import Path

from rallypoint.local import private
from rallypoint.local.manifest import Manifest, containers
from rallypoint.local.node.streams.logs import Log
from rallypoint.local.node.volumes.setup import Mount

FOLDER = ".termination-messages"
"""A folder beside a pod's volumes; no volume name starts with a dot."""
DEFAULT_PATH = "/dev/termination-log"
MAX_BYTES = 4096
MAX_BYTES_PER_POD = 12 * 1024
"""Shared by its containers."""
MAX_LOG_BYTES = 2048
MAX_LOG_LINES = 80


def mount(container: Manifest, volumes: Path) -> Mount:
    """Return the mount of the file; ``volumes`` is the pod's folder of volumes."""
    path = container.get("terminationMessagePath") or DEFAULT_PATH
    return Mount(FOLDER, path, volumes / FOLDER / container["name"])


def clear(container: Manifest, volumes: Path) -> None:
    """Create an empty file for a new run.

    Differs: only the user who runs the pod can write to it; a kubelet lets every user.
    """
    file = mount(container, volumes).source
    private.folder(file.parent)
    if file.is_dir() and not file.is_symlink():
        shutil.rmtree(file)
    else:
        file.unlink(missing_ok=True)
    private.file(file)


def read(container: Manifest, volumes: Path) -> str:
    """Return the end of what the terminated run wrote; empty if it has replaced the file by something that is none, or made it unreadable."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC  # A pipe would block.
    try:
        with os.fdopen(os.open(mount(container, volumes).source, flags), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                return ""
            file.seek(max(found.st_size - MAX_BYTES, 0))
            return file.read(MAX_BYTES).decode(errors="replace")
    except OSError:
        return ""


def message(pod: Manifest, container: Manifest, written: str, exit_code: int, log: Log) -> str:
    """Return the message for the status; ``written`` is the content of the file."""
    uses_log = container.get("terminationMessagePolicy") == "FallbackToLogsOnError"
    if uses_log and exit_code != 0 and not written:
        written = log.tail(MAX_LOG_LINES, MAX_LOG_BYTES).decode(errors="replace")
    return written[: MAX_BYTES_PER_POD // len(containers(pod))]
