"""Namespaces that are being terminated: what is refused without asking the API server, and until when."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import orjson
import pytest

from api.meta import PODS, SERVICES, Resource
from controller.kube import namespaces
from controller.kube.client import Client
from controller.kube.connect import Connection
from controller.kube.errors import NamespaceTerminating
from controller.kube.namespaces import RETRY_SECONDS, TerminatingNamespaces
from rallypoint.local.apiserver import ApiServer
from rallypoint.testing.builders import template
from rallypoint.testing.faults import Faults

NAMESPACES = Resource("", "v1", "Namespace", "namespaces", namespaced=False)
TEAM = orjson.dumps({"metadata": {"name": "team"}})
HELD = {"finalizers": ["example.com/hold"]}


class Stage:
    """A server with a namespace ``team`` that is being deleted, and a client that remembers such answers."""

    def __init__(self, client: Client, faults: Faults) -> None:
        self.client = client
        self._faults = faults

    async def create(self, name: str, namespace: str = "team") -> None:
        await self.client.create(PODS, namespace, pod(name))

    async def is_refused(self, name: str) -> bool:
        try:
            await self.create(name)
        except NamespaceTerminating:
            return True
        return False

    def asked(self) -> int:
        """Creates of pods in ``team`` that reached the server."""
        return self._faults.count("create", "pods")


def pod(name: str) -> bytes:
    return orjson.dumps({"metadata": {"name": name}, "spec": template()["spec"]})


@asynccontextmanager
async def terminating() -> AsyncIterator[Stage]:
    server = ApiServer(interceptor=(faults := Faults()))
    await server.start()
    connection = Connection(server.url, token=lambda: server.token)
    async with Client(connection, terminating=TerminatingNamespaces()) as client:
        # A pod that stays keeps its namespace.
        await client.create(NAMESPACES, "", TEAM)
        held = {"metadata": {"name": "held", **HELD}, "spec": template()["spec"]}
        await client.create(PODS, "team", orjson.dumps(held))
        await client.delete(NAMESPACES, "", "team")
        faults.calls.clear()
        try:
            yield Stage(client, faults)
        finally:
            await server.stop()


async def test_the_answer_is_that_of_the_server() -> None:
    async with terminating() as stage:
        for name in ("a", "b"):
            with pytest.raises(NamespaceTerminating, match="because it is being terminated"):
                await stage.create(name)


async def test_after_the_first_refusal_the_server_is_not_asked() -> None:
    async with terminating() as stage:
        assert [await stage.is_refused(f"pod-{number}") for number in range(20)] == [True] * 20
        assert stage.asked() == 1


async def test_other_namespaces_are_not_affected() -> None:
    async with terminating() as stage:
        await stage.is_refused("a")
        await stage.create("b", "default")

        assert stage.asked() == 2


async def test_the_rest_is_asked_as_before() -> None:
    """A namespace that is going still takes changes and deletes."""
    async with terminating() as stage:
        await stage.is_refused("a")
        await stage.client.patch(PODS, "team", "held", orjson.dumps({"metadata": {"labels": {"a": "b"}}}))
        await stage.client.list(SERVICES, "team")
        await stage.client.delete(PODS, "team", "held")


async def test_now_and_then_one_create_is_sent_all_the_same() -> None:
    async with terminating() as stage:
        await stage.is_refused("a")
        await asyncio.sleep(RETRY_SECONDS + 1)
        await asyncio.gather(*(stage.is_refused(f"pod-{number}") for number in range(20)))

        assert stage.asked() == 2


async def test_a_create_that_succeeds_shows_that_the_namespace_lives() -> None:
    async with terminating() as stage:
        await stage.is_refused("a")
        await stage.client.patch(PODS, "team", "held", b'{"metadata":{"finalizers":null}}')
        await stage.client.create(NAMESPACES, "", TEAM)
        await asyncio.sleep(RETRY_SECONDS + 1)
        await stage.create("b")
        await stage.create("c")

        assert stage.client.terminating is not None
        assert "team" not in stage.client.terminating


async def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespaces, "REMEMBERED", 2)
    known = TerminatingNamespaces()
    for name in ("a", "b", "c"):
        known.add(name, NamespaceTerminating(403, "Forbidden", "no"))

    assert [name in known for name in ("a", "b", "c")] == [False, True, True]
