"""Termination messages: their length and their source."""

import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rallypoint.local.node.pods import termination_message
from rallypoint.local.node.streams.logs import Log

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def container(**fields: Any) -> dict[str, Any]:
    return {"name": "main", **fields}


def pod(containers: int = 1) -> dict[str, Any]:
    return {"spec": {"containers": [container()] * containers}}


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    made = Log(tmp_path / "log")
    made.write(b"".join(b"line %d\n" % i for i in range(100)), NOW)
    yield made
    made.close()


def test_each_container_has_its_own_empty_file(tmp_path: Path) -> None:
    file = termination_message.mount(container(terminationMessagePath="/words"), tmp_path)
    termination_message.clear(container(), tmp_path)
    file.source.write_text("last words")
    assert termination_message.read(container(), tmp_path) == "last words"
    termination_message.clear(container(), tmp_path)

    assert (file.path, termination_message.mount(container(), tmp_path).path) == (
        "/words",
        "/dev/termination-log",
    )
    assert (
        termination_message.read(container(), tmp_path)
        == termination_message.read(container(name="other"), tmp_path)
        == ""
    )


def test_only_the_end_of_a_long_file_is_read(tmp_path: Path) -> None:
    termination_message.clear(container(), tmp_path)
    termination_message.mount(container(), tmp_path).source.write_text("a" * 10 + "b" * 4096)

    assert termination_message.read(container(), tmp_path) == "b" * 4096


@pytest.mark.parametrize(
    ("policy", "written", "code", "says"),
    [
        pytest.param("File", "words", 1, "words", id="the file"),
        pytest.param("File", "", 1, "", id="nothing else"),
        pytest.param("FallbackToLogsOnError", "words", 1, "words", id="the file first"),
        pytest.param("FallbackToLogsOnError", "", 0, "", id="no log of a success"),
    ],
)
def test_the_source_of_the_message(log: Log, policy: str, written: str, code: int, says: str) -> None:
    spec = container(terminationMessagePolicy=policy)

    assert termination_message.message(pod(), spec, written, code, log) == says


def test_the_end_of_the_log(log: Log) -> None:
    spec = container(terminationMessagePolicy="FallbackToLogsOnError")
    lines = termination_message.message(pod(), spec, "", 1, log).splitlines()
    assert (len(lines), lines[-1]) == (80, "line 99")
    log.write(b"x" * 5000, NOW)

    assert termination_message.message(pod(), spec, "", 1, log) == "x" * 2048


def test_many_containers_share_the_size_limit_of_a_pod(log: Log) -> None:
    assert len(termination_message.message(pod(6), container(), "a" * 4096, 0, log)) == 2048


def test_what_is_no_readable_file_is_no_message(tmp_path: Path) -> None:
    """A program may replace its file."""
    termination_message.clear(container(), tmp_path)
    source = termination_message.mount(container(), tmp_path).source
    secret = tmp_path / "secret"
    secret.write_text("of another")

    others: list[Callable[[], object]] = [
        source.mkdir,
        lambda: os.mkfifo(source),
        lambda: source.symlink_to(secret),
    ]
    for replace in others:
        source.unlink()
        replace()
        assert termination_message.read(container(), tmp_path) == ""
        termination_message.clear(container(), tmp_path)
        assert source.read_bytes() == b""
