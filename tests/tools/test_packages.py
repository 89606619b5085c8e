"""What is installed, and what is said where nothing may be installed. Nothing is installed here."""

import pytest

from tools import packages


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What would be run; of the packages, ``there`` is installed."""
    recorded: list[list[str]] = []
    monkeypatch.setattr(packages, "is_installed", lambda name: name == "there")
    monkeypatch.setattr("tools.packages.shutil.which", lambda name: f"/usr/bin/{name}")

    def call(command: list[str], **_: object) -> int:
        recorded.append(command)
        return 0

    monkeypatch.setattr("tools.packages.subprocess.call", call)
    return recorded


def test_nothing_is_done_when_all_are_there(commands: list[list[str]]) -> None:
    assert packages.main(["there"]) == 0
    assert commands == []


def test_root_installs_what_is_missing(commands: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.packages.os.geteuid", lambda: 0)

    assert packages.main(["there", "mpich"]) == 0
    assert commands == [["apt-get", "update", "--quiet"], [*packages.INSTALL, "mpich"]]


def test_a_user_with_sudo_does_as_well(commands: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.packages.os.geteuid", lambda: 1000)

    assert packages.main(["mpich"]) == 0
    assert commands[-1] == ["sudo", "--non-interactive", *packages.INSTALL, "mpich"]


def test_others_are_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(packages, "is_installed", lambda _: False)
    monkeypatch.setattr(packages, "installer", lambda: None)
    monkeypatch.setattr("tools.packages.shutil.which", lambda _: "/usr/bin/dpkg-query")

    assert packages.main(["a", "b"]) == 1
    assert capsys.readouterr().out == (
        "error: missing: a b; as root: apt-get install --yes --no-install-recommends a b\n"
    )


def test_elsewhere_it_is_said_that_nothing_can_be_looked_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tools.packages.shutil.which", lambda _: None)

    assert packages.main(["a"]) == 1
    assert "this is no Debian" in capsys.readouterr().out
