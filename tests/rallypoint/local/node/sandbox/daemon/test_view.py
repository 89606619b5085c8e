"""What a container sees, and ``/dev``, in a mount namespace of a process apart, of whichever user."""

import subprocess
import sys
from pathlib import Path

import pytest

from rallypoint.local.node.sandbox.selection import IsolationMode
from tests.support.unprivileged_user import ROOT, TEST_UIDS, command_as, uid_label

MOUNT = """
import os, sys
from pathlib import Path
from rallypoint.local.node.sandbox.daemon import system
from rallypoint.local.node.sandbox.daemon.main import map_ids
from rallypoint.local.node.sandbox.daemon.view import FilesystemView, Mount

home, folder = map(Path, sys.argv[1:])
user, group = os.geteuid(), os.getegid()
if user == 0:
    system.unshare(system.CLONE_NEWNS)
else:
    system.unshare(system.CLONE_NEWNS | system.CLONE_NEWUSER)
    map_ids(user, group)
system.mount("none", "/", flags=system.MS_REC | system.MS_PRIVATE)
FilesystemView(str(home)).mount([Mount(str(home), str(folder / "added" / "volume"))])
print(*sorted(os.listdir(folder)), *os.listdir(folder / "added" / "volume"), os.geteuid() == user)
"""

ASK = """
import os, sys
from pathlib import Path
from rallypoint.local.node.sandbox.daemon import system
from rallypoint.local.node.sandbox.daemon.view import Devices

folder = Path(sys.argv[1])
user = 0 if os.geteuid() == 0 else system.CLONE_NEWUSER
system.unshare(system.CLONE_NEWNS | user)
system.mount("none", "/", flags=system.MS_REC | system.MS_PRIVATE)
before = os.open(folder, os.O_RDONLY)
devices = Devices(str(folder))
(folder / "of-a-pod").touch()
print(*sorted(os.listdir(folder)), (folder / "null").stat().st_rdev == os.stat("/dev/null").st_rdev)
os.close(os.open("late", os.O_CREAT, dir_fd=before))
devices.refresh()
devices.refresh()
print(*sorted(os.listdir(folder)))
"""


@pytest.mark.parametrize("uid", TEST_UIDS, ids=uid_label)
def test_a_mount_point_is_created_in_a_folder_of_another_user(
    tmp_path: Path, isolations: list[IsolationMode], uid: int
) -> None:
    """As in root's ``/run``, whose owner the namespace of an ordinary user does not know."""
    if "namespaces" not in isolations:
        pytest.skip("this machine forbids namespaces; test_choice asserts what happens then")
    folder, home = tmp_path / "folder", tmp_path / "home"
    (folder / "there").mkdir(parents=True)
    home.mkdir()
    (home / "file").touch()
    done = subprocess.run(
        [*command_as(home, MOUNT, uid), str(home), str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )

    assert done.stdout == "added there file True\n", done.stderr
    assert [path.name for path in folder.iterdir()] == ["there"]


def test_devices_of_the_machine_are_available(tmp_path: Path, isolations: list[IsolationMode]) -> None:
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
