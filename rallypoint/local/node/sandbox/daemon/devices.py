"""``/dev`` of pods: a tmpfs with bind mounts of the machine's devices.

It holds the file that each container mounts its termination log over. The daemon builds it once, before any pod,
because to bind all devices again for each container is slow.
"""

import contextlib
import os

from rallypoint.local.node.sandbox.daemon import system
from rallypoint.local.node.sandbox.daemon.view import bind_entry

FOLDER = "/dev"
TERMINATION_LOG = "termination-log"


class Devices:
    """``/dev`` in the current mount namespace and in those derived from it."""

    def __init__(self, folder: str = FOLDER) -> None:
        self._folder = folder
        self._host_folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        mode = os.fstat(self._host_folder).st_mode & 0o7777
        system.mount("tmpfs", folder, "tmpfs", 0, f"mode={mode:o}")
        self.refresh()
        with open(f"{folder}/{TERMINATION_LOG}", "ab"):  # noqa: PTH123 - it may be there
            pass

    def refresh(self) -> None:
        """Add devices that the machine has created since; some drivers create them at first use."""
        with os.scandir(self._host_folder) as entries:
            for entry in entries:
                path = f"{self._folder}/{entry.name}"
                if not os.path.lexists(path):
                    with contextlib.suppress(FileNotFoundError):
                        bind_entry(entry, f"/proc/self/fd/{self._host_folder}/{entry.name}", path)
