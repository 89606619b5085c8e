"""``python -m controller.crds``, also ``rallypoint crds``: prints the CustomResourceDefinitions, or writes them into a folder."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import aiohttp

from controller.crds import all_crds
from controller.crds.files import to_yaml, write
from controller.crds.kubernetes import pod_schemas, shipped
from controller.crds.refresh import release_of
from controller.kinds import ALL, DEFAULT
from controller.kube.connect import NotConfigured
from controller.kube.errors import ApiError, unreachable

KEYED, ATOMIC = "keyed", "atomic"


def main(arguments: Sequence[str], prog: str = "python -m controller.crds") -> int:
    """Print or write the definitions.

    Args:
        arguments: the flags, without the program's name.
        prog: the program's name in usage and error messages.

    Returns:
        The exit status: 0, or 1 if the cluster does not answer or the folder is not writable.
    """
    args = build_parser(prog).parse_args(arguments)
    try:
        kinds = [kind for kind in ALL if kind.resource.kind in args.kind] or DEFAULT
        schemas = pod_schemas(asyncio.run(release_of(args.kubeconfig))) if args.from_cluster else shipped()
        if args.template_lists == ATOMIC:
            schemas = schemas.with_atomic_templates()
        definitions = all_crds(schemas, kinds)
        if args.output is None:
            sys.stdout.write("".join(map(to_yaml, definitions)))
        else:
            for path in write(definitions, args.output):
                sys.stdout.write(f"{path}\n")
    except (NotConfigured, ApiError, aiohttp.ClientError, OSError) as error:
        sys.stderr.write(f"{prog}: {unreachable(error)}\n")
        return 1
    return 0


def build_parser(prog: str) -> argparse.ArgumentParser:
    """Return the parser of the command's flags."""
    parser = argparse.ArgumentParser(
        prog=prog, description="Print the CustomResourceDefinitions of the job kinds as YAML."
    )
    parser.add_argument(
        "--from-cluster",
        action="store_true",
        help="take the schema of pod templates from the cluster's API server, to include the pod fields of its version",
    )
    parser.add_argument(
        "--kubeconfig",
        default="",
        metavar="FILE",
        help="kubeconfig file for --from-cluster; default: $KUBECONFIG",
    )
    parser.add_argument(
        "--template-lists",
        choices=[KEYED, ATOMIC],
        default=KEYED,
        help="how the API server tracks lists in pod templates: by the key of each element, so that several managers can "
        "share a list in server-side apply, or as a whole, which takes less of its CPU; default: keyed",
    )
    parser.add_argument(
        "--kind",
        action="append",
        default=[],
        metavar="KIND",
        choices=[kind.resource.kind for kind in ALL],
        help="print only this kind; repeatable; default: the kinds of the default installation",
    )
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="write a file for each kind instead of printing"
    )
    return parser
