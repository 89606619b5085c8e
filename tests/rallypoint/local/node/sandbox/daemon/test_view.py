"""What a container sees, in a mount namespace of a process apart, of whichever user."""

import subprocess
from pathlib import Path

import pytest

from rallypoint.local.node.sandbox.selection import IsolationMode
from rallypoint.testing.unprivileged_user import ROOT, TEST_UIDS, command_as, uid_label

MOUNT = """
import os, sys
from pathlib import Path
from rallypoint.local.node.sandbox.daemon import system
from rallypoint.local.node.sandbox.daemon.main import map_ids
from rallypoint.local.node.sandbox.daemon.view import FilesystemView, Mount

home, folder = map(Path, sys.argv[1:])
user, group = os.geteuid(), os.getegid()
if user == 0:
    system.unshare(system.NEW_MOUNT)
else:
    system.unshare(system.NEW_MOUNT | system.NEW_USER)
    map_ids(user, group)
system.mount("none", "/", flags=system.RECURSIVE | system.PRIVATE)
FilesystemView(str(home)).mount([Mount(str(home), str(folder / "added" / "volume"))])
print(*sorted(os.listdir(folder)), *os.listdir(folder / "added" / "volume"), os.geteuid() == user)
"""


@pytest.mark.parametrize("uid", TEST_UIDS, ids=uid_label)
def test_room_is_made_in_a_folder_of_another_user(
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
