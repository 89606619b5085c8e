"""The check whether a user can create nodes on a machine, and its errors."""

import os
from pathlib import Path

import pytest

from rallypoint.testing.cluster import cgroups, machine
from rallypoint.testing.controlplane import Unavailable


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The existing control groups; none is really created."""
    there: list[str] = []
    monkeypatch.setattr(cgroups, "make", there.append)
    monkeypatch.setattr(cgroups, "remove", lambda name: there.remove(name) if name in there else None)
    return there


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, **programs: str) -> None:
    """Make these scripts the only programs on PATH."""
    for name, script in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def test_users_other_than_root_get_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    with pytest.raises(Unavailable, match="requires root"):
        machine.check()


@pytest.mark.usefixtures("root")
def test_the_error_names_the_rejected_operation(
    groups: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuses = "echo 'unshare failed: Operation not permitted' >&2; exit 1"
    install(tmp_path, monkeypatch, ip="exit 0", unshare=refuses)

    with pytest.raises(
        Unavailable, match="root cannot create nodes on this machine: unshare failed: Operation not"
    ):
        machine.check()
    assert groups == []


@pytest.mark.usefixtures("root")
def test_a_missing_tool_is_named(groups: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, ip="exit 0")

    with pytest.raises(Unavailable, match="No such file or directory: 'unshare'"):
        machine.check()


@pytest.mark.usefixtures("root")
def test_the_check_leaves_the_machine_unchanged(
    groups: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = tmp_path / "done"
    install(tmp_path, monkeypatch, ip=f'echo "$2" >> {done}', unshare=f"echo unshare >> {done}")

    machine.check()

    assert groups == []
    assert done.read_text().split() == ["delete", "add", "add", "set", "unshare", "delete"]
