"""A training site on this machine: the embedded API server and the local node, started and stopped together."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from controller.kube.client import Client
from controller.kube.connect import Connection
from controller.local.apiserver.server import ApiServer
from controller.local.batch.jobs import Jobs
from controller.local.node import podexec, podlog
from controller.local.node.choice import Chosen, Wanted, choose
from controller.local.node.node import Node
from controller.runtime import clock

NOTICES = {
    "autoscaling/horizontalpodautoscalers": "a HorizontalPodAutoscaler is kept and has no effect here: nothing measures pods",
}
"""What whoever creates such objects is told."""


@dataclass(frozen=True, slots=True)
class Door:
    """How a site is reached from outside this process."""

    port: int = 0
    """0: any free one."""
    tls: bool = False
    """kubectl needs it: it sends no token without."""


@dataclass(frozen=True, slots=True)
class Site:
    connection: Connection
    client: Client
    node: Node
    kubeconfig: Mapping[str, Any] = field(repr=False)
    isolation: str
    """What separates the pods, for people."""


@asynccontextmanager
async def site(
    crds: Sequence[Mapping[str, Any]],
    folder: Path,
    *,
    isolation: Wanted = "auto",
    egress: bool = False,
    door: Door = Door(),
    data: Path | None = None,
) -> AsyncGenerator[Site]:
    """A site that serves ``crds`` and keeps its files in ``folder``. Leaving it stops all pods first.

    With ``data``, a file, the objects outlive the site: pods that run when it is left go on in the next one, as after
    a reboot of their node.

    Raises:
        NoAddresses, NoNamespaces: this machine does not have what pods need with this isolation.
        Unusable: ``data`` cannot be used.
        OSError: the door's port is taken.
    """
    server = ApiServer(crds=[dict(crd) for crd in crds], auto_namespaces=True, data=data, notices=NOTICES)
    try:
        connection = await _open(server, door)
        async with (
            _chosen(isolation, folder, egress=egress) as chosen,
            Client(connection, user_agent="rallypoint-local") as client,
            asyncio.TaskGroup() as tasks,
        ):
            node = Node(client, folder, isolation=chosen.isolation)
            server.answer_for_pods("log", partial(podlog.answer, node.logs))
            server.answer_for_pods("exec", partial(podexec.answer, node.enter))
            running = tasks.create_task(node.run())
            jobs = tasks.create_task(Jobs(client).run())
            ready = tasks.create_task(node.ready.wait())
            await ready
            try:
                yield Site(connection, client, node, server.kubeconfig(), chosen.spelled)
            finally:
                jobs.cancel()  # Else it would replace what the node stops.
                await node.stop(silently=data is not None)
                running.cancel()
    finally:
        await server.stop()


@asynccontextmanager
async def _chosen(wanted: Wanted, folder: Path, *, egress: bool) -> AsyncGenerator[Chosen]:
    chosen = await choose(wanted, folder, egress=egress)
    try:
        yield chosen
    finally:
        await asyncio.shield(chosen.isolation.close())


async def _open(server: ApiServer, door: Door) -> Connection:
    """Start the server; how the parts of this process reach it."""
    if not door.tls:
        await server.start(port=door.port)
        return Connection(server=server.url, token=lambda: server.token)
    from controller.local.apiserver.certificates import identity

    shown = identity(clock.now())
    await server.start(port=door.port, tls=shown.tls, authority=shown.authority)
    trusting = ssl.create_default_context(cadata=shown.authority.decode())
    return Connection(server=server.url, token=lambda: server.token, tls=lambda: trusting)
