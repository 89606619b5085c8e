"""Output to terminals. Tenants write names, reasons, messages and annotations, so escape sequences in them must not reach the terminal.

Logs and the output of commands in pods pass unchanged, as with kubectl.

Source: kubectl 1.34, cli-runtime/pkg/printers/terminal.go, EscapeTerminal. Differs: it escapes ESC and CR only.
"""

import contextlib
import os
import sys
from collections.abc import Generator
from typing import BinaryIO, TextIO

from api.messages import escape_control


class OutputError(OSError):
    """Standard output or standard error cannot be written, such as to a full disk. A closed pipe raises BrokenPipeError instead."""


def write(text: str) -> None:
    """Write to standard output, with control characters escaped.

    Raises:
        OutputError: the text cannot be written.
        BrokenPipeError: the reader closed the pipe.
    """
    _write(text, sys.stdout)


def write_error(text: str) -> None:
    """Write to standard error, with control characters escaped; raise as ``write`` does."""
    _write(text, sys.stderr)


def write_bytes(data: bytes, stream: BinaryIO | None = None) -> None:
    """Write to ``stream``, by default standard output, unchanged; raise as ``write`` does."""
    chosen = sys.stdout.buffer if stream is None else stream
    with output_errors():
        chosen.write(data)
        chosen.flush()


def _write(text: str, stream: TextIO) -> None:
    with output_errors():
        stream.write(escape_control(text))
        stream.flush()


@contextlib.contextmanager
def output_errors() -> Generator[None]:
    """Raise what writing to an output raises as ``write`` does."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"cannot write the output: {error.strerror or error}") from error


def discard_output(stream: TextIO) -> None:
    """Discard what is still to be flushed to a stream that cannot be written, and all that follows."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
