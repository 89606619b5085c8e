"""How a command of the bench ends: what may go wrong before there are figures, and what it leaves in files."""

import argparse
import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from rich.console import Console

from bench import record
from bench.nccl.manifest import Unfit
from bench.nccl.report import page
from bench.nccl.schema import AnyRecord
from controller.cli.here import loop_factory
from controller.kube.connect import NotConfigured
from controller.kube.errors import ApiError
from controller.local.node.addresses import NoAddresses
from controller.local.node.keeping import NoNamespaces

REFUSED, INTERRUPTED = 2, 130
_BEFORE = (
    NotConfigured,
    NoAddresses,
    NoNamespaces,
    Unfit,
    ApiError,
    aiohttp.ClientError,
    OSError,
    ValueError,
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Of what is left behind."""
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("nccl-bench"),
        metavar="DIR",
        help="where record and report go; default nccl-bench",
    )
    parser.add_argument("--no-record", action="store_true", help="only show the figures")
    parser.add_argument("--png", action="store_true", help="the plots as a picture too; takes matplotlib")


def run(work: Callable[[], Coroutine[Any, Any, int]], errors: Console) -> int:
    """The exit status of ``work``, or 1 with why it could not begin."""
    status = 1
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            status = runner.run(work())
    except* _BEFORE as group:
        errors.print(f"not measured: {_first(group)}", style="red", markup=False)
    return status


def _first(error: BaseException) -> BaseException:
    """Out of the groups that sites and clusters have put around it."""
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def keep(args: argparse.Namespace, name: str, made: AnyRecord, errors: Console) -> None:
    """Write the record, and a report beside it."""
    if args.no_record:
        return
    path = record.save(name, msgspec.to_builtins(made), args.out)
    html = path.with_suffix(".html")
    html.write_text(page.page(made))
    written = [path, html]
    if args.png:
        from bench.nccl.report import picture

        written.append(picture.write(made, path.with_suffix(".png")))
    errors.print(f"recorded in {', '.join(map(str, written))}", markup=False)
