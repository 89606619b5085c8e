"""``rallypoint ui``: a web UI that shows the jobs of a cluster. It changes nothing."""

import argparse
import asyncio
import contextlib
import logging
import signal
from functools import partial

import structlog

from rallypoint.cli import cluster as clusters
from rallypoint.cli.cluster import Cluster, CommandError
from rallypoint.cli.terminal import write
from rallypoint.cli.ui.history import History

LOOPBACK = "127.0.0.1"


def add_parser(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]",  # pyright: ignore[reportPrivateUsage]
) -> None:
    parser = subparsers.add_parser(
        "ui",
        help="show the jobs of a cluster, local or real, in a browser",
        description="Serve a web UI on this machine that shows jobs, what blocks them, their timelines, events and logs, until Ctrl-C. "
        "It reads the cluster with the rights of the kubeconfig and changes nothing. Default: all namespaces; -n shows one.",
    )
    parser.add_argument(
        "--port", type=clusters.port, default=0, help="port of the web UI; default: any free port"
    )
    parser.add_argument(
        "--address",
        default=LOOPBACK,
        help=f"address to listen on; default: {LOOPBACK}; with another one, everybody who knows the URL with its token reads what you may read, "
        "and the connection is not encrypted",
    )
    clusters.add_flags(parser)
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    args.all_namespaces = not args.namespace
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    return clusters.execute(args, partial(_serve, args))


async def _serve(args: argparse.Namespace, cluster: Cluster) -> int:
    from rallypoint.cli.ui.server import page

    stop = asyncio.Event()
    with contextlib.suppress(NotImplementedError):
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
    history = None if cluster.archive is None else History.of_archive(cluster.archive)
    try:
        async with page(cluster, address=args.address, port=args.port, history=history) as url:
            write(f"{url}\n")
            await stop.wait()
    except OSError as error:
        raise CommandError(f"cannot listen on {args.address}:{args.port}: {error.strerror}") from error
    return 0
