"""The keeper of namespaces: a small process that ends with the node, and then ends all that was kept.

It is a process apart because whoever makes a process namespace stays outside of it. What it starts inside is the first
process there (``service``). Its standard input is the node's end of a socket; when that closes, or the first process
ends, everything inside is killed, the folder of volumes is removed, and this process ends. Killed itself, it takes the
first process along.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import sys
from pathlib import Path

from rallypoint.local.node.sandbox.keeper import system

RESTRICTED = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")


def main(folder: str, address: str) -> None:
    control = socket.socket(fileno=0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(
            number, signal.SIG_IGN
        )  # It outlives the node on purpose; the end of the socket ends it.
    try:
        _leave()
    except OSError as error:
        _fail(control, error)
        return
    lives, life = os.pipe()
    first = os.fork()
    if first == 0:
        _serve(control, address)
        os._exit(0)
    os.close(life)  # Only the first process holds it now, and what it starts.
    ends = select.poll()
    ends.register(control, 0)  # Hang-ups are always told.
    ends.register(lives, select.POLLIN)
    ends.poll()
    os.kill(first, signal.SIGKILL)
    os.waitpid(first, 0)  # Comes back when the kernel has ended all processes in there.
    shutil.rmtree(folder, ignore_errors=True)


def _leave() -> None:
    """Have the next process begin a process namespace; without root, as ourselves in a user namespace that we rule."""
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        try:
            system.unshare(system.NEW_PID)
        except PermissionError:
            pass  # Root without the rights, as in most containers.
        else:
            return
    system.unshare(system.NEW_USER | system.NEW_PID)
    map_ids(user, group)


def map_ids(user: int, group: int) -> None:
    """Stay this user and group in the user namespace that this process has just made; it knows no other ids."""
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def _serve(control: socket.socket, address: str) -> None:
    system.die_with_parent()
    try:
        system.unshare(system.NEW_MOUNT | system.NEW_NETWORK | system.NEW_HOST_NAME | system.NEW_IPC)
        system.mount("none", "/", flags=system.RECURSIVE | system.PRIVATE)
        system.mount("proc", "/proc", "proc", system.NO_SETUID | system.NO_DEVICES | system.NO_PROGRAMS)
        from rallypoint.local.node.sandbox.keeper.service import Service

        service = Service(control, address)
    except Exception as error:  # noqa: BLE001 - netlink has errors of its own
        _fail(control, error)
        return
    service.serve()


def _fail(control: socket.socket, error: Exception) -> None:
    """Tell the node why there will be no namespaces here."""
    reason = system.spell(error)
    if RESTRICTED.exists() and RESTRICTED.read_text().strip() == "1":
        reason += " (sysctl kernel.apparmor_restrict_unprivileged_userns is 1)"
    with contextlib.suppress(ConnectionError):  # The node may be gone already.
        control.send(json.dumps({"failed": reason}).encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
