"""A local cluster: the embedded API server and the local node, started and stopped together."""

import asyncio
import errno
import os
import socket
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from controller.kube.client import Client
from controller.kube.connect import Connection
from controller.runtime import clock
from rallypoint.local.apiserver.server import ApiServer
from rallypoint.local.batch.jobs import Jobs
from rallypoint.local.log_archive import with_extension
from rallypoint.local.node.containers.images import NO_IMAGES, Images
from rallypoint.local.node.gpus import CUDA, list_gpus, nvml, usable
from rallypoint.local.node.machine import Machine, this_machine
from rallypoint.local.node.network.addresses import PRIVATE, Addresses
from rallypoint.local.node.node import Node
from rallypoint.local.node.sandbox.isolation import Isolation
from rallypoint.local.node.sandbox.selection import IsolationMode, Selection, choose
from rallypoint.local.node.scheduler import pod_group_crds
from rallypoint.local.node.streams import exec_endpoint, log_endpoint, port_forward_endpoint
from rallypoint.local.node.volumes import service_account
from rallypoint.local.node.volumes.service_account import ApiServerAccess

if TYPE_CHECKING:
    from rallypoint.local.apiserver.serving.certificates import Identity

NOTICES = {
    "autoscaling/horizontalpodautoscalers": "local mode stores a HorizontalPodAutoscaler and does not scale its target: nothing measures pods",
}
"""Warnings for clients that create such objects."""


_NO_LOOPBACK = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL)
"""Why a connection fails if the loopback interface is down."""


class NoLoopback(Exception):
    """This machine, or its container, has no working loopback interface, on which the API server listens."""


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """How the API server is reached from outside this process."""

    port: int = 0
    """0 selects a free port."""
    tls: bool = False
    """kubectl sends its token only over TLS."""


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """The configuration of the local node."""

    gpus: str | None = None
    """The number of GPUs, or a comma-separated list of UUIDs; None for all GPUs that the user can use."""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    """Labels of the node, for node selectors."""
    gang_scheduler: str = ""
    """The name of a gang scheduler in addition to the default one; empty for none."""


@dataclass(frozen=True, slots=True)
class LocalCluster:
    connection: Connection
    """The connection of components in this process."""
    client: Client
    node: Node
    server: str
    """The address for other clients."""
    kubeconfig: Mapping[str, Any] = field(repr=False)
    isolation: str
    """The description of the isolation, for users."""


@asynccontextmanager
async def local_cluster(
    crds: Sequence[Mapping[str, Any]],
    folder: Path,
    *,
    isolation: IsolationMode = "auto",
    egress: bool = False,
    images: Images = NO_IMAGES,
    real_ssh: bool = False,
    server_config: ServerConfig = ServerConfig(),
    node_config: NodeConfig = NodeConfig(),
    data: Path | None = None,
) -> AsyncGenerator[LocalCluster]:
    """Run a local cluster that serves ``crds`` and stores its files in ``folder``. Leaving it stops all pods first.

    ``images`` maps image names to folders. With ``real_ssh``, MPI workers run the machine's sshd, and their launcher
    uses the machine's ssh.

    With ``data``, a file, the objects persist: running pods continue in the next local cluster, as after a reboot.

    Raises:
        NoLoopback: the loopback interface is down.
        NoAddresses, NoNamespaces: this machine does not support this isolation.
        NoSuchGpu: this machine does not have the requested GPUs.
        JournalError: ``data`` cannot be used.
        OSError: the port is in use.
    """
    machine = await asyncio.to_thread(_machine, folder, node_config)
    definitions = [*map(dict, crds), *pod_group_crds.definitions(node_config.gang_scheduler)]
    server = ApiServer(crds=definitions, auto_namespaces=True, data=data, notices=NOTICES)
    try:
        connection, shown = await _open(server, server_config)
        await require_loopback(connection.server)
        async with (
            _chosen(isolation, folder, egress=egress, images=images, real_ssh=real_ssh) as chosen,
            Client(connection, user_agent="rallypoint-local") as client,
            asyncio.TaskGroup() as tasks,
        ):
            access = await _allow_pods(server, chosen.isolation, shown)
            claims = None if data is None else data.parent / "claims"
            node = Node(
                client,
                folder,
                isolation=chosen.isolation,
                images=images,
                access=access,
                claims=claims,
                machine=machine,
                gang_scheduler=node_config.gang_scheduler,
                real_ssh=real_ssh,
            )
            server.answer_for_pods("log", partial(log_endpoint.answer, node.logs))
            server.answer_for_pods("exec", partial(exec_endpoint.answer, node.enter))
            server.answer_for_pods("portforward", partial(port_forward_endpoint.answer, node.connect))
            running = tasks.create_task(node.run())
            jobs = tasks.create_task(Jobs(client).run())
            ready = tasks.create_task(node.ready.wait())
            await ready
            try:
                kubeconfig = with_extension(server.kubeconfig(), node.logs.folder)
                yield LocalCluster(connection, client, node, server.url, kubeconfig, chosen.description)
            finally:
                jobs.cancel()  # Otherwise it replaces the pods that the node stops.
                await node.stop(silently=data is not None)
                running.cancel()
    finally:
        await server.stop()


