"""The first process of a node, in namespaces that it has for itself: gives it a machine's view, then runs its programs.

    python -m rallypoint.testing.cluster.inside SPEC

The specification is JSON: see ``Inside``. A program that ends is started again a second later, as systemd would; when this process ends,
the kernel ends all others of the node, and nothing it has mounted is left.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

RESTART_SECONDS = 1.0
_FRESH = ("/run", "/var")
_CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Inside:
    """What a node is made of.

    ``cgroups`` are the mount options of its hierarchies (version 1), or empty (version 2). ``files`` go over those of that name beneath
    ``/proc/sys``. ``routes`` are networks and by which address they are reached.
    """

    name: str
    address: str
    prefix: int
    gateway: str
    routes: dict[str, str]
    cgroups: dict[str, str]
    sysctls: dict[str, str]
    programs: dict[str, list[str]]
    log: str
    pids: str

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))


def main(specification: str) -> None:
    inside = Inside(**json.loads(Path(specification).read_text()))
    socket.sethostname(inside.name)
    _mount(inside)
    _connect(inside)
    Path(inside.pids).mkdir(exist_ok=True)
    _supervise(inside)


def _mount(inside: Inside) -> None:
    """Mount the node's own file systems: processes, network devices, control groups and writable folders."""
    _call("mount", "-t", "proc", "proc", "/proc")
    _call("mount", "-t", "sysfs", "sysfs", "/sys")
    _mount_cgroups(inside.cgroups)
    for path in _FRESH:
        _call("mount", "-t", "tmpfs", "tmpfs", path)
    for path in ("/var/lib", "/var/log", "/var/tmp", "/run/lock"):
        Path(path).mkdir()
    Path("/var/run").symlink_to("/run")
    for name, value in inside.sysctls.items():
        shown = Path("/run/sysctl", name)
        shown.parent.mkdir(parents=True, exist_ok=True)
        shown.write_text(f"{value}\n")
        _call("mount", "--bind", str(shown), f"/proc/sys/{name}")
    _name_server(inside.gateway)
    # Last, so that all of it is shared with the containers that ask for it.
    _call("mount", "--make-rshared", "/")


def _mount_cgroups(hierarchies: dict[str, str]) -> None:
    if not hierarchies:
        _call("mount", "-t", "cgroup2", "cgroup2", str(_CGROUPS))
        _delegate()
        return
    _call("mount", "-t", "tmpfs", "tmpfs", str(_CGROUPS))
    for name, option in hierarchies.items():
        (_CGROUPS / name).mkdir()
        _call("mount", "-t", "cgroup", "-o", option, "cgroup", str(_CGROUPS / name))


def _name_server(address: str) -> None:
    """Set the cluster's name server for this node, too: a pull would wait for the machine's own."""
    shown = Path("/run/resolv.conf")
    shown.write_text(f"nameserver {address}\n")
    path = Path("/etc/resolv.conf").resolve()
    if path.exists():
        _call("mount", "--bind", str(shown), str(path))
    else:  # a link into the /run that was
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(shown)


def _delegate() -> None:
    """Delegate controllers, which needs a group without processes of its own (version 2)."""
    first = _CGROUPS / "init"
    first.mkdir()
    (first / "cgroup.procs").write_text("1")
    wanted = " ".join(f"+{name}" for name in (_CGROUPS / "cgroup.controllers").read_text().split())
    (_CGROUPS / "cgroup.subtree_control").write_text(wanted)


def _connect(inside: Inside) -> None:
    """Set up ``eth0`` once the parent has connected it."""
    while not Path("/sys/class/net/eth0").exists():
        time.sleep(0.01)
    _call("ip", "link", "set", "lo", "up")
    _call("ip", "address", "add", f"{inside.address}/{inside.prefix}", "dev", "eth0")
    _call("ip", "link", "set", "eth0", "up")
    _call("ip", "route", "add", "default", "via", inside.gateway)
    for network, via in inside.routes.items():
        _call("ip", "route", "add", network, "via", via)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def _supervise(inside: Inside) -> None:
    """Start the programs, restart those that end, and reap all children of process 1."""
    running: dict[int, str] = {}
    due = dict.fromkeys(inside.programs, 0.0)
    while True:
        for name in [name for name, at in due.items() if at <= time.monotonic()]:
            del due[name]
            running[_start(inside, name)] = name
        while (ended := _reaped()) is not None:
            if ended in running:
                due[running.pop(ended)] = time.monotonic() + RESTART_SECONDS
        time.sleep(0.1)


def _start(inside: Inside, name: str) -> int:
    with Path(inside.log, f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            inside.programs[name], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    process.returncode = 0  # its status is taken by _reaped
    Path(inside.pids, name).write_text(str(process.pid))
    return process.pid


def _reaped() -> int | None:
    try:
        pid, _ = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return pid or None


def _call(*command: str) -> None:
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    main(sys.argv[1])
