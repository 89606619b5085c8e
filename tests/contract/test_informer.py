"""An informer on both servers: a single watch request serves existing objects and changes, without a list."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from api.children import Service, service_from_json
from api.meta import Resource
from controller.kube.client import METADATA_ONLY, METADATA_ONLY_LIST, Client
from controller.kube.connect import Connection, from_kubeconfig
from controller.runtime.informer import Fill, Informer
from rallypoint.local.apiserver import ApiServer

CONFIGMAPS = Resource(group="", version="v1", kind="ConfigMap", plural="configmaps")
TIMEOUT_SECONDS = 30.0


@pytest.fixture(params=["embedded", "real"])
async def client(
    request: pytest.FixtureRequest, embedded_server: ApiServer, real_server: dict[str, object], tmp_path: Path
) -> AsyncIterator[Client]:
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(real_server))
    connection = (
        Connection(embedded_server.url, token=lambda: embedded_server.token)
        if request.param == "embedded"
        else await from_kubeconfig(str(path))
    )
    async with Client(connection) as client:
        yield client


async def make(client: Client, namespace: str, name: str) -> None:
    await client.create(
        CONFIGMAPS, namespace, b'{"metadata":{"name":"%s","labels":{"mine":""}}}' % name.encode()
    )


async def test_a_single_watch_reports_existing_objects_and_changes(client: Client, namespace: str) -> None:
    for name in ("a", "b"):
        await make(client, namespace, name)
    changes = asyncio.Queue[tuple[str | None, str | None]]()

    def on_change(before: Service | None, after: Service | None) -> None:
        changes.put_nowait((before.name if before else None, after.name if after else None))

    informer = Informer[Service](
        client,
        CONFIGMAPS,
        service_from_json,
        on_change,
        namespace=namespace,
        label_selector="mine",
        accept=lambda whole_list: METADATA_ONLY_LIST if whole_list else METADATA_ONLY,
    )
    task = asyncio.create_task(informer.run())
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await informer.synced.wait()
            assert {await changes.get(), await changes.get()} == {(None, "a"), (None, "b")}
            await make(client, namespace, "c")
            assert await changes.get() == (None, "c")
            await client.delete(CONFIGMAPS, namespace, "a")
            assert await changes.get() == ("a", None)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    assert {row.name for row in informer.store} == {"b", "c"}
    assert informer.fills == {Fill.WATCH: 1}
