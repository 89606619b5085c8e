"""The sandbox daemon: a small process that exits with the node and kills everything in its sandboxes.

A process that creates a PID namespace stays outside of it, so the daemon starts an init process inside (``service``).
Its standard input is a socket to the node. When that closes, or the init process exits, the daemon kills everything
inside, removes the folder of volumes and exits. When the daemon itself is killed, the init process dies with it.
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

from rallypoint.local.node.sandbox.daemon import system

RESTRICTED = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")


def main(folder: str, address: str) -> None:
    control = socket.socket(fileno=0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # The daemon outlives the node; the end of the socket stops it.
    try:
        _unshare_pids()
    except OSError as error:
        _report_failure(control, error)
        return
    alive_reader, alive_writer = os.pipe()
    init_process = os.fork()
    if init_process == 0:
        _run_service(control, address)
        os._exit(0)
    os.close(alive_writer)  # Only the init process and its children hold it now.
    poll = select.poll()
    poll.register(control, 0)  # poll always reports hang-ups.
    poll.register(alive_reader, select.POLLIN)
    poll.poll()
    os.kill(init_process, signal.SIGKILL)
    os.waitpid(init_process, 0)  # Returns when the kernel has killed all processes inside.
    shutil.rmtree(folder, ignore_errors=True)


def _unshare_pids() -> None:
    """Put child processes into a new PID namespace; without root, in a new user namespace with the same user."""
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        try:
            system.unshare(system.CLONE_NEWPID)
        except PermissionError:
            pass  # Root without the capabilities, as in most containers.
        else:
            return
    system.unshare(system.CLONE_NEWUSER | system.CLONE_NEWPID)
    map_ids(user, group)


def map_ids(user: int, group: int) -> None:
    """Map this user and group, and no others, into the user namespace that this process has just created."""
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def _run_service(control: socket.socket, address: str) -> None:
    system.die_with_parent()
    try:
        system.unshare(system.CLONE_NEWNS | system.CLONE_NEWNET | system.CLONE_NEWUTS | system.CLONE_NEWIPC)
        system.mount("none", "/", flags=system.MS_REC | system.MS_PRIVATE)
        system.mount("proc", "/proc", "proc", system.MS_NOSUID | system.MS_NODEV | system.MS_NOEXEC)
        from rallypoint.local.node.sandbox.daemon.service import SandboxService

        service = SandboxService(control, address)
    except Exception as error:  # noqa: BLE001 - pyroute2 raises its own errors
        _report_failure(control, error)
        return
    service.serve()


def _report_failure(control: socket.socket, error: Exception) -> None:
    """Report to the node why namespaces cannot be created."""
    reason = system.error_text(error)
    if RESTRICTED.exists() and RESTRICTED.read_text().strip() == "1":
        reason += " (sysctl kernel.apparmor_restrict_unprivileged_userns is 1)"
    with contextlib.suppress(ConnectionError):  # The node may have exited.
        control.send(json.dumps({"failed": reason}).encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
