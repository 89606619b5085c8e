"""Log lines: JSON objects or text for people, from every source, short and without secrets."""

import asyncio
import io
import json
import logging
import subprocess
import sys
import textwrap
import threading
from typing import Any

import aiohttp
import pytest
import structlog
from multidict import CIMultiDict, CIMultiDictProxy
from typing_extensions import override
from yarl import URL

from controller.telemetry import logs


def configured(
    log_format: str = "json", level: str = "info", stream: io.StringIO | None = None
) -> io.StringIO:
    """Configure logging as in a new process."""
    logging.root.handlers.clear()
    target = stream or io.StringIO()
    logs.configure(log_format, level, target)
    return target


def only(stream: io.StringIO) -> dict[str, Any]:
    """The one line that was written."""
    (line,) = stream.getvalue().splitlines()
    fields: dict[str, Any] = json.loads(line)
    return fields


def test_a_line_is_a_single_json_object() -> None:
    stream = configured()
    structlog.get_logger().bind(controller="c").warning(
        "reconcile failed", key="a/b", error="no\n\x1b[31mred"
    )

    fields = only(stream)
    assert fields.pop("ts").endswith("Z")
    assert fields == {
        "msg": "reconcile failed",
        "level": "warning",
        "controller": "c",
        "key": "a/b",
        "error": "no\n\x1b[31mred",
    }
    assert "\x1b" not in stream.getvalue()


def test_important_fields_come_first_and_numbers_are_short() -> None:
    stream = configured()
    structlog.get_logger().bind(controller="c").info("again soon", pause_seconds=0.004999999999199645)

    assert list(only(stream)) == ["ts", "level", "msg", "controller", "pause_seconds"]
    assert only(stream)["pause_seconds"] == 0.005


def test_values_that_json_cannot_encode_are_logged_as_text() -> None:
    stream = configured()
    structlog.get_logger().info("something", odd={1}, torn="\ud800", number=2**70)

    fields = only(stream)
    assert (fields["odd"], fields["torn"], fields["number"]) == ("{1}", "\ud800", 2**70)


async def test_fields_of_a_reconcile_are_on_its_lines_and_those_of_its_tasks() -> None:
    stream = configured()
    log = structlog.get_logger()

    async def reconcile(name: str) -> None:
        structlog.contextvars.bind_contextvars(namespace="team", name=name)
        await asyncio.gather(child(), child())

    async def child() -> None:
        await asyncio.sleep(1)
        log.info("something")

    await asyncio.gather(reconcile("a"), reconcile("b"))
    log.info("something else")

    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert sorted(line["name"] for line in lines[:-1]) == ["a", "a", "b", "b"]
    assert "name" not in lines[-1]


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        pytest.param("debug", ["debug", "info", "warning", "error"], id="everything"),
        pytest.param("info", ["info", "warning", "error"], id="the usual"),
        pytest.param("warning", ["warning", "error"], id="what is odd"),
        pytest.param("error", ["error"], id="what is wrong"),
    ],
)
def test_the_level_selects_the_logged_lines(level: str, expected: list[str]) -> None:
    stream = configured(level=level)
    log = structlog.get_logger()
    for level_name in ("debug", "info", "warning", "error"):
        getattr(log, level_name)("something")

    assert [json.loads(line)["level"] for line in stream.getvalue().splitlines()] == expected


def messages(stream: io.StringIO) -> list[str]:
    return [json.loads(line)["msg"] for line in stream.getvalue().splitlines()]


def test_the_level_changes_at_run_time_also_for_loggers_with_fields() -> None:
    stream = configured()
    log = structlog.get_logger()
    bound = log.bind(resource="pods")
    for _ in range(2):
        log.debug("plain")
        bound.debug("bound")
        log.info("always")
        logs.toggle_debug()

    assert messages(stream) == [
        "always",
        "log level changed",
        "plain",
        "bound",
        "always",
        "log level changed",
    ]
    levels = [line["to"] for line in map(json.loads, stream.getvalue().splitlines()) if "to" in line]
    assert levels == ["debug", "info"]


