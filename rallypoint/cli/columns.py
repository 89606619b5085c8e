"""Text tables as kubectl prints them: columns as wide as needed, three spaces apart."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from api.messages import escape_control
from api.times import parse_time

GAP = "   "
INDENT = "  "
NONE = "<none>"


class Columns:
    """Formats rows that arrive in parts. A column never becomes narrower. A cell stays in its line: control characters are escaped."""

    def __init__(self, titles: Sequence[str] = ()) -> None:
        self._titles: Sequence[str] = titles
        self._widths: list[int] = []

    def text(self, rows: Iterable[Sequence[str]]) -> str:
        """Format the next rows; the first call starts with the titles."""
        found = [
            [_in_one_line(cell) for cell in row] for row in ((self._titles, *rows) if self._titles else rows)
        ]
        self._titles = ()
        for row in found:
            self._widths += [0] * (len(row) - len(self._widths))
            self._widths = [
                max(width, len(row[i]) if i < len(row) else 0) for i, width in enumerate(self._widths)
            ]
        return "".join(self._line(row) for row in found)

    def _line(self, row: Sequence[str]) -> str:
        *first, last = row
        cells = [cell.ljust(width) for cell, width in zip(first, self._widths, strict=False)]
        return GAP.join([*cells, last]) + "\n"


def _in_one_line(cell: str) -> str:
    return escape_control(cell).replace("\n", "\\n").replace("\t", " ")


def table_titles(table: Mapping[str, Any], *, wide: bool, with_namespace: bool) -> list[str]:
    """Return the column titles of a server's Table."""
    shown = [column["name"].upper() for column in _shown(table, wide=wide)]
    return ["NAMESPACE", *shown] if with_namespace else shown


def table_rows(
    table: Mapping[str, Any],
    definitions: Mapping[str, Any],
    *,
    wide: bool,
    with_namespace: bool,
    prefix: str = "",
) -> list[list[str]]:
    """Return the rows of a Table. ``definitions`` is the Table with the column definitions; ``prefix`` precedes names."""
    found: list[list[str]] = []
    for row in table["rows"] or ():
        columns = zip(definitions["columnDefinitions"], row["cells"], strict=True)
        cells = [_format(cell) for column, cell in columns if wide or column["priority"] == 0]
        cells[0] = prefix + cells[0]
        found.append([row["object"]["metadata"].get("namespace", ""), *cells] if with_namespace else cells)
    return found


def _shown(table: Mapping[str, Any], *, wide: bool) -> list[Mapping[str, Any]]:
    return [column for column in table["columnDefinitions"] if wide or column["priority"] == 0]


def _format(cell: Any) -> str:
    match cell:
        case None:
            return NONE
        case bool():
            return str(cell).lower()
        case _:
            return str(cell)


def indented(rows: Sequence[Sequence[str]], titles: Sequence[str] = ()) -> str:
    """Format an indented table, with underlined titles if there are any."""
    underlines = [["-" * len(title) for title in titles]] if titles else []
    text = Columns(titles).text([*underlines, *rows])
    return "".join(f"{INDENT}{line}".rstrip() + "\n" for line in text.split("\n")[:-1])


def age(time: str | datetime | None, now: datetime) -> str:
    """Format the time since then as ``5s``, ``12m``, ``3h`` or ``2d``."""
    if not time:
        return NONE
    since = parse_time(time) if isinstance(time, str) else time
    seconds = max(int((now - since).total_seconds()), 0)
    for length, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def format_duration(length: timedelta) -> str:
    """Format a duration as ``3s``, ``8m12s`` or ``2h0m5s``."""
    minutes, seconds = divmod(max(int(length.total_seconds()), 0), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m{seconds}s" if hours else f"{minutes}m{seconds}s" if minutes else f"{seconds}s"
