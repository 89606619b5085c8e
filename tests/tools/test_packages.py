"""Installing packages: what is installed, the message without permissions, and waiting for held locks.

Nothing is installed here.
"""

from collections.abc import Sequence

import pytest

from tools import packages

LISTS_LOCKED = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)\n"


class Apt:
    """Records commands and returns these results first, then success."""

    def __init__(self) -> None:
        self.commands: list[list[str]] = []
        self.results: list[tuple[int, str]] = []
        self.slept_seconds = 0.0

    def run(self, command: Sequence[str]) -> tuple[int, str]:
        self.commands.append(list(command))
        return self.results.pop(0) if self.results else (0, "")

    def sleep(self, seconds: float) -> None:
        self.slept_seconds += seconds


@pytest.fixture
def apt(monkeypatch: pytest.MonkeyPatch) -> Apt:
    """Of the packages, ``there`` is installed. This process is root."""
    apt = Apt()
    monkeypatch.setattr(packages, "is_installed", lambda name: name == "there")
    monkeypatch.setattr(packages, "run", apt.run)
    monkeypatch.setattr("tools.packages.shutil.which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr("tools.packages.os.geteuid", lambda: 0)
    monkeypatch.setattr("tools.packages.time.sleep", apt.sleep)
    return apt


def test_nothing_is_installed_when_all_packages_are(apt: Apt) -> None:
    assert packages.main(["there"]) == 0
    assert apt.commands == []


def test_root_installs_missing_packages(apt: Apt) -> None:
    assert packages.main(["there", "mpich"]) == 0
    assert apt.commands == [[*packages.UPDATE], [*packages.INSTALL, "mpich"]]


def test_a_user_with_sudo_installs_missing_packages(apt: Apt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.packages.os.geteuid", lambda: 1000)
    monkeypatch.setattr("tools.packages.subprocess.call", lambda *_, **__: 0)

    assert packages.main(["mpich"]) == 0
    assert apt.commands[-1] == ["sudo", "--non-interactive", *packages.INSTALL, "mpich"]


@pytest.mark.parametrize(
    "locked",
    [
        pytest.param(LISTS_LOCKED, id="lock of the lists"),
        pytest.param(
            "E: Could not get lock /var/cache/apt/archives/lock. It is held by process 7 (apt-get)\n",
            id="lock of the archives",
        ),
        pytest.param("E: Unable to lock the administration directory (/var/lib/dpkg/)\n", id="lock of dpkg"),
    ],
)
def test_the_command_waits_for_a_lock_of_another_program(
    apt: Apt, locked: str, capsys: pytest.CaptureFixture[str]
) -> None:
    apt.results = [(100, locked), (100, locked), (0, "")]

    assert packages.main(["mpich"]) == 0
    assert apt.commands == [[*packages.UPDATE]] * 3 + [[*packages.INSTALL, "mpich"]]
    assert capsys.readouterr().out.count("waiting up to 900 s") == 1


def test_a_lock_that_is_never_released_is_an_error(apt: Apt) -> None:
    apt.results = [(0, "")] + [(100, LISTS_LOCKED)] * 1000

    assert packages.main(["mpich"]) == 100
    assert apt.slept_seconds == packages.LOCK_SECONDS


def test_other_errors_are_not_retried(apt: Apt) -> None:
    apt.results = [(0, ""), (100, "E: Unable to locate package mpich\n")]

    assert packages.main(["mpich"]) == 100
    assert apt.slept_seconds == 0


def test_the_errors_of_apt_are_returned_and_printed(capfd: pytest.CaptureFixture[str]) -> None:
    status, errors = packages.run(["sh", "-c", "echo out; echo E: no >&2; exit 3"])

    assert (status, errors) == (3, "E: no\n")
    assert capfd.readouterr().out.splitlines() == ["out", "E: no"]


def test_a_user_without_root_gets_the_command_to_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(packages, "is_installed", lambda _: False)
    monkeypatch.setattr(packages, "as_root", lambda: None)
    monkeypatch.setattr("tools.packages.shutil.which", lambda _: "/usr/bin/dpkg-query")

    assert packages.main(["a", "b"]) == 1
    assert capsys.readouterr().out == "error: missing: a b; as root: apt-get install a b\n"


def test_without_dpkg_nothing_is_looked_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tools.packages.shutil.which", lambda _: None)

    assert packages.main(["a"]) == 1
    assert "this is no Debian" in capsys.readouterr().out
