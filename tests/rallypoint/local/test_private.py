"""Private files and folders, and obstacles that another account can create."""

import os
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from rallypoint.cli import main
from rallypoint.local import private
from rallypoint.local.apiserver.storage.journal import Journal, JournalError
from rallypoint.local.node.sandbox.namespaces import Namespaces

OTHER = 1001
ROOT_ALONE = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as a second account")
Make = Callable[[Path], Path]


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A folder of the person's that others may enter, with a file that others may read."""
    folder = tmp_path / "theirs"
    folder.mkdir(mode=0o755)
    (folder / "file").write_text("kept")
    return folder


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_folder_that_was_there_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "logs"
    path.mkdir(mode=0o755)

    assert mode(private.folder(path)) == 0o700


def test_a_file_that_was_there_is_closed_and_keeps_what_it_says(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("kept")
    path.chmod(0o644)

    assert mode(private.file(path)) == 0o600
    assert path.read_text() == "kept"


@pytest.mark.parametrize(
    ("make", "target"),
    [
        pytest.param(private.folder, "", id="a folder"),
        pytest.param(private.file, "file", id="a file"),
        pytest.param(private.folder, "missing", id="a folder that is not there"),
        pytest.param(private.file, "missing", id="a file that is not there"),
    ],
)
def test_a_link_is_refused(theirs: Path, tmp_path: Path, make: Make, target: str) -> None:
    link, meant = tmp_path / "logs", theirs / target
    link.symlink_to(meant)
    before = mode(meant) if meant.exists() else None
    with pytest.raises(private.NotOurs, match="it is a symbolic link; remove it or choose another folder"):
        make(link)

    assert (mode(meant) if meant.exists() else None) == before


@ROOT_ALONE
def test_a_folder_of_another_account_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "logs"
    path.mkdir()
    os.chown(path, OTHER, OTHER)
    with pytest.raises(private.NotOurs, match="it belongs to another account"):
        private.folder(path)


@ROOT_ALONE
def test_a_file_of_another_account_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    os.chown(path, OTHER, OTHER)
    with pytest.raises(private.NotOurs, match="it belongs to another account"):
        private.file(path)


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    os.mkfifo(path)
    with pytest.raises(private.NotOurs, match="it is no file"):
        private.file(path)


def test_the_journal_does_not_follow_links(theirs: Path, tmp_path: Path) -> None:
    path = tmp_path / "objects.sqlite"
    path.symlink_to(theirs / "file")
    with pytest.raises(JournalError, match=r"objects\.sqlite: it is a symbolic link"):
        Journal(path)

    assert (theirs / "file").read_text() == "kept"


@pytest.mark.parametrize("name", ["logs", "claims", "controller.log"])
@pytest.mark.parametrize("command", [["run", "job.yaml", "--run-dir"], ["up", "--data"]], ids=["run", "up"])
def test_a_command_does_not_begin_in_a_folder_with_a_link(
    theirs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str], name: str
) -> None:
    given = tmp_path / "given"
    given.mkdir(mode=0o777)
    (given / name).symlink_to(theirs / "file" if name == "controller.log" else theirs)

    assert main([*command, str(given)]) == 1
    assert f"{given / name}: it is a symbolic link" in capsys.readouterr().err
    assert (mode(theirs), (theirs / "file").read_text()) == (0o755, "kept")


async def test_nothing_runs_if_the_folder_of_pods_cannot_be_created(theirs: Path, tmp_path: Path) -> None:
    link = tmp_path / "volumes"
    link.symlink_to(theirs)
    before = psutil.Process().children()
    with pytest.raises(private.NotOurs):
        await Namespaces.open(link)

    assert psutil.Process().children() == before
