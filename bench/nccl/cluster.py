"""The target of the jobs: a cluster of a kubeconfig, the cluster around this pod, or a local cluster in this process."""

import argparse
import asyncio
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import get_args

from controller import app
from controller.crds import all_crds
from controller.kube.client import Client
from controller.kube.connect import Connection, from_kubeconfig, in_cluster
from controller.telemetry import logs
from rallypoint.cli.local_flags import SETTINGS, run_folder, stop_on_signal
from rallypoint.local.cluster import local_cluster
from rallypoint.local.node.sandbox.selection import IsolationMode


@dataclass(frozen=True, slots=True)
class Cluster:
    client: Client
    namespace: str
    stop: asyncio.Event = field(repr=False)
    """Set by SIGINT and SIGTERM."""
    json_schema: str
    """Text for messages."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--kubeconfig",
        default="",
        metavar="FILE",
        help="kubeconfig file of the cluster; default: a local cluster on this machine",
    )
    where.add_argument("--in-cluster", action="store_true", help="use the cluster that this process runs in")
    parser.add_argument(
        "--namespace",
        "-n",
        default="",
        help="namespace of the job; default: the namespace of the kubeconfig or the pod, else default",
    )
    add_isolation(parser)


def add_isolation(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--isolation",
        choices=get_args(IsolationMode),
        default="auto",
        help="isolation between the pods of the local cluster",
    )


@asynccontextmanager
async def connect(args: argparse.Namespace) -> AsyncGenerator[Cluster]:
    """Connect to the cluster that the flags select, or start a local one.

    Raises:
        NotConfigured: the connection to the cluster is not configured.
        NoAddresses, NoNamespaces: this machine cannot run a local cluster with this isolation.
    """
    if args.kubeconfig or args.in_cluster:
        connection = await from_kubeconfig(args.kubeconfig) if args.kubeconfig else in_cluster()
        async with Client(connection, user_agent="rallypoint-bench") as client:
            yield Cluster(client, _namespace(args, connection), _stopped_by_signal(), connection.server)
        return
    async with _of_this_process(args) as target:
        yield target


@asynccontextmanager
async def _of_this_process(args: argparse.Namespace) -> AsyncGenerator[Cluster]:
    folder, stop = run_folder(None), asyncio.Event()
    with (folder / "controller.log").open("w") as log_file:
        logs.configure("console", "info", log_file)
        async with local_cluster(all_crds(), folder, isolation=args.isolation) as target:
            stop_on_signal(target, stop)
            async with asyncio.TaskGroup() as tasks:
                controller = tasks.create_task(app.run(SETTINGS, target.connection))
                yield Cluster(
                    target.client,
                    args.namespace or "default",
                    stop,
                    f"this machine, {target.isolation}; {folder}",
                )
                controller.cancel()


def _namespace(args: argparse.Namespace, connection: Connection) -> str:
    return args.namespace or connection.namespace or "default"


def _stopped_by_signal() -> asyncio.Event:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop
