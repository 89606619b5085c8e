"""Output to terminals. Tenants write names, reasons, messages and annotations, so escape sequences in them must not reach the terminal.

Logs and the output of commands in pods pass unchanged, as with kubectl.

Source: kubectl 1.34, cli-runtime/pkg/printers/terminal.go, EscapeTerminal. Differs: it escapes ESC and CR only.
"""

import sys
from typing import TextIO

from api.messages import escape_control


def write(text: str) -> None:
    """Write to standard output, with control characters escaped."""
    _write(text, sys.stdout)


def write_error(text: str) -> None:
    """Write to standard error, with control characters escaped."""
    _write(text, sys.stderr)


def _write(text: str, stream: TextIO) -> None:
    stream.write(escape_control(text))
    stream.flush()
