"""``rallypoint up``: a local cluster for kubectl and other clients."""

import argparse
import asyncio
import os
import shlex
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TextIO

import structlog
import yaml

from controller import app, command
from controller.kube.client import Client
from controller.telemetry import logs
from rallypoint.cli import cluster as clusters
from rallypoint.cli import local_flags
from rallypoint.cli.cluster import Cluster
from rallypoint.cli.terminal import write, write_error
from rallypoint.cli.ui.history import History
from rallypoint.cli.ui.server import page
from rallypoint.local import private
from rallypoint.local.apiserver.storage.journal import JournalError
from rallypoint.local.cluster import LocalCluster, ServerConfig
from rallypoint.local.log_archive import LogArchive
from rallypoint.local.node.gpus import nvml
from rallypoint.local.usage import UsageSampler

log = structlog.get_logger()

CLUSTER_NAME = "rallypoint"
"""The name of the only cluster in a kubeconfig that this command writes."""


class ForeignKubeconfig(Exception):
    """The kubeconfig file exists and this command did not write it."""


def add_parser(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]",  # pyright: ignore[reportPrivateUsage]
) -> None:
    parser = subparsers.add_parser(
        "up",
        help="run a local cluster on this machine, for kubectl and SDKs",
        description="Run an API server on loopback, a node that runs pods as processes of this machine, and the "
        "controller, until Ctrl-C.",
        epilog="Exit status: 0 stopped, 1 it could not start.",
    )
    parser.add_argument(
        "--port", type=clusters.port, default=0, help="port of the API server; default: any free port"
    )
    parser.add_argument(
        "--kubeconfig-out",
        type=Path,
        metavar="FILE",
        help="kubeconfig file to write; default: kubeconfig in the data or log folder",
    )
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="folder that keeps all objects for the next start, and the logs",
    )
    parser.add_argument(
        "--run-dir",
        type=Path,
        metavar="DIR",
        help="folder for logs without --data; default: a new folder in .rallypoint/runs",
    )
    parser.add_argument(
        "--ui-port",
        type=clusters.port,
        default=0,
        help="port of the web UI; default: any free port",
    )
    parser.add_argument(
        "--ui",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="serve the web UI, and record finished jobs for it; default: yes",
    )
    local_flags.add_flags(parser)
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    folder = Path(args.data or args.run_dir or ".")
    try:
        folder = local_flags.run_folder(args.data or args.run_dir)
        kubeconfig = Path(args.kubeconfig_out or folder / "kubeconfig").absolute()
        _require_own_kubeconfig(kubeconfig)
        with local_flags.controller_log(folder, "a") as log_file:
            logs.configure("console", "info", log_file)
            command.log_start(local_flags.settings_of(args))
            with asyncio.Runner(loop_factory=local_flags.loop_factory()) as runner:
                runner.run(_serve(args, folder, kubeconfig, log_file))
    except (*local_flags.START_ERRORS, ForeignKubeconfig, JournalError) as error:
        return _report(str(error))
    except (OSError, ExceptionGroup) as error:  # The page starts while the cluster's tasks run.
        cause = local_flags.os_error_of(error)
        if cause is None:
            raise
        return _report(local_flags.describe_os_error(cause, folder))
    return 0


def _report(why: str) -> int:
    write_error(f"rallypoint up: {why}\n")
    return 1


async def _serve(args: argparse.Namespace, folder: Path, kubeconfig: Path, log_file: TextIO) -> None:
    """Run the cluster until a signal. All processes have ended when this returns."""
    command.handle_debug_signals(log_file)
    stop = asyncio.Event()
    data = folder / "objects.sqlite" if args.data else None
    async with local_flags.open_cluster(args, folder, ServerConfig(args.port, tls=True), data) as local:
        local_flags.stop_on_signal(local, stop)
        async with _page(args, local) as url, asyncio.TaskGroup() as tasks:
            controller = tasks.create_task(app.run(local_flags.settings_of(args), local.connection))
            _write_kubeconfig(kubeconfig, local.kubeconfig)
            _print_banner(local, folder, kubeconfig, url)
            await stop.wait()
            controller.cancel()


@asynccontextmanager
async def _page(args: argparse.Namespace, local: LocalCluster) -> AsyncGenerator[str]:
    """Serve the page if the flags request it; yield its URL, empty without it.

    Raises:
        OSError: the page cannot listen. Later errors end the page only: it observes a cluster that others may use.
    """
    if not args.ui:
        yield ""
        return
    url = asyncio.get_running_loop().create_future()
    # A task group would end the block with the page.
    serving = asyncio.create_task(_serve_page(args, local, url))
    try:
        await asyncio.wait([serving, url], return_when=asyncio.FIRST_COMPLETED)
        if not url.done():
            await serving
        yield url.result()
    finally:
        serving.cancel()
        await asyncio.wait([serving])


async def _serve_page(args: argparse.Namespace, local: LocalCluster, url: "asyncio.Future[str]") -> None:
    archive = LogArchive(local.node.logs.folder)
    history = History.of_archive(archive)
    try:
        usage = UsageSampler(local.node.gpus_of_running_pods, await asyncio.to_thread(nvml))
        async with Client(local.connection, user_agent="rallypoint-ui") as client:
            cluster = Cluster(client, local.server, "", await clusters.discover(client), archive)
            async with (
                page(cluster, port=args.ui_port, history=history, records=True, usage=usage) as found,
                asyncio.TaskGroup() as tasks,
            ):
                tasks.create_task(usage.run())
                url.set_result(found)
                await asyncio.Event().wait()
    except Exception:
        if not url.done():
            raise
        log.exception("web UI stopped")
        write_error(
            "rallypoint up: the web UI stopped after an internal error, see controller.log; the cluster keeps running\n"
        )


def _print_banner(local: LocalCluster, folder: Path, kubeconfig: Path, url: str) -> None:
    shown = f"web UI: {url}\n" if url else ""
    write(
        f"{local.server}: {local_flags.banner(local)}\nlogs: {folder}\n{shown}export KUBECONFIG={shlex.quote(str(kubeconfig))}\n"
    )


def _require_own_kubeconfig(path: Path) -> None:
    """Raises:
    ForeignKubeconfig: the file exists and this command did not write it.
    """
    if not path.exists():
        return
    try:
        found: Any = yaml.safe_load(path.read_text())
        clusters = [cluster["name"] for cluster in found["clusters"]]
    except (yaml.YAMLError, UnicodeDecodeError, TypeError, KeyError):
        clusters = []
    if clusters != [CLUSTER_NAME]:
        raise ForeignKubeconfig(f"{path} exists and was not written by this command; it is left unchanged")


def _write_kubeconfig(path: Path, config: Mapping[str, Any]) -> None:
    """Replace the file atomically; only its owner can read it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    private.file(temporary).write_text(yaml.safe_dump(dict(config)))
    temporary.replace(path)
