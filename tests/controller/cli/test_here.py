"""Flags of the commands that are a site themselves: what it has for pods."""

import argparse
from pathlib import Path

import pytest

from controller.cli import main
from controller.cli.here import add_flags, labels, offer_of, settings_of
from controller.local.site import Offer


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    return parser.parse_args(arguments)


def test_without_flags_there_is_nothing_special() -> None:
    assert offer_of(parsed()) == Offer()
    assert settings_of(parsed()).gang_scheduler_name == ""


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        pytest.param("Volcano", "volcano", id="volcano in any case"),
        pytest.param("coscheduling", "coscheduling", id="another one"),
        pytest.param("None", "", id="none, as the original spells it"),
    ],
)
def test_the_controller_and_the_site_have_the_same_gang_scheduler(written: str, meant: str) -> None:
    args = parsed("--gang-scheduler-name", written)

    assert (offer_of(args).gang_scheduler, settings_of(args).gang_scheduler_name) == (meant, meant)


def test_labels() -> None:
    assert labels("pool=a,example.com/kind=,") == {"pool": "a", "example.com/kind": ""}


@pytest.mark.parametrize("text", ["=a", "a=b c", "a/b/c=d", "-a=b"])
def test_what_is_no_label(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a label such as KEY=VALUE"):
        labels(text)


@pytest.mark.looptime(False)
def test_gpus_that_are_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("controller.local.site.nvml", lambda: None)
    monkeypatch.chdir(tmp_path)

    assert main(["up", "--gpus", "2", "--run-dir", str(tmp_path)]) == 1
    assert capsys.readouterr().err == "rallypoint up: --gpus 2: there are 0\n"