def test_the_configured_level_comes_back() -> None:
    stream = configured(level="error")
    for _ in range(2):
        structlog.get_logger().info("unimportant")
        logging.getLogger("some.library").warning("worth a look")
        logs.toggle_debug()

    assert not logs.is_debug()
    assert messages(stream) == ["log level changed", "unimportant", "worth a look", "log level changed"]


def test_long_texts_are_truncated() -> None:
    stream = configured()
    structlog.get_logger().info("something", error="x" * 1_000_000)

    assert only(stream)["error"] == "x" * logs.LONGEST_VALUE + "…"


def test_an_exception_is_logged_with_its_traceback_in_a_single_field() -> None:
    stream = configured()
    try:
        raise KeyError("defect")
    except KeyError:
        structlog.get_logger().exception("reconcile panicked")

    text = only(stream)["exception"]
    assert "test_an_exception_is_logged_with_its_traceback" in text
    assert "KeyError: 'defect'" in text


def test_a_long_traceback_is_truncated_at_the_start() -> None:
    stream = configured()
    try:
        raise KeyError("x" * 20_000 + "the end")
    except KeyError:
        structlog.get_logger().exception("reconcile panicked")

    text = only(stream)["exception"]
    assert text.startswith("…")
    assert text.endswith("the end'")
    assert len(stream.getvalue()) < 16 * 1024, "the container runtime splits longer lines"


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_libraries_log_in_the_same_format(log_format: str) -> None:
    stream = configured(log_format)
    library = logging.getLogger("some.library")
    library.info("connected")
    library.warning("%d tries", 3)
    library.warning("%d tries", "odd")
    library.log(logging.ERROR + 5, "worse")

    lines = stream.getvalue().splitlines()
    if log_format == "json":
        logged = [(line["logger"], line["level"], line["msg"]) for line in map(json.loads, lines)]
        assert logged == [
            ("some.library", "warning", "3 tries"),
            ("some.library", "warning", "%d tries"),
            ("some.library", "error", "worse"),
        ]
    else:
        assert len(lines) == 3
        assert "some.library" in lines[0]


async def test_an_exception_of_an_unawaited_task_is_logged() -> None:
    stream = configured()
    try:
        raise KeyError("defect")
    except KeyError as error:
        asyncio.get_running_loop().call_exception_handler({"message": "nobody asked", "exception": error})

    fields = only(stream)
    assert (fields["logger"], fields["level"], fields["msg"]) == ("asyncio", "error", "nobody asked")
    assert "KeyError: 'defect'" in fields["exception"]


SECRETS = ("opensesame", "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrIn0.c2ln", "b3BlbjpzZXNhbWU=")


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer opensesame",
        "AUTHORIZATION: BEARER opensesame",
        "{'Authorization': 'Bearer opensesame', 'Accept': 'kept'}",
        '{"Proxy-Authorization": "Basic b3BlbjpzZXNhbWU=", "Accept": "kept"}',
        "proxy-authorization=opensesame, kept",
        "cannot connect to http://user:opensesame@proxy:3128/kept",
        "cannot connect to http://opensesame@proxy:3128/kept",
        "token eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrIn0.c2ln is kept out",
        "invalid bearer token",
        "Bearer opensesame-opensesame is not kept",
    ],
)
@pytest.mark.parametrize("log_format", ["json", "console"])
def test_no_credential_is_logged(log_format: str, text: str) -> None:
    stream = configured(log_format)
    structlog.get_logger().warning("reconcile failed", error=text)
    try:
        raise OSError(text)
    except OSError:
        structlog.get_logger().exception("reconcile panicked", nested={"headers": [text]})

    written = stream.getvalue()
    assert not [secret for secret in SECRETS if secret in written]
    assert ("kept" in text) == ("kept" in written)
    assert ("token" in text) == ("token" in written)
    if log_format == "json":
        assert [json.loads(line)["msg"] for line in written.splitlines()] == [
            "reconcile failed",
            "reconcile panicked",
        ]


