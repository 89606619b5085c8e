"""``bench show``: a recorded run as tables, for a person or for a page."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import record
from bench.controlplane import report
from bench.nccl import exit_status, schema

WIDTH = 140
"""Of the tables, in characters; narrower ones would break the figures apart."""


BEGIN, END = "<!-- figures: python -m bench show FILE --into PAGE -->\n", "<!-- end of figures -->\n"
"""Lines of a page between which the tables are put."""


def add_parser(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]",  # pyright: ignore[reportPrivateUsage]
) -> None:
    parser = subparsers.add_parser("show", help="a recorded run as tables")
    parser.add_argument("file", type=Path, metavar="FILE", help="one of bench/results")
    parser.add_argument(
        "--into", type=Path, metavar="PAGE", help="put them into a page instead, a row for each case"
    )
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Exit status: 0, or 1 for a file that cannot be read or does not hold cases, or a page that has no place for tables."""
    try:
        result = record.read(args.file)
        if "record" in result:
            exit_status.print_tables(schema.load(args.file))
            return 0
        cases = result["cases"]
        if args.into:
            args.into.write_text(replaced(args.into.read_text(), block(args.file, result)))
            return 0
    except (OSError, ValueError, KeyError, schema.InvalidRecord) as error:
        sys.stderr.write(f"not shown: {args.file}: {error!r}\n")
        return 1
    print(heading(args.file, result))
    show(cases)
    return 0


def replaced(page: str, tables: str) -> str:
    """The page with other tables. Raises ValueError when it has no place for them."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"no line {BEGIN.strip()}, or none {END.strip()}")
    return before + begin + tables + end + after


def block(file: Path, result: dict[str, Any]) -> str:
    """The tables as markdown."""
    parts = [heading(file, result), *map(markdown, report.tables(result["cases"], brief=True))]
    return "\n" + "\n\n".join(parts) + "\n\n"


def show(cases: list[dict[str, Any]]) -> None:
    """For a person."""
    console = Console(file=sys.stdout, width=WIDTH)
    for table in report.tables(cases):
        console.print(table)


def heading(file: Path, result: dict[str, Any]) -> str:
    """Where and of what the figures are."""
    commit, where, load = result["commit"], result["environment"], result["load_average"]
    changed = ", changed since" if commit["changed"] else ""
    return (
        f"{file.stem}: commit {commit['id'][:7]}{changed}; {where['cores']} cores ({where['cpu']}), {where['python']}, "
        f"kube-apiserver {where['versions']['kube-apiserver']}; "
        f"load average {load['before']} before and {load['after']} after, which took {result['took_seconds']} s."
    )


def markdown(table: Table) -> str:
    """The same cells, under the table's title."""
    title = [f"{str(table.title).capitalize()}:\n"] if table.title else []
    return "\n".join([*title, *_lines(table)])


def _lines(table: Table) -> Iterator[str]:
    yield _row([str(column.header) for column in table.columns])
    yield _row(["---"] * len(table.columns))
    for row in zip(*(column.cells for column in table.columns), strict=True):
        yield _row([str(cell) for cell in row])


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
