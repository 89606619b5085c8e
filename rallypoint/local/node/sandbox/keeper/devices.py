"""``/dev`` as pods see it: the machine's devices, in a folder in memory that has room for more.

A file that every container has is there, and mounting something over a file costs nothing. Made once, before any pod,
because to put a folder of many entries together anew for each container would.
"""

import contextlib
import os

from rallypoint.local.node.sandbox.keeper import system
from rallypoint.local.node.sandbox.keeper.view import show

FOLDER = "/dev"
LAST_WORDS = "termination-log"


class Devices:
    """In the mount namespace that this process is in, and those made from it."""

    def __init__(self, folder: str = FOLDER) -> None:
        self._folder = folder
        self._machines = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        mode = os.fstat(self._machines).st_mode & 0o7777
        system.mount("tmpfs", folder, "tmpfs", 0, f"mode={mode:o}")
        self.look()
        with open(f"{folder}/{LAST_WORDS}", "ab"):  # noqa: PTH123 - it may be there
            pass

    def look(self) -> None:
        """Show what the machine has got since: drivers make devices when they are first used."""
        with os.scandir(self._machines) as entries:
            for entry in entries:
                place = f"{self._folder}/{entry.name}"
                if not os.path.lexists(place):
                    with contextlib.suppress(FileNotFoundError):
                        show(entry, f"/proc/self/fd/{self._machines}/{entry.name}", place)
