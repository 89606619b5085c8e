"""Which build of the operator runs."""

import json
import subprocess
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest

from controller.telemetry import build

ROOT = Path(__file__).parents[3]


def test_the_image_names_its_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Dockerfile sets the variable that the operator reads."""
    monkeypatch.setenv(build.COMMIT_VARIABLE, "4f0ec42")

    assert build.operator_commit() == "4f0ec42"
    assert f"ENV {build.COMMIT_VARIABLE}=" in (ROOT / "Dockerfile").read_text()


def test_an_installation_from_a_repository_names_its_commit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(build.COMMIT_VARIABLE, raising=False)
    origin = {"url": "https://git.example.com/rallypoint", "vcs_info": {"vcs": "git", "commit_id": "abc"}}
    (tmp_path / "direct_url.json").write_text(json.dumps(origin))
    monkeypatch.setattr(build, "distribution", lambda name: PathDistribution(tmp_path))

    assert build.operator_commit() == "abc"


def test_a_wheel_names_its_commit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A wheel that was installed from a repository has both; its own is that of the files in it."""
    monkeypatch.delenv(build.COMMIT_VARIABLE, raising=False)
    (tmp_path / "extra_metadata").mkdir()
    (tmp_path / "extra_metadata" / "COMMIT").write_text("4f0ec42-dirty\n")
    (tmp_path / "direct_url.json").write_text(json.dumps({"vcs_info": {"commit_id": "abc"}}))
    monkeypatch.setattr(build, "distribution", lambda name: PathDistribution(tmp_path))

    assert build.commit("rallypoint") == "4f0ec42-dirty"


def test_a_checkout_has_its_own_commit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(build.COMMIT_VARIABLE, raising=False)
    monkeypatch.setattr(build, "distribution", lambda name: PathDistribution(tmp_path))
    monkeypatch.setattr(build, "_CHECKOUT", tmp_path)
    author = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    for command in (["init", "--quiet"], [*author, "commit", "--quiet", "--allow-empty", "--message=first"]):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    reference = (tmp_path / ".git" / "HEAD").read_text().removeprefix("ref: ").strip()

    assert build.operator_commit() == (tmp_path / ".git" / reference).read_text().strip()


def test_without_any_source_the_commit_is_unknown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(build.COMMIT_VARIABLE, raising=False)
    monkeypatch.setattr(build, "_CHECKOUT", tmp_path)
    monkeypatch.setattr(build, "distribution", lambda name: PathDistribution(tmp_path))

    assert build.operator_commit() == build.UNKNOWN
