"""The flags of a local cluster, shared by ``run`` and ``up``."""

import argparse
import asyncio
import contextlib
import errno
import os
import secrets
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TextIO, get_args

from typing_extensions import override

from api.services import ServiceMode
from controller.crds import all_crds
from controller.kinds import ALL
from controller.kinds.mpi.options import MPIOptions
from controller.policy.gang import KUBERNETES, YUNIKORN, scheduler_of
from controller.runtime import clock
from controller.settings import Settings
from rallypoint.local import private
from rallypoint.local.apiserver.apimachinery import names
from rallypoint.local.cluster import LocalCluster, NodeConfig, NoLoopback, ServerConfig, local_cluster
from rallypoint.local.node.containers.images import BadImage, Image, Images, named
from rallypoint.local.node.gpus import NoSuchGpu
from rallypoint.local.node.network.addresses import NoAddresses
from rallypoint.local.node.sandbox.client import NoNamespaces
from rallypoint.local.node.sandbox.selection import IsolationMode

SETTINGS = Settings(
    enable_scheme=tuple(kind.resource.kind for kind in ALL),
    metrics_bind_address="0",
    health_probe_bind_address="0",
    of_kinds=(MPIOptions(ssh_check=False),),
    clean_finished_pods=True,
)
"""The controller's defaults, without ports and without the SSH check: local pods run no SSH servers. A failed job leaves no process behind."""


class NoWorkingDirectory(Exception):
    """The working directory, in which pods run, has been deleted."""


START_ERRORS = (NoLoopback, NoAddresses, NoNamespaces, NoSuchGpu, NoWorkingDirectory)
"""What ``open_cluster`` raises if this machine lacks what the flags request."""
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
"""Errors of a whole file system, or of a limit on it."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--isolation",
        choices=get_args(IsolationMode),
        default="auto",
        help="how pods are isolated: by Linux namespaces, or only by addresses on loopback; "
        "default: auto, namespaces where the machine allows them",
    )
    parser.add_argument(
        "--egress",
        action="store_true",
        help="let pods in namespaces reach other machines through an HTTP proxy, set in the usual variables",
    )
    parser.add_argument(
        "--image",
        action=_Image,
        type=image,
        default={},
        dest="images",
        metavar="NAME=PATH",
        help="if PATH is a folder: use it as the file system of containers with this image, in namespaces, with the image config in "
        "PATH.json; if PATH is a file: use it as the image config, with this machine's file system; repeatable",
    )
    parser.add_argument(
        "--real-ssh",
        action="store_true",
        help="start sshd in MPI workers and connect with this machine's ssh, in namespaces; by default the node starts "
        "remote commands itself",
    )
    parser.add_argument(
        "--gpus",
        metavar="N|UUID,...",
        help="number or UUIDs of the NVIDIA GPUs to use; default: those of CUDA_VISIBLE_DEVICES, else all",
    )
    parser.add_argument(
        "--node-labels",
        type=labels,
        default={},
        metavar="KEY=VALUE,...",
        help="labels of the node, for pods with a nodeSelector",
    )
    parser.add_argument(
        "--gang-scheduler-name",
        type=gang_scheduler,
        default="",
        metavar="NAME",
        help="gang-schedule the pods of each job, as the controller does with this flag: volcano, or the name "
        "of a scheduler with coscheduling",
    )
    parser.add_argument(
        "--services",
        choices=tuple(map(str, ServiceMode)),
        default=SETTINGS.services,
        help="Services of jobs without the annotation, as with the controller's flag: per-replica, addressed or per-job; "
        "default: per-replica",
    )


def labels(text: str) -> dict[str, str]:
    """Parse labels in the format of the kubelet's ``--node-labels``."""
    found: dict[str, str] = {}
    for pair in filter(None, text.split(",")):
        key, separator, value = pair.partition("=")
        if not separator or names.qualified(key) or names.label_value(value):
            raise argparse.ArgumentTypeError(f"{pair!r} is not a label such as KEY=VALUE")
        found[key] = value
    return found


def node_config_of(args: argparse.Namespace) -> NodeConfig:
    return NodeConfig(gpus=args.gpus, labels=args.node_labels, gang_scheduler=args.gang_scheduler_name)


