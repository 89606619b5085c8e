"""The command ``rallypoint``: one module here for each of its commands.

Only the module of the requested command is imported, so other commands never load what local mode needs.
"""

import argparse
import io
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from typing_extensions import override

from controller.telemetry import build
from rallypoint.cli import terminal

COMMANDS = (
    "run",
    "up",
    "ui",
    "get",
    "describe",
    "logs",
    "why",
    "goodput",
    "delete",
    "exec",
    "port-forward",
    "check",
    "shadow",
)
"""Each module has ``add_parser(subparsers)``, which sets ``execute(args) -> exit status``."""
DELEGATES = ("controller", "crds")
"""Commands of the controller package. Each module has ``HELP`` and ``main(arguments) -> exit status``."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 130 after an interrupt that the command does not handle.

    Characters that standard output cannot encode are escaped, because training programs print any.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        return _main(list(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:
        return 130


def _main(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="rallypoint", description="Run distributed training on Kubernetes, or without a cluster."
    )
    parser.add_argument("--version", action=_Version, help="print version and commit, and exit")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    if given and given[0] in DELEGATES:
        status: int = import_module(f"{__name__}.{given[0]}").main(given[1:])
        return status
    for command in _needed(given):
        module = import_module(f"{__name__}.{command.replace('-', '_')}")
        if command in DELEGATES:
            subparsers.add_parser(command, help=module.HELP)
        else:
            module.add_parser(subparsers)
    args, unknown = parser.parse_known_args(given)
    if unknown:
        # argparse itself would show the usage of the whole program.
        subparsers.choices.get(given[0], parser).error(f"unrecognized arguments: {' '.join(unknown)}")
    execute: Callable[[argparse.Namespace], int] = args.execute
    return execute(args)


class _Version(argparse.Action):
    """Asks for the commit only when it is printed, because a checkout asks git."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str) -> None:  # noqa: A002 -- argparse's name
        super().__init__(option_strings, dest, nargs=0, help=help)

    @override
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        terminal.write(build.version_text("rallypoint") + "\n")
        parser.exit()


def _needed(given: Sequence[str]) -> Sequence[str]:
    """Return the commands to import: one; none for ``--version``; all for ``--help``."""
    first = given[0] if given else ""
    if first == "--version":
        return ()
    return (first,) if first in COMMANDS else (*COMMANDS, *DELEGATES)
