"""A container's last words: the message that its status keeps of its end.

The program writes it into a file of the container, ``/dev/termination-log`` unless the manifest names another one; a
program that fails without a word may be quoted from its log instead.

Source: Kubernetes, pkg/kubelet/kuberuntime/kuberuntime_container.go (getTerminationMessage), pkg/kubelet/container/
runtime.go (the lengths), pkg/kubelet/status/status_manager.go (normalizeStatus).
"""

from pathlib import Path

from rallypoint.local import private
from rallypoint.local.manifest import Manifest, containers
from rallypoint.local.node.streams.logs import Log
from rallypoint.local.node.volumes.volumes import Mount

FOLDER = ".last-words"
"""Among a pod's volumes; none of them can have a name that begins like this."""
DEFAULT_PATH = "/dev/termination-log"
MOST_BYTES = 4096
MOST_BYTES_OF_POD = 12 * 1024
"""Shared by its containers."""
MOST_LOG_BYTES = 2048
MOST_LOG_LINES = 80


def mount(container: Manifest, volumes: Path) -> Mount:
    """The file as a mount of the container; ``volumes`` is the pod's folder."""
    path = container.get("terminationMessagePath") or DEFAULT_PATH
    return Mount(FOLDER, path, volumes / FOLDER / container["name"])


def clear(container: Manifest, volumes: Path) -> None:
    """Have an empty file for a run that is about to begin.

    Differs: it is the pod's user's alone, who runs all its processes here; a kubelet lets every user write to it.
    """
    file = mount(container, volumes).place
    private.folder(file.parent)
    file.unlink(missing_ok=True)
    private.file(file)


def read(container: Manifest, volumes: Path) -> str:
    """What the run that has ended wrote: the end of it, where it is much."""
    try:
        with mount(container, volumes).place.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(size - MOST_BYTES, 0))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""


def message(pod: Manifest, container: Manifest, written: str, exit_code: int, log: Log) -> str:
    """What the status says of the end, given what was ``written``."""
    asks_log = container.get("terminationMessagePolicy") == "FallbackToLogsOnError"
    if asks_log and exit_code != 0 and not written:
        written = log.tail(MOST_LOG_LINES, MOST_LOG_BYTES).decode(errors="replace")
    return written[: MOST_BYTES_OF_POD // len(containers(pod))]
