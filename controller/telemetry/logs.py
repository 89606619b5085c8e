"""Structured logs: a short constant message and fields, as JSON lines for machines or colored lines for people.

It handles all logging of the process: structlog, the standard library's loggers, warnings and uncaught exceptions. The reconciler binds
the fields of a job (controller, kind, namespace, name, uid) with ``structlog.contextvars``.

Source of the names ``ts``, ``level``, ``msg`` and ``logger``: zap, as controller-runtime configures it.
"""

import contextlib
import logging
import re
import sys
import threading
from types import TracebackType
from typing import TextIO

import structlog
from typing_extensions import override

LONGEST_VALUE = 1024
"""Maximum length of a field; longer ones are truncated, so that no foreign text can flood the log."""
LONGEST_TRACEBACK = 12_000
"""Maximum length of a traceback, whose end is kept. Container runtimes split log lines at 16 KiB."""

_SECRETS = (
    (
        "authorization",
        re.compile(r"""(authorization["'\\]*\s*[:=]\s*["'\\]*)(?:\w+\s+)?[^\s"'\\,)}>]+""", re.IGNORECASE),
        r"\1…",
    ),
    ("bearer", re.compile(r"(bearer\s+)[\w.~+/=-]{16,}", re.IGNORECASE), r"\1…"),
    ("://", re.compile(r"""(://)[^\s/@"'\\]+@"""), r"\1…@"),
    ("eyj", re.compile(r"\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*"), "…"),
)
"""Credentials in headers, tokens, and user names and passwords in proxy URLs: a part of each match in lower case, which is found faster
than the pattern; the pattern; and its replacement.

The controller never logs credentials itself; these protect against credentials in the texts of errors.
"""

_SEVERITIES = {name.lower(): number for name, number in logging.getLevelNamesMapping().items()}


class _Threshold:
    """The lowest logged severity. It changes at run time, for loggers with bound fields too, so it is no property of a logger."""

    def __init__(self) -> None:
        self.configured = self.current = logging.INFO

    def set(self, severity: int) -> None:
        self.current = severity
        # Log only warnings and errors of libraries.
        logging.root.setLevel(max(severity, logging.WARNING))


_threshold = _Threshold()


def configure(log_format: str, level: str, stream: TextIO | None = None) -> None:
    """Configure all logging of the process; ``level`` as in ``Settings.log_level``."""
    target = stream or sys.stderr
    _threshold.configured = _SEVERITIES[level]
    _threshold.set(_threshold.configured)
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        else structlog.dev.ConsoleRenderer(
            colors=target.isatty(),
            exception_formatter=structlog.dev.plain_traceback,
            event_key="msg",
            timestamp_key="ts",
        )
    )
    structlog.configure(
        processors=[
            _drop_below_threshold,
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
            structlog.processors.format_exc_info,
            structlog.processors.EventRenamer("msg"),
            _tidy,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        logger_factory=lambda *_: _Lines(target),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(handlers=[_Foreign()])


def is_debug() -> bool:
    """Return whether lines at debug are logged. Frequent lines depend on it, so that they cost nothing otherwise."""
    return _threshold.current <= logging.DEBUG


def toggle_debug() -> None:
    """Log at debug from now on, or again at the configured level."""
    log = structlog.get_logger()
    if is_debug():
        level = logging.getLevelName(_threshold.configured).lower()
        log.info("log level changed", to=level)
        _threshold.set(_threshold.configured)
    else:
        _threshold.set(logging.DEBUG)
        log.info("log level changed", to="debug")


def catch_all() -> None:
    """Also log warnings and uncaught exceptions. For a process that runs nothing but the service."""
    sys.excepthook = _crashed
    sys.unraisablehook = _unraisable
    threading.excepthook = _thread_crashed
    logging.captureWarnings(True)


class _Lines:
    """Write each line with a single call. A full or closed stream loses lines without any other effect."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def msg(self, line: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(without_secrets(line) + "\n")
            self._stream.flush()

    debug = info = warning = error = critical = msg


class _Foreign(logging.Handler):
    """Takes the records of the standard library's loggers, including those of asyncio and aiohttp."""

    @override
    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
        except Exception:  # noqa: BLE001 - arguments that do not fit a library's message must not stop us
            message = str(record.msg)
        level = min(max(record.levelno // 10 * 10, logging.DEBUG), logging.CRITICAL)
        structlog.get_logger().bind(logger=record.name).log(level, message, exc_info=record.exc_info)


def _crashed(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
    else:
        structlog.get_logger().critical("crashed", exc_info=(kind, error, trace))


def _thread_crashed(args: threading.ExceptHookArgs) -> None:
    thread = args.thread.name if args.thread else ""
    structlog.get_logger().critical(
        "thread crashed", thread=thread, exc_info=(args.exc_type, args.exc_value, args.exc_traceback)
    )


def _unraisable(args: "sys.UnraisableHookArgs") -> None:
    info = (args.exc_type, args.exc_value, args.exc_traceback)
    structlog.get_logger().error("unraisable exception", object=repr(args.object), exc_info=info)


def _drop_below_threshold(
    logger: structlog.typing.WrappedLogger, name: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    if _SEVERITIES[name] < _threshold.current:
        raise structlog.DropEvent
    return event


def _tidy(
    logger: structlog.typing.WrappedLogger, name: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Put the common fields first, and truncate long fields."""
    first = {key: event.pop(key) for key in ("ts", "level", "msg")}
    return {key: _short(key, value) for key, value in {**first, **event}.items()}


def _short(key: str, value: object) -> object:
    if isinstance(value, float):
        return round(value, 3)
    if not isinstance(value, str):
        return value
    if key == "exception":
        return value if len(value) <= LONGEST_TRACEBACK else "…" + value[-LONGEST_TRACEBACK:]
    return value if len(value) <= LONGEST_VALUE else value[:LONGEST_VALUE] + "…"


def without_secrets(line: str) -> str:
    """Return the line with ``…`` in place of credentials."""
    lowered = line.lower()
    for part, secret, instead in _SECRETS:
        if part in lowered:
            line = secret.sub(instead, line)
    return line