def open_cluster(
    args: argparse.Namespace, folder: Path, server_config: ServerConfig, data: Path | None = None
) -> AbstractAsyncContextManager[LocalCluster]:
    """Open the local cluster that the flags describe; ``server_config`` and ``data`` as in ``local_cluster``.

    Raises:
        NoWorkingDirectory: the working directory has been deleted.
    """
    try:
        Path.cwd()
    except FileNotFoundError as error:
        raise NoWorkingDirectory("the working directory has been deleted") from error
    return local_cluster(
        all_crds(),
        folder,
        isolation=args.isolation,
        egress=args.egress,
        images=Images(args.images),
        real_ssh=args.real_ssh,
        server_config=server_config,
        node_config=node_config_of(args),
        data=data,
    )


def settings_of(args: argparse.Namespace) -> Settings:
    """Return the controller's settings for a local cluster."""
    return replace(SETTINGS, gang_scheduler_name=args.gang_scheduler_name, services=args.services)


def gang_scheduler(text: str) -> str:
    """Return the scheduler's name; raise argparse.ArgumentTypeError if it is not a valid name."""
    name = scheduler_of(text)
    if name in {KUBERNETES, YUNIKORN}:
        raise argparse.ArgumentTypeError(
            f"the gangs of {name} need a real cluster; a local one has those of volcano and of coscheduling"
        )
    if name and names.subdomain(name):
        raise argparse.ArgumentTypeError(f"{text!r} is not the name of a scheduler, such as volcano")
    return name


class _Image(argparse.Action):
    """Collects one folder per image."""

    @override
    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        name, image = values
        images: dict[str, Image] = getattr(namespace, self.dest)
        if named(name) in map(named, images):
            parser.error(f"argument {option_string}: {name} is given twice")
        setattr(namespace, self.dest, {**images, name: image})


def image(text: str) -> tuple[str, Image]:
    """Parse ``NAME=PATH``."""
    name, separator, folder = text.partition("=")
    if not separator or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=PATH")
    try:
        return name, Image.read(Path(folder).resolve())
    except BadImage as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def run_folder(requested: Path | None) -> Path:
    """Create the folder of this run: in the working directory, or in the user's state directory if that is read-only.

    The path is absolute, because pods get paths in it and have other working directories. The folder is closed to other accounts. If the
    user names an existing folder, only the folders that this function creates in it are closed.

    Raises:
        OSError: the folder cannot be created.
    """
    name = f"{clock.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    if requested is not None:
        folder = (requested if requested.is_dir() else private.folder(requested)).resolve()
        for part in (folder / "logs", folder / "claims"):
            if os.path.lexists(part):
                private.folder(part)
        return folder
    with contextlib.suppress(OSError):
        return private.folder(Path(".rallypoint") / "runs" / name).resolve()
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")  # noqa: PTH111 - a user without a home directory is no error here
    return private.folder(Path(state, "rallypoint", "runs", name)).resolve()


@contextmanager
def controller_log(folder: Path, mode: Literal["w", "a"]) -> Generator[TextIO]:
    """Open the controller's log. A full disk costs lines of it, and no more.

    Raises:
        OSError: the file cannot be opened.
    """
    file = private.file(folder / "controller.log").open(mode)
    try:
        yield file
    finally:
        with contextlib.suppress(OSError):  # The lines that are still in the buffer.
            file.close()


def os_error_of(error: Exception) -> OSError | None:
    """Return ``error``, or the only error in its groups, if it is an OSError."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error if isinstance(error, OSError) else None


def describe_os_error(error: OSError, folder: Path) -> str:
    """Return the file and the reason; of a full disk, ``folder``, in which the cluster has its files, and the reason."""
    path = error.filename2 or error.filename
    if error.errno in _DISK_ERRORS and (path is None or Path(path).is_relative_to(folder)):
        path = folder
    return f"{path}: {error.strerror}" if path else error.strerror or str(error)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's loop factory if it is installed: it needs one thread less per process."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def stop_on_signal(cluster: LocalCluster, stop: asyncio.Event) -> None:
    """Stop at the first SIGINT or SIGTERM; kill the pods at the second."""

    def interrupt() -> None:
        if stop.is_set():
            cluster.node.kill()
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, interrupt)


def banner(cluster: LocalCluster) -> str:
    count = len(cluster.node.machine.gpus)
    gpus = f" and {count} GPU{'s' if count > 1 else ''}" if count else ""
    return (
        f"local node with {cluster.isolation}{gpus}; images are not pulled; commands run on this "
        f"machine, in this environment (python is {sys.executable}); relative paths start at {Path.cwd()}"
    )
