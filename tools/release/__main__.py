"""``python -m tools.release``: ``build``, ``verify``, ``twice`` and ``publish``."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.release import ReleaseError, publish


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 1 if the release cannot be built or is not as it should be."""
    options = _parser().parse_args(arguments)
    try:
        options.command(options)
    except ReleaseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(required=True)
    built = commands.add_parser("build", help="build dist/VERSION from this commit, and verify it")
    built.add_argument("version", help="the version of this source, such as 0.2.0rc1")
    built.set_defaults(command=_build)
    verified = commands.add_parser("verify", help="check the files of a release")
    verified.add_argument("folder", type=Path)
    verified.set_defaults(command=_verify)
    twice = commands.add_parser("twice", help="build in two fresh clones and compare every byte")
    twice.add_argument("version")
    twice.set_defaults(command=_twice)
    published = commands.add_parser("publish", help="upload a release, or a part of it; needs credentials")
    published.add_argument("folder", type=Path)
    published.add_argument("parts", choices=("all", *publish.PARTS), nargs="*", default="all")
    published.add_argument("--dry-run", action="store_true", help="print the commands and run none")
    published.set_defaults(command=_publish)
    return parser


def _build(options: argparse.Namespace) -> None:
    from tools.release import build

    folder = build.build(options.version)
    print(
        f"\nNothing is published. To publish {folder}, push the tag v{options.version}; the workflow runs:\n"
    )
    publish.run(folder, [], dry_run=True)


def _verify(options: argparse.Namespace) -> None:
    from tools.release import verify

    verify.verify(options.folder)
    print(f"{options.folder}: ok")


def _publish(options: argparse.Namespace) -> None:
    parts = () if "all" in options.parts else options.parts
    publish.run(options.folder, parts, dry_run=options.dry_run)


def _twice(options: argparse.Namespace) -> None:
    from tools.release import twice

    twice.compare(options.version)


if __name__ == "__main__":
    sys.exit(main())
