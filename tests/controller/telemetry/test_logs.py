"""Lines of the log: one JSON object each, or a line for people; never longer than they should be."""

import io
import json
from collections.abc import Iterator

import pytest
import structlog

from controller.telemetry import logs


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """structlog is set up for the whole process; later tests want it as it comes."""
    yield
    structlog.reset_defaults()


def configured(log_format: str = "json", level: str = "info") -> io.StringIO:
    stream = io.StringIO()
    logs.configure(log_format, level, stream)
    return stream


def test_a_line_is_one_json_object_whatever_it_tells_of() -> None:
    stream = configured()
    structlog.get_logger().bind(controller="c").warning("pass failed", key="a/b", error="no\n\x1b[31mred")

    (line,) = stream.getvalue().splitlines()
    fields = json.loads(line)
    assert fields.pop("timestamp").endswith("Z")
    assert fields == {
        "event": "pass failed",
        "level": "warning",
        "controller": "c",
        "key": "a/b",
        "error": "no\n\x1b[31mred",
    }
    assert "\x1b" not in line


@pytest.mark.parametrize(
    ("level", "told"),
    [
        pytest.param("debug", ["debug", "info", "warning", "error"], id="everything"),
        pytest.param("info", ["info", "warning", "error"], id="the usual"),
        pytest.param("warning", ["warning", "error"], id="what is odd"),
        pytest.param("error", ["error"], id="what is wrong"),
    ],
)
def test_levels(level: str, told: list[str]) -> None:
    stream = configured(level=level)
    log = structlog.get_logger()
    for one in ("debug", "info", "warning", "error"):
        getattr(log, one)("something")

    assert [json.loads(line)["level"] for line in stream.getvalue().splitlines()] == told


def test_nobodys_text_floods_the_log() -> None:
    stream = configured()
    structlog.get_logger().info("something", error="x" * 1_000_000)

    assert json.loads(stream.getvalue())["error"] == "x" * logs.LONGEST_VALUE + "…"


def test_a_defect_is_told_with_its_traceback() -> None:
    stream = configured()
    try:
        raise KeyError("defect")
    except KeyError:
        structlog.get_logger().exception("pass broke")

    text = json.loads(stream.getvalue())["exception"]
    assert "test_a_defect_is_told_with_its_traceback" in text
    assert "KeyError: 'defect'" in text


def test_lines_for_people() -> None:
    stream = configured("console")
    structlog.get_logger().info("caches filled", kinds=["PyTorchJob"])

    text = stream.getvalue()
    assert "caches filled" in text
    assert "PyTorchJob" in text
    assert "\x1b" not in text, "no colours where nobody looks"
