"""Structured logs: a short constant message and fields, as JSON lines for machines or coloured lines for people."""

import logging
import sys
from typing import TextIO

import structlog

LONGEST_VALUE = 1024
"""Characters of one field; longer ones are cut, so that nobody else's text can flood the log."""


def configure(log_format: str, level: str, stream: TextIO | None = None) -> None:
    """Set up structlog for the whole process; ``level`` as in ``Settings.log_level``."""
    target = stream or sys.stderr
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        else structlog.dev.ConsoleRenderer(colors=target.isatty())
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _cut,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(target),
        cache_logger_on_first_use=False,
    )


def _cut(
    logger: structlog.typing.WrappedLogger, name: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    for key, value in event.items():
        if isinstance(value, str) and len(value) > LONGEST_VALUE and key != "exception":
            event[key] = value[:LONGEST_VALUE] + "…"
    return event
