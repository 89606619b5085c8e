"""Code that tests, run by root, run as an ordinary user.

Two user ids stand for all: the one that most machines give their first account, whether or not this machine has it,
and one that no machine has. Neither is 65534: that is the id by which a user namespace shows everything that it does
not map, so what fails for every other user works for that one.
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
UIDS = (1000, 12345)

TEST_UIDS = (0, *UIDS) if os.geteuid() == 0 else (os.geteuid(),)
"""The user ids that tests act as: all of them if root runs the suite."""


def uid_label(uid: int) -> str:
    """Return the id of a test's parameter."""
    return "root" if uid == 0 else f"uid {uid}"


_BECOME = f"""
import os, sys
from pathlib import Path
from rallypoint.local.node.sandbox.daemon import system
from rallypoint.local.node.sandbox.daemon.view import FilesystemView

home, uid, has_account, *command = sys.argv[1:]
system.unshare(system.CLONE_NEWNS)
system.mount("none", "/", flags=system.MS_REC | system.MS_PRIVATE)
view = FilesystemView("/nowhere")
for needed in map(Path, (sys.base_prefix, sys.prefix, {str(ROOT)!r}, home)):
    for folder in reversed(needed.parents):
        if not folder.stat().st_mode & 1:
            view._replace_with_tmpfs(str(folder))  # Other users have access in this process's mount namespace only.
            folder.chmod(0o755)
if has_account:
    accounts = Path("/etc/passwd").read_text().splitlines()
    others = [line for line in accounts if line.split(":")[2] != uid]
    known = Path(home, ".passwd")
    known.write_text("\\n".join([*others, f"unprivileged:*:{{uid}}:{{uid}}::{{home}}:/bin/sh", ""]))
    system.mount(str(known), "/etc/passwd", flags=system.MS_BIND)
os.setgroups([])
os.setgid(int(uid))
os.setuid(int(uid))
os.environ["HOME"] = home
os.execv(sys.executable, [sys.executable, "-c", *command])
"""


def command_as(home: Path, code: str, uid: int, *, has_account: bool = False) -> list[str]:
    """Return the command that runs Python ``code`` as a user with a group of the same number and this ``home``.

    Whoever is not root can act as themselves alone. The interpreter is the one that runs this: where its folder, the
    checkout's or ``home``'s is closed to others, the user passes all the same. ``has_account``: the user is in
    ``/etc/passwd``, with a shell and without a password that PAM would look up, as sshd needs it.
    """
    if uid == os.geteuid():
        return [sys.executable, "-c", code]
    change_owner(home, uid)
    return [sys.executable, "-c", _BECOME, str(home), str(uid), "yes" if has_account else "", code]


def change_owner(folder: Path, uid: int) -> None:
    """Make the user the owner of ``folder`` and everything in it."""
    if uid == os.geteuid():
        return
    for path in (folder, *folder.rglob("*")):
        os.chown(path, uid, uid, follow_symlinks=False)
