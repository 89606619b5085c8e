"""Which isolation pods get, on a machine that has namespaces and on one that forbids them."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rallypoint.local.node.sandbox.client import NoNamespaces
from rallypoint.local.node.sandbox.selection import IsolationMode, choose

pytestmark = pytest.mark.looptime(False)

FORBIDDING = (
    "echo 0 > /proc/sys/user/max_user_namespaces && "
    'exec setpriv --bounding-set=-all --inh-caps=-all "$0" -c "$1" "$2" "$3"'
)
"""Root without any rights in a world without user namespaces, as in most containers."""
SAY = """
import asyncio, sys
from pathlib import Path
from rallypoint.local.node.sandbox.selection import choose

async def say():
    try:
        chosen = await choose(sys.argv[1], Path(sys.argv[2]))
    except Exception as error:
        print(type(error).__name__, error)
    else:
        print(chosen.description)
        await chosen.isolation.close()

asyncio.run(say())
"""


async def test_auto_selects_the_best_supported_isolation(
    tmp_path: Path, isolations: list[IsolationMode]
) -> None:
    chosen = await choose("auto", tmp_path)
    await chosen.isolation.close()

    assert chosen.isolation.name == isolations[-1]
    assert ("cannot be used" in chosen.note) == (chosen.isolation.name == "loopback")


async def test_a_requested_isolation_is_selected(tmp_path: Path, isolation: IsolationMode) -> None:
    chosen = await choose(isolation, tmp_path, egress=True)
    await chosen.isolation.close()

    assert chosen.isolation.name == isolation
    assert ("--egress has no effect" in chosen.description) == (isolation == "loopback")


async def test_clusters_have_separate_folders_that_are_removed(
    tmp_path: Path, isolation: IsolationMode
) -> None:
    first, second = [(await choose(isolation, tmp_path)).isolation for _ in range(2)]
    for folder in (first.folder, second.folder):
        (folder / "pod").mkdir(parents=True)
    await first.close()
    left = inside(tmp_path)
    await second.close()

    assert left == [second.folder]
    assert inside(tmp_path) == []


def inside(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def forbidden(wanted: str, folder: Path, isolations: list[IsolationMode]) -> str:
    """What is said where the kernel refuses namespaces: this machine, or a world made so."""
    command = [sys.executable, "-c", SAY, wanted, str(folder)]
    if "namespaces" in isolations:
        unshare = shutil.which("unshare")
        assert unshare is not None
        command = [unshare, "--user", "--map-root-user", "sh", "-c", FORBIDDING, sys.executable, *command[2:]]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_without_namespaces_auto_is_loopback_and_says_why(
    tmp_path: Path, isolations: list[IsolationMode]
) -> None:
    said = forbidden("auto", tmp_path, isolations)

    assert said.startswith("loopback isolation (namespaces cannot be used here: unshare: ")


def test_without_namespaces_the_error_has_the_reason(tmp_path: Path, isolations: list[IsolationMode]) -> None:
    said = forbidden("namespaces", tmp_path, isolations)

    assert said.startswith(f"{NoNamespaces.__name__} namespaces cannot be used here: unshare: ")
    assert said.endswith("; --isolation loopback works without them\n")


async def test_the_real_sshd_needs_namespaces(tmp_path: Path) -> None:
    with pytest.raises(NoNamespaces, match="--real-ssh needs --isolation namespaces"):
        await choose("loopback", tmp_path, real_ssh=True)
