"""Flags of the commands that run a local cluster: the resources of its node."""

import argparse
import errno
from pathlib import Path

import pytest

from rallypoint.cli import main
from rallypoint.cli.local_flags import (
    add_flags,
    controller_log,
    describe_os_error,
    labels,
    node_config_of,
    settings_of,
)
from rallypoint.local.cluster import NodeConfig
from rallypoint.local.node.containers.images import Image
from tests.support.file_size import largest_file


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    return parser.parse_args(arguments)


def test_defaults() -> None:
    assert node_config_of(parsed()) == NodeConfig()
    assert settings_of(parsed()).gang_scheduler_name == ""
    assert settings_of(parsed()).services == "per-replica"


def test_the_controller_gets_the_mode_of_services() -> None:
    assert settings_of(parsed("--services", "per-job")).services == "per-job"


def test_an_unknown_mode_of_services_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        parsed("--services", "none")
    assert "invalid choice: 'none'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        pytest.param("Volcano", "volcano", id="volcano in any case"),
        pytest.param("coscheduling", "coscheduling", id="coscheduling"),
        pytest.param("None", "", id="none, as the original spells it"),
    ],
)
def test_the_controller_and_the_local_cluster_have_the_same_gang_scheduler(written: str, meant: str) -> None:
    args = parsed("--gang-scheduler-name", written)

    assert (node_config_of(args).gang_scheduler, settings_of(args).gang_scheduler_name) == (meant, meant)


def test_an_unknown_scheduler_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        parsed("--gang-scheduler-name", "Bad_Name")
    assert "'Bad_Name' is not the name of a scheduler" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["kubernetes", "YuniKorn"])
def test_a_scheduler_that_only_real_clusters_have_is_rejected(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        parsed("--gang-scheduler-name", name)
    assert f"the gangs of {name.lower()} need a real cluster" in capsys.readouterr().err


def test_images(tmp_path: Path) -> None:
    given = parsed(f"--image=a={tmp_path}", f"--image=b:1={tmp_path}")

    assert given.images == {"a": Image(tmp_path), "b:1": Image(tmp_path)}
    assert parsed().images == {}


def test_an_image_has_a_single_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        parsed(f"--image=a={tmp_path}", f"--image=a:latest={tmp_path}")
    assert "argument --image: a:latest is given twice" in capsys.readouterr().err


def test_labels() -> None:
    assert labels("pool=a,example.com/kind=,") == {"pool": "a", "example.com/kind": ""}


@pytest.mark.parametrize("text", ["a", "=a", "a=b c", "a/b/c=d", "-a=b"])
def test_an_invalid_label_is_rejected(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a label such as KEY=VALUE"):
        labels(text)


@pytest.mark.looptime(False)
def test_missing_gpus_are_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("rallypoint.local.cluster.nvml", lambda: None)
    monkeypatch.chdir(tmp_path)

    assert main(["up", "--gpus", "2", "--run-dir", str(tmp_path)]) == 1
    assert capsys.readouterr().err == "rallypoint up: --gpus 2: there are 0\n"


def test_a_full_disk_costs_only_lines_of_the_log_of_the_controller(tmp_path: Path) -> None:
    with largest_file(0), controller_log(tmp_path, "w") as log_file:
        log_file.write("a line")

    assert log_file.closed
    assert (tmp_path / "controller.log").read_text() == ""


@pytest.mark.parametrize(
    ("error", "text"),
    [
        pytest.param(OSError(errno.ENOSPC, "No space"), "/run: No space", id="a full disk"),
        pytest.param(OSError(errno.ENOSPC, "No space", "a", None, "/run/b"), "/run: No space", id="a copy"),
        pytest.param(OSError(errno.ENOSPC, "No space", "/tmp/a"), "/tmp/a: No space", id="another disk"),
        pytest.param(OSError(errno.ENOENT, "None", "/run/a"), "/run/a: None", id="a file"),
        pytest.param(OSError(errno.EADDRINUSE, "in use"), "in use", id="no file"),
    ],
)
def test_an_error_names_the_file_and_a_full_disk_the_folder(error: OSError, text: str) -> None:
    assert describe_os_error(error, Path("/run")) == text
