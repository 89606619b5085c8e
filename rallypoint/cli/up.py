"""``rallypoint up``: a local cluster for kubectl and other clients."""

import argparse
import asyncio
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

import yaml

from controller import app, command
from controller.telemetry import logs
from rallypoint.cli import local_flags
from rallypoint.local import private
from rallypoint.local.apiserver.storage.journal import JournalError
from rallypoint.local.cluster import LocalCluster, ServerConfig

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
        "--port", type=port, default=0, help="port of the API server (default: any free port)"
    )
    parser.add_argument(
        "--kubeconfig-out",
        type=Path,
        metavar="FILE",
        help="kubeconfig file to write (default: kubeconfig in the data or log folder)",
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
        help="folder for logs without --data (default: a new folder in .rallypoint/runs)",
    )
    local_flags.add_flags(parser)
    parser.set_defaults(execute=execute)


def port(text: str) -> int:
    """Parse a port number; raise argparse.ArgumentTypeError if it is none."""
    if not text.isdecimal() or not 0 <= int(text) < 1 << 16:
        raise argparse.ArgumentTypeError(f"{text}: must be from 0 to 65535")
    return int(text)


def execute(args: argparse.Namespace) -> int:
    try:
        folder = local_flags.run_folder(args.data or args.run_dir)
        kubeconfig = Path(args.kubeconfig_out or folder / "kubeconfig").absolute()
        _require_own_kubeconfig(kubeconfig)
        with private.file(folder / "controller.log").open("a") as log_file:
            logs.configure("console", "info", log_file)
            command.log_start(local_flags.settings_of(args))
            with asyncio.Runner(loop_factory=local_flags.loop_factory()) as runner:
                runner.run(_serve(args, folder, kubeconfig, log_file))
    except (*local_flags.START_ERRORS, ForeignKubeconfig, JournalError) as error:
        return _report(str(error))
    except OSError as error:
        return _report(
            f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
        )
    return 0


def _report(why: str) -> int:
    sys.stderr.write(f"rallypoint up: {why}\n")
    return 1


async def _serve(args: argparse.Namespace, folder: Path, kubeconfig: Path, log_file: TextIO) -> None:
    """Run the cluster until a signal. All processes have ended when this returns."""
    command.handle_debug_signals(log_file)
    stop = asyncio.Event()
    data = folder / "objects.sqlite" if args.data else None
    async with local_flags.open_cluster(args, folder, ServerConfig(args.port, tls=True), data) as local:
        local_flags.stop_on_signal(local, stop)
        async with asyncio.TaskGroup() as tasks:
            controller = tasks.create_task(app.run(local_flags.settings_of(args), local.connection))
            _write_kubeconfig(kubeconfig, local.kubeconfig)
            _print_banner(local, folder, kubeconfig)
            await stop.wait()
            controller.cancel()


def _print_banner(local: LocalCluster, folder: Path, kubeconfig: Path) -> None:
    sys.stdout.write(
        f"{local.server}: {local_flags.banner(local)}\nlogs: {folder}\nexport KUBECONFIG={shlex.quote(str(kubeconfig))}\n"
    )
    sys.stdout.flush()


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