def test_the_headers_of_an_aiohttp_error_are_not_logged() -> None:
    stream = configured()
    headers = CIMultiDictProxy(CIMultiDict({"Proxy-Authorization": "Basic b3BlbjpzZXNhbWU=", "Host": "kept"}))
    info = aiohttp.RequestInfo(URL("http://proxy:3128"), "CONNECT", headers, URL("http://proxy:3128"))
    error = aiohttp.ClientHttpProxyError(info, (), status=407)
    assert SECRETS[2] in repr(error), "or else this tests nothing"

    structlog.get_logger().info("watch failed", error=repr(error))

    assert SECRETS[2] not in stream.getvalue()
    assert "kept" in only(stream)["error"]


class Full(io.StringIO):
    @override
    def write(self, text: str) -> int:
        raise OSError("no space left on device")


@pytest.mark.parametrize("stream", [Full(), io.StringIO()], ids=["full", "closed"])
def test_a_log_that_cannot_be_written_stops_nothing(stream: io.StringIO) -> None:
    if not isinstance(stream, Full):
        stream.close()
    configured(stream=stream)

    structlog.get_logger().warning("reconcile failed")
    logging.getLogger("some.library").warning("something")

    assert logging.root.handlers, "what libraries say went the same way"


def test_lines_for_people() -> None:
    stream = configured("console")
    structlog.get_logger().info("caches synced", kinds=["PyTorchJob"])
    try:
        raise KeyError("defect")
    except KeyError:
        structlog.get_logger().exception("reconcile panicked")

    text = stream.getvalue()
    assert "caches synced" in text
    assert "PyTorchJob" in text
    assert "KeyError: 'defect'" in text
    assert "\x1b" not in text, "no colors where the output is no terminal"


def crashed(program: str) -> tuple[int, list[dict[str, Any]]]:
    """Exit status and log of a process of its own, as its hooks are for all of it."""
    start = "from controller.telemetry import logs\nlogs.configure('json', 'info')\nlogs.catch_all()\n"
    done = subprocess.run(
        [sys.executable, "-c", start + textwrap.dedent(program)], capture_output=True, text=True, check=False
    )
    return done.returncode, [json.loads(line) for line in done.stderr.splitlines()]


@pytest.mark.parametrize(
    ("program", "status", "level", "message"),
    [
        pytest.param("raise KeyError('defect')", 1, "critical", "crashed", id="crash"),
        pytest.param(
            """
            import threading
            def run(): raise KeyError('defect')
            thread = threading.Thread(target=run)
            thread.start()
            thread.join()
            """,
            0,
            "critical",
            "thread crashed",
            id="crash of a thread",
        ),
        pytest.param(
            """
            class Odd:
                def __del__(self): raise KeyError('defect')
            Odd()
            """,
            0,
            "error",
            "unraisable exception",
            id="error of a finalizer",
        ),
        pytest.param(
            """
            import asyncio
            async def broken(): raise KeyError('defect')
            async def main():
                asyncio.create_task(broken())
                await asyncio.sleep(0.01)
            asyncio.run(main())
            """,
            0,
            "error",
            "Task exception was never retrieved",
            id="error of an unawaited task",
        ),
    ],
)
def test_an_uncaught_exception_is_logged(program: str, status: int, level: str, message: str) -> None:
    code, (line,) = crashed(program)

    assert code == status
    assert line["level"] == level
    assert line["msg"].startswith(message)
    assert "KeyError: 'defect'" in line["exception"]


def test_warnings_are_logged() -> None:
    code, (line,) = crashed("import warnings\nwarnings.warn('old')")

    assert (code, line["level"], line["logger"]) == (0, "warning", "py.warnings")
    assert "UserWarning: old" in line["msg"]


def test_a_keyboard_interrupt_is_no_crash(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in ((sys, "excepthook"), (sys, "unraisablehook"), (threading, "excepthook")):
        monkeypatch.setattr(module, name, getattr(module, name))
    stream = configured()
    logs.catch_all()
    logging.captureWarnings(False)

    sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)

    assert stream.getvalue() == ""
    assert capsys.readouterr().err == "KeyboardInterrupt\n"