def _machine(folder: Path, node_config: NodeConfig) -> Machine:
    folder.mkdir(parents=True, exist_ok=True)
    installed = list_gpus(nvml())
    gpus = usable(installed, os.environ.get(CUDA), node_config.gpus)
    return replace(this_machine(folder, gpus, node_config.labels), hides_gpus=bool(installed))


@asynccontextmanager
async def _chosen(
    wanted: IsolationMode, folder: Path, *, egress: bool, images: Images, real_ssh: bool
) -> AsyncGenerator[Selection]:
    chosen = await choose(wanted, folder, egress=egress, images=images, real_ssh=real_ssh)
    try:
        yield chosen
    finally:
        await asyncio.shield(chosen.isolation.close())


async def _open(server: ApiServer, server_config: ServerConfig) -> "tuple[Connection, Identity | None]":
    """Start the server. Return the connection of this process, and the identity of the TLS listener if there is one.

    Components in this process use no TLS, which costs half a megabyte per connection.
    """
    await server.start(port=0 if server_config.tls else server_config.port)
    connection = Connection(server=server.url, token=lambda: server.token)
    if not server_config.tls:
        return connection, None
    shown = await asyncio.to_thread(_identity)
    await server.listen(port=server_config.port, tls=shown.tls, authority=shown.authority)
    return connection, shown


async def require_loopback(server: str) -> None:
    """Connect to the server once.

    A socket can be bound to an address of an interface that is down, so only a connection shows it.

    Raises:
        NoLoopback: the interface is down.
        OSError: the connection failed for another reason.
    """
    address = urlsplit(server)
    try:
        _, writer = await asyncio.open_connection(address.hostname, address.port)
    except OSError as error:
        if error.errno not in _NO_LOOPBACK:
            raise
        raise NoLoopback(
            f"cannot connect to {address.hostname}: {os.strerror(error.errno)}. Local mode needs the loopback interface; "
            "'ip link set lo up' starts it"
        ) from error
    writer.close()


async def _allow_pods(server: ApiServer, isolation: Isolation, shown: "Identity | None") -> ApiServerAccess:
    """Also listen in the pod network if there is one; return how pods access the server."""
    if not isolation.has_network:
        return ApiServerAccess(server.pod_token, b"" if shown is None else shown.authority, "")
    if shown is None:
        shown = await asyncio.to_thread(_identity)
    listener = await isolation.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((isolation.node_address, service_account.PORT))
    await server.listen_on(listener, shown.tls)
    return ApiServerAccess(server.pod_token, shown.authority, isolation.node_address)


def _identity() -> "Identity":
    from rallypoint.local.apiserver.serving.certificates import identity

    return identity(clock.now(), Addresses(PRIVATE).node, service_account.NAMES)
