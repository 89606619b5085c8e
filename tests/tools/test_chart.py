"""The files of the Helm chart are up to date with ``manifests``; tests/chart renders and installs it with the real helm."""

from pathlib import Path

import pytest

from tools.chart.__main__ import CHART, files, main


def test_the_chart_is_up_to_date() -> None:
    """If this fails, run ``make deploy``."""
    found = {
        str(path.relative_to(CHART)): path.read_text(encoding="utf-8")
        for path in CHART.rglob("*")
        if path.is_file()
    }

    assert found == files()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--version=1.2"], "--version: version '1.2'"),
        (["--version=1.2.3", "--digest=abc"], "--digest: 'abc' is not sha256:"),
    ],
)
def test_a_bad_argument_is_refused(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["package", f"--output={tmp_path}", *arguments])

    assert message in capsys.readouterr().err
