"""Namespaces that are being terminated: which calls the client refuses itself, and until when."""

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
from tests.support.builders import template
from tests.support.faults import Faults

NAMESPACES = Resource("", "v1", "Namespace", "namespaces", namespaced=False)
TEAM = orjson.dumps({"metadata": {"name": "team"}})
HELD = {"finalizers": ["example.com/hold"]}


class TerminatingTeam:
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

    def create_count(self) -> int:
        """Creates of pods in ``team`` that reached the server."""
        return self._faults.count("create", "pods")


def pod(name: str) -> bytes:
    return orjson.dumps({"metadata": {"name": name}, "spec": template()["spec"]})


@asynccontextmanager
async def terminating() -> AsyncIterator[TerminatingTeam]:
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
            yield TerminatingTeam(client, faults)
        finally:
            await server.stop()


async def test_the_error_is_that_of_the_server() -> None:
    async with terminating() as team:
        for name in ("a", "b"):
            with pytest.raises(NamespaceTerminating, match="because it is being terminated"):
                await team.create(name)


async def test_after_the_first_error_no_create_reaches_the_server() -> None:
    async with terminating() as team:
        assert [await team.is_refused(f"pod-{number}") for number in range(20)] == [True] * 20
        assert team.create_count() == 1


async def test_other_namespaces_are_not_affected() -> None:
    async with terminating() as team:
        await team.is_refused("a")
        await team.create("b", "default")

        assert team.create_count() == 2


async def test_other_calls_still_reach_the_server() -> None:
    """A terminating namespace still accepts patches and deletes."""
    async with terminating() as team:
        await team.is_refused("a")
        await team.client.patch(PODS, "team", "held", orjson.dumps({"metadata": {"labels": {"a": "b"}}}))
        await team.client.list(SERVICES, "team")
        await team.client.delete(PODS, "team", "held")


async def test_a_single_create_is_sent_after_the_retry_interval() -> None:
    async with terminating() as team:
        await team.is_refused("a")
        await asyncio.sleep(RETRY_SECONDS + 1)
        await asyncio.gather(*(team.is_refused(f"pod-{number}") for number in range(20)))

        assert team.create_count() == 2


async def test_a_successful_create_removes_the_namespace_from_the_terminating_ones() -> None:
    async with terminating() as team:
        await team.is_refused("a")
        await team.client.patch(PODS, "team", "held", b'{"metadata":{"finalizers":null}}')
        await team.client.create(NAMESPACES, "", TEAM)
        await asyncio.sleep(RETRY_SECONDS + 1)
        await team.create("b")
        await team.create("c")

        assert team.client.terminating is not None
        assert "team" not in team.client.terminating


async def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespaces, "REMEMBERED", 2)
    known = TerminatingNamespaces()
    for name in ("a", "b", "c"):
        known.add(name, NamespaceTerminating(403, "Forbidden", "no"))

    assert [name in known for name in ("a", "b", "c")] == [False, True, True]
