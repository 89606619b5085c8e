"""``bench show``: print a recorded run as tables, or put them into a Markdown page."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import record
from bench.controlplane import comparison_report, report
from bench.nccl import exit_status, schema
from bench.subparsers import Subparsers

WIDTH = 140
"""Width of the tables in characters."""


BEGIN, END = "<!-- figures: python -m bench show FILE --into PAGE -->\n", "<!-- end of figures -->\n"
"""The tables go between these lines of a page."""


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("show", help="print a recorded run as tables")
    parser.add_argument("file", type=Path, metavar="FILE", help="a file of bench/results")
    parser.add_argument(
        "--into",
        type=Path,
        metavar="PAGE",
        help="write the tables into this Markdown page, with one row per case",
    )
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Return the exit status: 0, or 1 for a file that cannot be read or has no cases, or a page without the marker lines."""
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
    """Return the page with new tables. Raises ValueError without the marker lines."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page lacks the line {BEGIN.strip()} or {END.strip()}")
    return before + begin + tables + end + after


def block(file: Path, result: dict[str, Any]) -> str:
    """Return the tables as Markdown."""
    parts = [heading(file, result), *map(markdown, tables(result["cases"], brief=True))]
    return "\n" + "\n\n".join(parts) + "\n\n"


def show(cases: list[dict[str, Any]]) -> None:
    """Print the tables."""
    console = Console(file=sys.stdout, width=WIDTH)
    for table in tables(cases):
        console.print(table)


def tables(cases: list[dict[str, Any]], *, brief: bool = False) -> list[Table]:
    """Return the tables of a comparison or of a run of the controller."""
    if any("operators" in case for case in cases):
        return comparison_report.tables(cases)
    return report.tables(cases, brief=brief)


def heading(file: Path, result: dict[str, Any]) -> str:
    """Return one line about commit, environment and load."""
    commit, where, load = result["commit"], result["environment"], result["load_average"]
    changed = ", changed since" if commit["changed"] else ""
    return (
        f"{file.stem}: commit {commit['id'][:7]}{changed}; {where['cores']} cores ({where['cpu']}), {where['python']}, "
        f"kube-apiserver {where['versions']['kube-apiserver']}; "
        f"load average {load['before']} before and {load['after']} after {result['took_seconds']} s."
    )


def markdown(table: Table) -> str:
    """Return the cells as Markdown, under the table's title."""
    title = [f"{str(table.title).capitalize()}:\n"] if table.title else []
    return "\n".join([*title, *_lines(table)])


def _lines(table: Table) -> Iterator[str]:
    yield _row([str(column.header) for column in table.columns])
    yield _row(["---"] * len(table.columns))
    for row in zip(*(column.cells for column in table.columns), strict=True):
        yield _row([str(cell) for cell in row])


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
