"""The last lines of a log, as a terminal would show them."""

import re
from pathlib import Path

LONGEST_LINE = 300
"""Characters of a log line; the rest is cut off."""
CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
"""Escape sequences and control characters of terminals, and line separators."""
_TAIL_BYTES = 64 * 1024


def clean_line(line: str) -> str:
    """Return a log line without terminal control, cut to ``LONGEST_LINE``; of one that carriage returns overwrite, its last state."""
    shown = CONTROL.sub("", line.rstrip("\r").rpartition("\r")[2]).rstrip()
    return f"{shown[:LONGEST_LINE]}…" if len(shown) > LONGEST_LINE else shown


def last_lines(log: Path, count: int) -> list[str]:
    """Return up to ``count`` last lines of a log file that are not empty, the last one last; none if it cannot be read."""
    try:
        with log.open("rb") as file:
            file.seek(max(log.stat().st_size - _TAIL_BYTES, 0))
            data = file.read()
    except OSError:
        return []
    return [line for line in map(clean_line, data.decode(errors="replace").split("\n")) if line][-count:]
