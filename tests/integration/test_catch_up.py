"""A real API server: how an informer proves that its store contains all earlier changes, while nothing else changes.

The API server sends a bookmark of a quiet resource only about once a minute, except before the timeout of a watch.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager

import orjson
import pytest

from api.children import ConfigMap, config_map_from_json
from api.meta import CONFIG_MAPS, SECRETS
from controller.kube.client import METADATA_ONLY, METADATA_ONLY_LIST, Client
from controller.kube.connect import from_kubeconfig
from controller.runtime.informer import BOOKMARK_SECONDS, Informer
from rallypoint.testing.controlplane import ControlPlane

NAMESPACE, LABEL = "default", "test"


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with ControlPlane(controllers=(), service_account_admission=False) as running:
        yield running


@asynccontextmanager
async def informing(plane: ControlPlane) -> AsyncGenerator[tuple[Client, Informer[ConfigMap]]]:
    async with Client(await from_kubeconfig(str(plane.kubeconfig()))) as client:
        informer = Informer[ConfigMap](
            client,
            CONFIG_MAPS,
            config_map_from_json,
            lambda before, after: None,
            label_selector=LABEL,
            accept=lambda is_list: METADATA_ONLY_LIST if is_list else METADATA_ONLY,
        )
        task = asyncio.create_task(informer.run())
        try:
            await informer.synced.wait()
            yield client, informer
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def write(client: Client, name: str, *, is_selected: bool = True) -> None:
    labels = {LABEL: ""} if is_selected else {}
    await client.create(CONFIG_MAPS, NAMESPACE, orjson.dumps({"metadata": {"name": name, "labels": labels}}))


async def write_another(client: Client, name: str) -> None:
    """Write an object of another resource, which changes the server's resourceVersion."""
    await client.create(SECRETS, NAMESPACE, orjson.dumps({"metadata": {"name": name}}))


@pytest.mark.newest  # Kubernetes 1.29 does not bring its watch cache up to date for a list
async def test_a_store_catches_up_although_no_object_of_its_resource_changes(plane: ControlPlane) -> None:
    async with informing(plane) as (client, informer):
        for number in range(3):
            await write_another(client, f"other-{number}")
            began = time.monotonic()

            assert await informer.catch_up(None, listed_rows=-1)
            assert time.monotonic() - began < BOOKMARK_SECONDS
        assert sum(informer.fills.values()) == 1, "it did not list again"


@pytest.mark.newest
async def test_a_store_that_has_caught_up_contains_what_was_written_before(plane: ControlPlane) -> None:
    async with informing(plane) as (client, informer):
        for number in range(5):
            await write(client, f"selected-{number}")
            await write(client, f"hidden-{number}", is_selected=False)
            await client.delete(CONFIG_MAPS, NAMESPACE, f"selected-{number - 1}") if number else None
            # As the Lease of a new leader. The server sends no bookmark at the version of an event that the selector hides.
            await write_another(client, f"lease-{number}")

            assert await informer.catch_up(None, listed_rows=-1)
            assert {row.name for row in informer.store} == {f"selected-{number}"}


async def test_the_latest_change_of_one_store_is_enough_for_another(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse() -> int:
        raise AssertionError("the event of the change is proof")

    monkeypatch.setattr("controller.runtime.informer.EVENTS_SECONDS", 60.0)
    async with informing(plane) as (client, leading), informing(plane) as (_, waiting):
        await write(client, "first")
        await write(client, "second")
        await client.delete(CONFIG_MAPS, NAMESPACE, "first")
        while {"first", "second"} & {row.name for row in leading.store} != {"second"}:  # noqa: ASYNC110 - a store has no event
            await asyncio.sleep(0.05)
        latest_change = leading.store.latest_change
        assert latest_change is not None
        monkeypatch.setattr(waiting.source, "current_version", refuse)

        assert await waiting.catch_up(latest_change, listed_rows=-1)
        assert {row.name for row in waiting.store} == {row.name for row in leading.store}
