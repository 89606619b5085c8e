"""The files of ended jobs."""

import os
from pathlib import Path
from typing import Any

import pytest

from rallypoint.cli.ui import history as histories
from rallypoint.cli.ui.history import History


def document(uid: str) -> dict[str, Any]:
    return {"uid": uid, "id": f"PyTorchJob/default/{uid}", "name": uid, "state": "Failed", "events": []}


def test_a_record_is_private_and_has_a_row(tmp_path: Path) -> None:
    history = History(tmp_path / "jobs")

    history.write(document("a"))

    assert (tmp_path / "jobs").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "jobs" / "a.json").stat().st_mode & 0o777 == 0o600
    assert history.read("a") == document("a")
    assert [(row["name"], row["state"], row.get("events")) for row in history.rows()] == [
        ("a", "Failed", None)
    ]


def test_the_oldest_records_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histories, "MAX_JOBS", 2)
    history = History(tmp_path / "jobs")
    for age, uid in enumerate(["a", "b", "c"]):
        history.write(document(uid))
        os.utime(tmp_path / "jobs" / f"{uid}.json", (1000 + age, 1000 + age))
    history.write(document("d"))

    assert [row["uid"] for row in history.rows()] == ["d", "c"]


@pytest.mark.parametrize("uid", ["../a", "..", "a/b", "", "a" * 65, "a\n"])
def test_only_uids_are_read(tmp_path: Path, uid: str) -> None:
    (tmp_path / "a.json").write_text("{}")

    assert History(tmp_path / "jobs").read(uid) is None


def test_a_broken_record_is_left_out(tmp_path: Path) -> None:
    history = History(tmp_path / "jobs")
    history.write(document("a"))
    (tmp_path / "jobs" / "b.json").write_text("{")

    assert [row["uid"] for row in history.rows()] == ["a"]
