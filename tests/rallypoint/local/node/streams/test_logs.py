"""Logs while they are written."""

import asyncio
import io
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from rallypoint.local.node.streams import logs
from rallypoint.local.node.streams.logs import Log, Logs, NoLog, Selection
from tests.support.file_size import largest_file

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
POD: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "default", "uid": "u"},
    "spec": {"containers": [{"name": "main"}]},
}


async def text(log: Log, **selection: Any) -> str:
    return b"".join([piece async for piece in log.read(Selection(**selection))]).decode()


@pytest.fixture
def log(tmp_path: Path) -> Log:
    log = Log(tmp_path / "x" / "0.log")
    for second, piece in enumerate([b"one\ntw", b"o\nthree\n", b"four"]):
        log.write(piece, NOW + timedelta(seconds=second))
    log.close()
    return log


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        pytest.param({}, "one\ntwo\nthree\nfour", id="all"),
        pytest.param({"tail_lines": 2}, "three\nfour", id="the last lines"),
        pytest.param({"tail_lines": 0}, "", id="no lines"),
        pytest.param({"tail_lines": 99}, "one\ntwo\nthree\nfour", id="more lines than there are"),
        pytest.param({"limit_bytes": 5}, "one\nt", id="the first bytes"),
        pytest.param({"since": NOW + timedelta(seconds=2)}, "four", id="since a time"),
        pytest.param({"since": NOW + timedelta(seconds=3)}, "", id="since a time after the end"),
        pytest.param(
            {"tail_lines": 1, "timestamps": True}, "2026-01-01T12:00:02.000000Z four", id="with times"
        ),
    ],
)
async def test_read(log: Log, selection: dict[str, Any], expected: str) -> None:
    assert await text(log, **selection) == expected


async def test_a_line_has_the_time_of_its_first_piece(log: Log) -> None:
    lines = (await text(log, timestamps=True)).splitlines()

    assert [line[17:19] for line in lines] == ["00", "00", "01", "02"]


async def test_follow_until_the_container_ends(tmp_path: Path) -> None:
    log = Log(tmp_path / "0.log")
    log.write(b"before\n", NOW)
    reading = asyncio.create_task(text(log, follow=True))
    await asyncio.sleep(1)
    log.write(b"after\n", NOW)
    await asyncio.sleep(1)
    assert not reading.done()
    log.close()

    assert await reading == "before\nafter\n"


async def test_runs_of_a_container(tmp_path: Path) -> None:
    logs, heard = Logs(tmp_path), []
    logs.listen(
        lambda pod, container, data: heard.append((pod["metadata"]["name"], container, data)),
        lambda *_: None,
    )
    for attempt in range(2):
        log = logs.open(POD, "main", attempt)
        logs.write(POD, "main", log, f"run {attempt}".encode(), NOW)
        logs.close(POD, "main", log)

    assert await text(logs.of(POD, "main")) == "run 1"
    assert await text(logs.of(POD, "main", previous=True)) == "run 0"
    assert [data for _, _, data in heard] == [b"run 0", b"", b"run 1", b""]
    assert logs.path(POD, "main", 1) == tmp_path / "default_p_u" / "main" / "1.log"


async def test_listeners_get_what_a_full_disk_loses_and_the_reason_once(tmp_path: Path) -> None:
    logs, heard, losses = Logs(tmp_path), bytearray(), list[str]()
    logs.listen(
        lambda _, __, data: heard.extend(data), lambda _, container, why: losses.append(f"{container}: {why}")
    )
    log = logs.open(POD, "main", 0)
    with capture_logs(), largest_file(12):
        for line in (b"epoch 1\n", b"epoch 2\n", b"epoch 3\n"):
            logs.write(POD, "main", log, line, NOW)
        logs.close(POD, "main", log)

    assert bytes(heard) == b"epoch 1\nepoch 2\nepoch 3\n"
    assert losses == ["main: File too large"]
    assert await text(log) == "epoch 1\nepoc"


