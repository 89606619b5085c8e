"""Parts of generated Markdown pages."""

from collections.abc import Iterable, Iterator, Sequence


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table, after an empty one."""
    yield "\n"
    for cells in (columns, ("---",) * len(columns), *rows):
        yield f"| {' | '.join(cells)} |\n"


def code(*texts: str) -> str:
    """Return the texts as code for a cell of a table, separated by commas."""
    return ", ".join(f"`{text}`".replace("|", "\\|") for text in texts)


def cell(text: str) -> str:
    """Return a text for a cell of a table, in which ``<`` begins no HTML."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
