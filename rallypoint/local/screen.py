"""Shows a run: a live table on a terminal, lines of text elsewhere."""

from abc import abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text
from typing_extensions import override

from api.messages import escape_control
from api.times import parse_time
from rallypoint.local.progress import Progress, Replica

COLORS = ("cyan", "magenta", "green", "yellow", "blue", "bright_red", "bright_cyan", "bright_magenta")
STATE_COLORS = {
    "Succeeded": "green",
    "Failed": "bold red",
    "Running": "cyan",
    "Pending": "yellow",
    "Restarting": "yellow",
}
MAX_ROWS = 24
"""The largest number of rows in the live table. Replicas with problems come first; the others are counted."""


class Screen(AbstractContextManager["Screen"]):
    """Shows lines while jobs run."""

    @abstractmethod
    def note(self, text: str, *, in_table: bool = False) -> None:
        """Show a message about a job, a replica or the run; ``in_table`` if the table of replicas shows it, too."""

    @abstractmethod
    def output(self, prefix: str, line: str) -> None:
        """Show a line of a replica's output."""

    def refresh(self) -> None:
        """Show what arrived since the last call; called several times per second."""
        return

    @override
    def __exit__(self, *exc_info: object) -> None:
        return None


class TextScreen(Screen):
    """Writes lines of text, for files and pipes."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write

    @override
    def note(self, text: str, *, in_table: bool = False) -> None:
        self._write(f"{escape_control(text)}\n")

    @override
    def output(self, prefix: str, line: str) -> None:
        self._write(f"[{prefix}] {line}\n")


class TerminalScreen(Screen):
    """Shows the replicas in a table at the bottom and their output in colors above it."""

    def __init__(self, console: Console, progress: Progress, now: Callable[[], datetime]) -> None:
        self._console = console
        self._progress = progress
        self._now = now
        self._colors: dict[str, str] = {}
        self._pending: list[Text] = []
        self._live = Live(console=console, auto_refresh=False, transient=True)

    @override
    def __enter__(self) -> Self:
        self._live.start()
        return self

    @override
    def __exit__(self, *exc_info: object) -> None:
        self.refresh()
        self._live.stop()

    @override
    def note(self, text: str, *, in_table: bool = False) -> None:
        if not in_table:
            self._pending.append(Text(escape_control(text), style="bold"))

    @override
    def output(self, prefix: str, line: str) -> None:
        color = self._colors.setdefault(prefix, COLORS[len(self._colors) % len(COLORS)])
        self._pending.append(Text.assemble((f"[{prefix}] ", color), Text.from_ansi(line)))

    @override
    def refresh(self) -> None:
        """Print all new lines at once: a redraw per line would be slower than the output of jobs."""
        if self._pending:
            self._console.print(Text("\n").join(self._pending))
            self._pending.clear()
        self._live.update(replica_table(self._progress, self._now()), refresh=True)


def replica_table(progress: Progress, now: datetime) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("replica", "phase", "restarts", "node", "age"):
        table.add_column(
            column, justify="right" if column in ("restarts", "age") else "left", header_style="dim"
        )
    rows = [(job, replica) for job in progress.jobs.values() for replica in job.rows]
    if len(rows) > MAX_ROWS:
        rows = sorted(rows, key=lambda row: row[1].phase == "Running" and not row[1].detail)
    for job, replica in rows[:MAX_ROWS]:
        table.add_row(progress.prefix(job, replica.short), *_cells(replica, now))
    if len(rows) > MAX_ROWS:
        table.add_row(f"… and {len(rows) - MAX_ROWS} more", style="dim")
    return table


def format_seconds(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m{rest:02}s" if minutes else f"{rest}s"


def _cells(replica: Replica, now: datetime) -> tuple[Text, str, str, str]:
    phase = (
        "Terminating"
        if replica.pod["metadata"].get("deletionTimestamp") and not replica.over
        else replica.phase
    )
    shown = Text(phase, style=STATE_COLORS.get(phase, ""))
    if replica.detail:
        shown.append(f"  {escape_control(replica.detail)}", style="dim")
    created = parse_time(replica.pod["metadata"]["creationTimestamp"])
    return (
        shown,
        str(replica.restarts),
        replica.node,
        format_seconds((now.astimezone(UTC) - created).total_seconds()),
    )
