"""The command ``rallypoint``: one module here for each of its commands.

Only the module of the command that is called is imported: the service in a cluster never loads what local mode needs.
"""

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import version

COMMANDS = (
    "run",
    "up",
    "get",
    "describe",
    "logs",
    "why",
    "delete",
    "exec",
    "controller",
    "crds",
    "preflight",
)
"""Each has ``add_parser(subparsers)``, which sets ``execute(args) -> exit status``."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit status. An interruption that no command answers ends it silently, with 130."""
    try:
        return _main(list(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:
        return 130


def _main(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="rallypoint", description="Distributed training on Kubernetes, and without a cluster."
    )
    parser.add_argument("--version", action="version", version=f"rallypoint {version('rallypoint')}")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in _needed(given):
        import_module(f"{__name__}.{command}").add_parser(subparsers)
    args = parser.parse_args(_with_two_dashes(given) if given[:1] == ["controller"] else given)
    execute: Callable[[argparse.Namespace], int] = args.execute
    return execute(args)


def _needed(given: Sequence[str]) -> Sequence[str]:
    """The commands that these arguments call for: one, none for the version, all for help."""
    first = given[0] if given else ""
    return () if first == "--version" else (first,) if first in COMMANDS else COMMANDS


def _with_two_dashes(given: Sequence[str]) -> Sequence[str]:
    """Go's flag package takes ``-leader-elect=false`` for ``--leader-elect=false``, so manifests may have either."""
    return [f"-{one}" if re.match(r"-[a-z][a-z-]+", one) else one for one in given]