async def test_the_times_of_lines_outlast_the_process(log: Log) -> None:
    again = Log(log.path, ended=True)

    assert await text(again, timestamps=True) == await text(log, timestamps=True)
    assert await text(again, since=NOW + timedelta(seconds=2)) == "four"


@pytest.mark.parametrize("content", [None, b"", b"123", b"12345678"], ids=["none", "empty", "short", "odd"])
async def test_a_log_without_times_has_that_of_its_file(log: Log, content: bytes | None) -> None:
    times = log.path.with_suffix(".times")
    times.unlink() if content is None else times.write_bytes(content)
    again = Log(log.path, ended=True)
    stamps = {line.partition(" ")[0] for line in (await text(again, timestamps=True)).splitlines()}

    assert not again.has_times
    assert len(stamps) == 1


def test_a_run_without_output_has_lost_no_times(tmp_path: Path) -> None:
    Log(tmp_path / "0.log").close()

    assert Log(tmp_path / "0.log", ended=True).has_times


UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/1 nodes are available: 1 Insufficient cpu.",
}
MISSING = {"name": "main", "state": {"waiting": {"reason": "CreateContainerConfigError", "message": "no"}}}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param({}, "is waiting to start: ContainerCreating", id="not started"),
        pytest.param(
            {"containerStatuses": [MISSING]},
            "is waiting to start: CreateContainerConfigError",
            id="a ConfigMap is missing",
        ),
        pytest.param(
            {"phase": "Pending", "conditions": [UNSCHEDULABLE]},
            "is waiting to start: Unschedulable: 0/1 nodes are available: 1 Insufficient cpu.",
            id="no node",
        ),
        pytest.param(
            {"phase": "Failed", "reason": "Refused", "message": "no command", "containerStatuses": [MISSING]},
            "is not available: Refused: no command",
            id="refused",
        ),
    ],
)
def test_the_reason_why_there_is_no_log(tmp_path: Path, status: dict[str, Any], expected: str) -> None:
    with pytest.raises(NoLog) as raised:
        Logs(tmp_path).of({**POD, "status": status}, "main")

    assert str(raised.value) == f'container "main" in pod "p" {expected}'


async def test_a_run_that_did_not_start_has_no_log(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    first = logs.open(POD, "main", 0)
    logs.write(POD, "main", first, b"run 0", NOW)
    logs.close(POD, "main", first)
    failed = logs.open(POD, "main", 1)
    reading = asyncio.create_task(text(failed, follow=True))
    await asyncio.sleep(1)
    logs.discard_run(POD, "main", failed)

    assert await reading == ""
    assert await text(failed) == ""
    assert await text(logs.of(POD, "main")) == "run 0"
    with pytest.raises(NoLog, match="previous terminated container"):
        logs.of(POD, "main", previous=True)


def test_a_container_that_has_not_run_has_no_log(tmp_path: Path) -> None:
    with pytest.raises(NoLog, match='container "main" in pod "p" is waiting to start'):
        Logs(tmp_path).of(POD, "main")
    with pytest.raises(NoLog, match="previous terminated container"):
        Logs(tmp_path).of(POD, "main", previous=True)


@given(st.lists(st.sampled_from([b"\n", b"a", b"bb\n", b"c\n\n", b"\r"]), max_size=30), st.integers(1, 8))
def test_the_last_lines_are_those_of_the_whole_text(pieces: list[bytes], lines: int) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(logs, "CHUNK_BYTES", 3)
        log = Log(Path(folder) / "0.log")
        log.write(content := b"".join(pieces), NOW)
        log.close()

        assert log.tail(lines, 1000) == b"".join(io.BytesIO(content).readlines()[-lines:])


def test_output_after_the_end_of_a_log_is_dropped(log: Log) -> None:
    log.write(b"more", NOW)

    assert log.tail(1, 100) == b"four"
