"""``python -m tools.image``: ``build`` makes the image, ``lock`` renews the lock of its base, ``check`` looks at an archive."""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools.image import ImageError, build, debian

_MIRROR = "RALLYPOINT_DEBIAN_MIRROR"
_LOCKS = ("operator", "tracing")


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 1 if the image cannot be built, or is not as it should be."""
    options = _parser().parse_args(arguments)
    try:
        options.command(options)
    except (ImageError, OSError, subprocess.CalledProcessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.image", description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(required=True)
    mirror = argparse.ArgumentParser(add_help=False)
    mirror.add_argument(
        "--mirror",
        default=os.environ.get(_MIRROR, ""),
        metavar="URL",
        help=f"address of Debian's archives, with {{archive}} for debian and debian-security; default: ${_MIRROR}, or that of apt",
    )
    made = commands.add_parser("build", parents=[mirror], help="build the image")
    made.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder of the archives")
    made.add_argument("--version", default="", help="fail unless the operator has this version")
    made.add_argument(
        "--wheel", type=Path, metavar="FILE", help="the operator's wheel; default: built from this checkout"
    )
    made.add_argument(
        "--name", default="", help="name of the image in the archives; default: rallypoint:VERSION"
    )
    made.add_argument(
        "--lock", choices=_LOCKS, default="operator", help="lock of its packages; default: operator"
    )
    made.add_argument(
        "--arch",
        action="append",
        choices=sorted(debian.ARCHITECTURES),
        help="architecture, can be repeated; default: all",
    )
    made.add_argument("--no-start", action="store_true", help="do not start the operator in the image")
    made.set_defaults(command=_build)
    commands.add_parser(
        "lock", parents=[mirror], help=f"write {debian.LOCK} with Debian's current versions"
    ).set_defaults(command=_lock)
    checked = commands.add_parser("check", help="check an archive and its bill of materials")
    checked.add_argument("archive", type=Path)
    checked.add_argument("sbom", type=Path)
    checked.set_defaults(command=lambda options: build.check(options.archive, options.sbom))
    return parser


def _build(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        lock = build.ROOT / "requirements" / f"{options.lock}.txt"
        sources = build.sources(lock, options.version, options.wheel, Path(scratch))
        architectures = list(dict.fromkeys(options.arch or sorted(debian.ARCHITECTURES)))
        summary = build.build(
            options.output,
            sources,
            architectures,
            name=options.name,
            mirror=options.mirror,
            start=not options.no_start,
        )
    print(f"{options.output / 'image.json'}: {summary['digest']}")


def _lock(options: argparse.Namespace) -> None:
    debian.renew(build.ROOT / debian.LOCK, debian.mirrors(options.mirror))


if __name__ == "__main__":
    sys.exit(main())
