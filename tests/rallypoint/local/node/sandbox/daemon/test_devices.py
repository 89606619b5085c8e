"""The folder of devices that pods see, in a mount namespace of a process apart."""

import subprocess
import sys
from pathlib import Path

import pytest

from rallypoint.local.node.sandbox.selection import IsolationMode

ASK = """
import os, sys
from pathlib import Path
from rallypoint.local.node.sandbox.daemon import system
from rallypoint.local.node.sandbox.daemon.devices import Devices

folder = Path(sys.argv[1])
user = 0 if os.geteuid() == 0 else system.NEW_USER
system.unshare(system.NEW_MOUNT | user)
system.mount("none", "/", flags=system.RECURSIVE | system.PRIVATE)
before = os.open(folder, os.O_RDONLY)
devices = Devices(str(folder))
(folder / "of-a-pod").touch()
print(*sorted(os.listdir(folder)), (folder / "null").stat().st_rdev == os.stat("/dev/null").st_rdev)
os.close(os.open("late", os.O_CREAT, dir_fd=before))
devices.refresh()
devices.refresh()
print(*sorted(os.listdir(folder)))
"""


def test_the_machines_devices_and_room_for_more(tmp_path: Path, isolations: list[IsolationMode]) -> None:
    """What the machine gets later is shown; what pods add stays with them."""
    if "namespaces" not in isolations:
        pytest.skip("this machine forbids namespaces; test_choice asserts what happens then")
    (tmp_path / "null").symlink_to("/dev/null")
    (tmp_path / "pts").mkdir()
    (tmp_path / "one").touch()
    completed = subprocess.run(
        [sys.executable, "-c", ASK, str(tmp_path)], capture_output=True, text=True, check=True
    )

    assert completed.stdout.splitlines() == [
        "null of-a-pod one pts termination-log True",
        "late null of-a-pod one pts termination-log",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["late", "null", "one", "pts"]
