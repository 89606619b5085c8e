"""``rallypoint crds``: print the CustomResourceDefinitions, or write them into a folder."""

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Any

import aiohttp

from controller.crds import all_crds
from controller.crds.files import to_yaml, write
from controller.crds.kubernetes import pod_schemas
from controller.crds.refresh import release_of
from controller.kube.connect import NotConfigured
from controller.kube.errors import ApiError


def add_parser(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]",  # pyright: ignore[reportPrivateUsage]
) -> None:
    parser = subparsers.add_parser(
        "crds",
        help="print the CustomResourceDefinitions",
        description="Print the CustomResourceDefinitions of all kinds as YAML.",
    )
    parser.add_argument(
        "--from-cluster",
        action="store_true",
        help="take the pod template from the cluster's own API server, so that its newest pod fields are known",
    )
    parser.add_argument(
        "--kubeconfig", default="", metavar="FILE", help="which cluster; default: $KUBECONFIG"
    )
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="write a file for each kind instead of printing"
    )
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Exit status: 0, or 1 when the cluster cannot be asked or the folder not be written."""
    try:
        definitions = _from_cluster(args.kubeconfig) if args.from_cluster else all_crds()
        if args.output is None:
            sys.stdout.write("".join(map(to_yaml, definitions)))
        else:
            for path in write(definitions, args.output):
                sys.stdout.write(f"{path}\n")
    except (NotConfigured, ApiError, aiohttp.ClientError, OSError) as error:
        sys.stderr.write(f"rallypoint crds: {error}\n")
        return 1
    return 0


def _from_cluster(kubeconfig: str) -> list[dict[str, Any]]:
    return all_crds(pod_schemas(asyncio.run(release_of(kubeconfig))))
