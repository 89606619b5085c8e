"""A training site on this machine: the embedded API server and the local node, started and stopped together."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from controller.kube.client import Client
from controller.kube.connect import Connection
from controller.local.apiserver.server import ApiServer
from controller.local.node import podlog
from controller.local.node.addresses import Addresses
from controller.local.node.loopback import Loopback
from controller.local.node.node import Node


@dataclass(frozen=True, slots=True)
class Site:
    connection: Connection
    client: Client
    node: Node


@asynccontextmanager
async def site(crds: Sequence[Mapping[str, Any]], folder: Path) -> AsyncGenerator[Site]:
    """A site that serves ``crds`` and keeps its files in ``folder``. Leaving it stops all pods first.

    Raises:
        NoAddresses: this machine has no addresses for pods.
    """
    isolation = Loopback(Addresses.claim())
    server = ApiServer(crds=[dict(crd) for crd in crds], auto_namespaces=True)
    await server.start()
    connection = Connection(server=server.url, token=lambda: server.token)
    try:
        async with Client(connection, user_agent="rallypoint-local") as client, asyncio.TaskGroup() as tasks:
            node = Node(client, folder, isolation=isolation)
            server.answer_for_pods("log", partial(podlog.answer, node.logs))
            running = tasks.create_task(node.run())
            ready = tasks.create_task(node.ready.wait())
            await ready
            try:
                yield Site(connection, client, node)
            finally:
                await node.stop()
                running.cancel()
    finally:
        await server.stop()
