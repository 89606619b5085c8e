"""What ``bench controlplane --compare`` rejects before it measures."""

import pytest

from bench.__main__ import main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["--scenario=10-own"], "10-own: a comparison has scenarios of jobs alone", id="a start"),
        pytest.param(["--scenario=1x8-per-job"], "modes of Services are flags", id="a mode of Services"),
        pytest.param(["--profile"], "a comparison has no profile", id="a profile"),
    ],
)
def test_a_comparison_of_other_things_is_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["controlplane", "--compare=go", *arguments]) == 1

    assert message in " ".join(capsys.readouterr().err.split())


def test_a_commit_that_does_not_exist_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["controlplane", "--compare=no-such-commit", "--no-record"]) == 1

    assert "no-such-commit is no commit of this repository" in " ".join(capsys.readouterr().err.split())
