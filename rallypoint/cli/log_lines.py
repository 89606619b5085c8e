"""The last lines of a log, as a terminal would show them."""

from pathlib import Path

from api.messages import without_control

LONGEST_LINE = 300
"""Characters of a log line; the rest is cut off."""
_TAIL_BYTES = 64 * 1024


def clean_line(line: str, longest: int = LONGEST_LINE) -> str:
    """Return a log line without terminal control, cut to ``longest`` characters; of one that carriage returns overwrite, its last state."""
    shown = without_control(line.rstrip("\r").rpartition("\r")[2]).rstrip()
    return f"{shown[:longest]}…" if len(shown) > longest else shown


def in_one_line(text: str) -> str:
    """Return the text in one line, without terminal control."""
    return without_control(" ".join(text.split()))


def last_lines(log: Path, count: int) -> list[str]:
    """Return up to ``count`` last lines of a log file that are not empty, the last one last; none if it cannot be read."""
    try:
        with log.open("rb") as file:
            file.seek(max(log.stat().st_size - _TAIL_BYTES, 0))
            data = file.read()
    except OSError:
        return []
    return [line for line in map(clean_line, data.decode(errors="replace").split("\n")) if line][-count:]
