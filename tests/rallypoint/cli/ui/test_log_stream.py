"""Lines of logs as the page shows them."""

from array import array
from pathlib import Path

import pytest

from rallypoint.cli.ui import log_stream
from rallypoint.cli.ui.log_stream import (
    LONGEST_LINE,
    _Unsent,
    archived_lines,
    archived_lines_of_job,
    clean,
    earlier_lines,
)
from rallypoint.local.log_archive import LogArchive, record

KEY = ("PyTorchJob", "default", "j")


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (b"plain", "plain"),
        (b"\x1b[31mred\x1b[0m", "red"),
        (b" 10%\r 20%\r 30%\r", " 30%"),
        (b"\tindented", "\tindented"),
        (b"\xff", "\ufffd"),
        (b"x" * 5000, "x" * LONGEST_LINE + "…"),
    ],
)
def test_a_line_is_what_a_terminal_shows(line: bytes, shown: str) -> None:
    assert clean(line) == shown


def test_a_slow_browser_misses_the_oldest_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_stream, "MAX_UNSENT_LINES", 2)
    unsent = _Unsent()
    write = unsent.writer({"metadata": {"name": "p"}}, "main")

    write(b"1\n2\n3\n4\n")

    assert unsent.take() == [("", "… 2 lines are left out"), ("p", "3"), ("p", "4")]
    assert unsent.take() == []


def test_lines_of_several_pods_are_ordered_by_time() -> None:
    unsent = _Unsent()
    for name, data in (
        ("a", b"2026-01-01T00:00:01Z 1\n2026-01-01T00:00:04.5Z 4\nno time\n"),
        ("b", b"2026-01-01T01:00:02.000000001+01:00 2\n2026-01-01T00:00:03Z 3\n"),
    ):
        unsent.writer({"metadata": {"name": name}}, "main")(data)

    assert unsent.take() == [("a", "1"), ("b", "2"), ("b", "3"), ("a", "4"), ("a", "no time")]


def archive(folder: Path) -> LogArchive:
    """An archive with a pod of the job ``j``, beside a file that is no log of it."""
    owner = {"kind": "PyTorchJob", "name": "j", "uid": "job", "controller": True}
    metadata = {"name": "j-master-0", "namespace": "default", "uid": "u", "ownerReferences": [owner]}
    found = folder / "logs" / "default_j-master-0_u"
    for name, text in ((found / "main", "1\n2\n"), (folder / "other", "secret\n")):
        name.mkdir(parents=True)
        (name / "0.log").write_text(text)
    (found / "pod.json").write_bytes(
        record({"metadata": metadata, "spec": {"containers": [{"name": "main"}]}})
    )
    return LogArchive(folder / "logs")


def test_the_log_of_a_deleted_pod(tmp_path: Path) -> None:
    assert archived_lines(archive(tmp_path), KEY, "u", "main") == [("j-master-0", "1"), ("j-master-0", "2")]


@pytest.mark.parametrize("container", ["", "unknown", "../../../other", "{folder}/other"])
def test_a_container_is_no_path(tmp_path: Path, container: str) -> None:
    found = archived_lines(archive(tmp_path), KEY, "u", container.format(folder=tmp_path))

    assert [line for _, line in found] == ["1", "2"]


@pytest.mark.parametrize("key", [("TFJob", "default", "j"), ("PyTorchJob", "default", "other")])
def test_a_pod_is_shown_in_its_job_only(tmp_path: Path, key: tuple[str, str, str]) -> None:
    assert archived_lines(archive(tmp_path), key, "u", "main") == []


def test_of_a_large_log_the_end_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_stream, "TAIL_BYTES", 2)

    assert archived_lines(archive(tmp_path), KEY, "u", "main") == [("j-master-0", "2")]


def test_the_logs_of_a_deleted_job_are_ordered_by_time(tmp_path: Path) -> None:
    found = archive(tmp_path)
    (pod,) = found.pods("default")
    for run, text, times in ((0, "1\n2\n", [1.0, 4.0]), (1, "3\n", [2.0])):
        (pod.folder / "main" / f"{run}.log").write_text(text)
        offsets = array("Q", [0, 2][: len(times)])
        (pod.folder / "main" / f"{run}.times").write_bytes(offsets.tobytes() + array("d", times).tobytes())

    owner = {
        "kind": "PyTorchJob",
        "metadata": {"name": "j", "namespace": "default", "uid": "job", "creationTimestamp": ""},
    }

    assert [line for _, line in archived_lines_of_job(found, KEY, "job")] == ["1", "3", "2"]
    assert archived_lines_of_job(found, KEY, "other") == []
    assert archived_lines(found, KEY, "u", "main", 0) == [("j-master-0", "1"), ("j-master-0", "2")]
    assert archived_lines(found, KEY, "u", "main", 1) == [("j-master-0", "3")]
    assert archived_lines(found, KEY, "u", "main", 2) == []
    assert [line for _, line in earlier_lines(found, owner, [])] == ["1", "3", "2"]
    assert [line for _, line in earlier_lines(found, owner, ["u"])] == ["1", "2"]
