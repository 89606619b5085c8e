"""``bench show``: a recorded run as tables, for a person or for a page."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console
from rich.table import Table

from bench.controlplane import report

WIDTH = 140
"""Of the tables, in characters; narrower ones would break the figures apart."""


def add_parser(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]",  # pyright: ignore[reportPrivateUsage]
) -> None:
    parser = subparsers.add_parser("show", help="a recorded run as tables")
    parser.add_argument("file", type=Path, metavar="FILE", help="one of bench/results")
    parser.add_argument("--markdown", action="store_true", help="as it goes into a page, a row for each case")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Exit status: 0, or 1 for a file that cannot be read or does not hold cases."""
    try:
        result = orjson.loads(args.file.read_bytes())
        cases = result["cases"]
    except (OSError, ValueError, KeyError) as error:
        sys.stderr.write(f"not shown: {args.file}: {error!r}\n")
        return 1
    print(heading(result))
    if args.markdown:
        print("\n\n".join(markdown(table) for table in report.tables(cases, brief=True)))
    else:
        show(cases)
    return 0


def show(cases: list[dict[str, Any]]) -> None:
    """For a person."""
    console = Console(file=sys.stdout, width=WIDTH)
    for table in report.tables(cases):
        console.print(table)


def heading(result: dict[str, Any]) -> str:
    """Where and of what the figures are."""
    commit, where, load = result["commit"], result["environment"], result["load_average"]
    changed = ", changed since" if commit["changed"] else ""
    return (
        f"Commit {commit['id'][:7]}{changed}; {where['cores']} cores ({where['cpu']}), {where['python']}, "
        f"kube-apiserver {where['versions']['kube-apiserver']}; "
        f"load average {load['before']} before and {load['after']} after.\n"
    )


def markdown(table: Table) -> str:
    """The same cells; a column of one's own for each."""
    return "\n".join(_lines(table))


def _lines(table: Table) -> Iterator[str]:
    yield _line([str(column.header) for column in table.columns])
    yield _line(["---"] * len(table.columns))
    for row in zip(*(column.cells for column in table.columns), strict=True):
        yield _line([str(cell) for cell in row])


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
