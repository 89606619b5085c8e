"""When an environment is created again, when it is not changed, and the error if it cannot be created.

Nothing is installed here: the commands are recorded instead of run.
"""

import sys
from pathlib import Path

import pytest

from tools import venv

LOCK = "alpha==1.0 \\\n    --hash=sha256:00\n    # via beta\ntorch==2.0 ; sys_platform == 'linux' \\\n    --hash=sha256:01\n"


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for project in venv.PROJECTS:
        (tmp_path / project).mkdir(parents=True, exist_ok=True)
        (tmp_path / project / "pyproject.toml").touch()
    path = tmp_path / "lock.txt"
    path.write_text(LOCK)
    return path


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str]]]:
    recorded: list[tuple[str, list[str]]] = []

    def record(what: str, command: list[str]) -> int:
        recorded.append((what, command))
        if "venv" in command:
            python = Path(command[-1]) / "bin" / "python"
            python.parent.mkdir(parents=True)
            python.symlink_to(sys.executable)
        return 0

    monkeypatch.setattr(venv, "run_with_progress", record)
    return recorded


def test_a_new_environment_gets_the_lock_and_then_the_project(
    lock: Path, commands: list[tuple[str, list[str]]]
) -> None:
    assert venv.main(Path("env"), lock) == 0

    assert [what for what, _ in commands] == [
        "creating env",
        f"installing 2 packages from {lock}, about 3 GB because of torch",
        "installing this project",
    ]
    assert "--require-hashes" in commands[1][1]
    assert commands[2][1][-3:] == ["./deploy/operator", "--editable", "."]


def test_an_up_to_date_environment_is_unchanged(lock: Path, commands: list[tuple[str, list[str]]]) -> None:
    venv.main(Path("env"), lock)
    commands.clear()

    assert venv.main(Path("env"), lock) == 0
    assert commands == []


def test_a_changed_lock_is_installed_into_the_existing_environment(
    lock: Path, commands: list[tuple[str, list[str]]]
) -> None:
    venv.main(Path("env"), lock)
    commands.clear()
    lock.write_text("alpha==2.0 \\\n    --hash=sha256:02\n")

    venv.main(Path("env"), lock)

    assert [what for what, _ in commands] == [f"installing 1 packages from {lock}", "installing this project"]


def test_an_environment_of_another_python_is_not_changed(
    lock: Path, commands: list[tuple[str, list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    venv.main(Path("env"), lock)
    commands.clear()
    monkeypatch.setattr(sys, "version", "of another")

    venv.main(Path("env"), lock)

    assert commands == []


def test_an_environment_whose_python_has_changed_is_updated(
    lock: Path, commands: list[tuple[str, list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    venv.main(Path("env"), lock)
    commands.clear()
    monkeypatch.setattr(venv, "version_of", lambda python: "another")

    venv.main(Path("env"), lock)

    assert len(commands) == 2


def test_an_environment_whose_python_is_missing_is_created_again(
    lock: Path, commands: list[tuple[str, list[str]]]
) -> None:
    venv.main(Path("env"), lock)
    commands.clear()
    Path("env/bin/python").unlink()

    venv.main(Path("env"), lock)

    assert commands[0][0] == "creating env"


def test_a_failed_install_is_repeated(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(venv, "usable", lambda python: True)
    monkeypatch.setattr(venv, "run_with_progress", lambda what, command: 1)

    with pytest.raises(SystemExit, match="error: installing 2 packages"):
        venv.main(Path("env"), lock)
    assert not Path("env", venv.STAMP).exists()


def test_a_missing_venv_module_is_reported_with_its_package(
    lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(venv, "run_with_progress", lambda what, command: 1)

    with pytest.raises(SystemExit, match="apt-get install python3-venv"):
        venv.main(Path("env"), lock)


def test_a_python_that_does_not_run_is_not_usable(tmp_path: Path) -> None:
    assert venv.usable(Path(sys.executable))
    assert not venv.usable(tmp_path / "python")
