"""``rallypoint --version``."""

from importlib.metadata import version

import pytest

from controller.telemetry import build
from rallypoint.cli import main


def test_the_version_names_the_commit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(build.COMMIT_VARIABLE, "4f0ec42")
    with pytest.raises(SystemExit) as ended:
        main(["--version"])

    assert ended.value.code == 0
    assert capsys.readouterr().out == f"rallypoint {version('rallypoint')} (commit 4f0ec42)\n"
