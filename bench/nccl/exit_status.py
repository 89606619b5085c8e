"""Output and exit status of the commands: errors before the measurement, tables, record and page."""

import argparse
import asyncio
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from rich.console import Console

from bench import record
from bench.nccl.manifest import InvalidManifest
from bench.nccl.report import page, tables
from bench.nccl.schema import AnyRecord
from controller.kube.connect import NotConfigured
from controller.kube.errors import ApiError
from rallypoint.cli.local_flags import loop_factory
from rallypoint.local.node.network.addresses import NoAddresses
from rallypoint.local.node.sandbox.client import NoNamespaces

USAGE_ERROR, INTERRUPTED = 2, 130
_SETUP_ERRORS = (
    NotConfigured,
    NoAddresses,
    NoNamespaces,
    InvalidManifest,
    ApiError,
    aiohttp.ClientError,
    OSError,
    ValueError,
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the output."""
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("nccl-bench"),
        metavar="DIR",
        help="folder for record and page; default nccl-bench",
    )
    parser.add_argument("--no-record", action="store_true", help="show the figures without recording them")


def run(args: argparse.Namespace, work: Callable[[], Coroutine[Any, Any, int]], errors: Console) -> int:
    """Return the exit status of ``work``, or 1 after an error that prevents the measurement."""
    status = 1
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            status = runner.run(work())
    except* _SETUP_ERRORS as group:
        errors.print(f"not measured: {_first(group)}", style="red", markup=False)
    return status


def _first(error: BaseException) -> BaseException:
    """Return the first exception inside nested groups."""
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def show(args: argparse.Namespace, name: str, document: AnyRecord, errors: Console) -> None:
    """Print the tables, and save the record and its page."""
    print_tables(document)
    if not args.no_record:
        _save(args, name, document, errors)


def print_tables(document: AnyRecord) -> None:
    """Print the tables and what was not measured."""
    shown = Console(file=sys.stdout, width=tables.WIDTH)
    for table in tables.build(document):
        shown.print(table)
    for words in tables.not_measured(document):
        shown.print(f"not measured: {words}", markup=False, highlight=False)


def _save(args: argparse.Namespace, name: str, document: AnyRecord, errors: Console) -> None:
    path = record.save(name, msgspec.to_builtins(document), args.out)
    html = path.with_suffix(".html")
    html.write_text(page.page(document))
    errors.print(f"recorded in {path}, {html}", markup=False)
