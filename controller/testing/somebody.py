"""Code run as an ordinary user by tests that root runs."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOMEBODY = 65534

_BECOME = f"""
import os, sys
from pathlib import Path
from controller.local.node.keeper import system
from controller.local.node.keeper.view import View

system.unshare(system.NEW_MOUNT)
system.mount("none", "/", flags=system.RECURSIVE | system.PRIVATE)
view = View("/nowhere")
for needed in map(Path, (sys.base_prefix, {str(ROOT)!r}, sys.argv[1])):
    for folder in reversed(needed.parents):
        if not folder.stat().st_mode & 1:
            view._mirror(str(folder))  # In this process's view alone others may pass.
            folder.chmod(0o755)
users = Path("/etc/passwd").read_text().splitlines()
shells = [line.rpartition(":")[0] + ":/bin/sh" if line.split(":")[2] == "{SOMEBODY}" else line for line in users]
with_shell = Path(sys.argv[1], ".passwd")
with_shell.write_text("\\n".join([*shells, ""]))
system.mount(str(with_shell), "/etc/passwd", flags=system.BIND)  # sshd runs commands by their user's shell.
os.setgroups([])
os.setgid({SOMEBODY})
os.setuid({SOMEBODY})
os.execv(sys.executable, [sys.executable, "-c", *sys.argv[2:]])
"""


def start(home: Path, code: str, *, ordinary: bool) -> list[str]:
    """How to run Python ``code``, with ``home`` for the user's own; as an ordinary user, or as whoever runs this."""
    if not ordinary or os.geteuid() != 0:
        return [sys.executable, "-c", code]
    for path in (home, *home.rglob("*")):
        os.chown(path, SOMEBODY, SOMEBODY)
    return [sys.executable, "-c", _BECOME, str(home), code]
