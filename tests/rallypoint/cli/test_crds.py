"""``rallypoint crds`` without a cluster; with one it is tested in tests/integration."""

from pathlib import Path

import pytest
import yaml

from controller.crds import all_crds
from controller.kinds import DEFAULT
from rallypoint.cli import main


def run(*argv: str) -> int:
    return main(["crds", *argv])


def test_prints_every_definition(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0

    assert list(yaml.load_all(capsys.readouterr().out, Loader=yaml.CSafeLoader)) == all_crds(kinds=DEFAULT)


def test_writes_a_file_per_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--output", str(tmp_path)) == 0

    assert sorted(capsys.readouterr().out.split()) == sorted(str(path) for path in tmp_path.iterdir())
    assert (tmp_path / "kubeflow.org_pytorchjobs.yaml").is_file()


def test_names_a_missing_kubeconfig(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--from-cluster", "--kubeconfig", str(tmp_path / "none.yaml")) == 1

    assert "none.yaml" in capsys.readouterr().err


def test_names_a_folder_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()

    assert run("--output", str(tmp_path / "file")) == 1

    assert str(tmp_path / "file") in capsys.readouterr().err


def test_names_a_server_that_does_not_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = {"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    config = {
        "current-context": "c",
        "clusters": [cluster],
        "contexts": [context],
        "users": [{"name": "u", "user": {}}],
    }
    (tmp_path / "config").write_text(yaml.safe_dump(config))

    assert run("--from-cluster", "--kubeconfig", str(tmp_path / "config")) == 1
    assert "cannot connect to 127.0.0.1:1: Connection refused; " in capsys.readouterr().err
