"""Storage migration: objects of an older version are rewritten, then the definition drops that version."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import orjson
import pytest
from structlog.testing import capture_logs

from api.meta import Resource
from controller.kube.client import Client
from controller.kube.connect import Connection
from controller.kube.errors import Conflict, ServerError
from controller.runtime import listwatch
from controller.runtime.migration import DEFINITIONS, migrate, migrated
from rallypoint.local.apiserver import ApiServer
from tests.support.faults import Delay, Faults, Refuse, Reset, Rule

BOATS = Resource("sea.example.com", "v1", "Boat", "boats")
NAME = "boats.sea.example.com"


def definition(*versions: str, storage: str, longest: int = 9) -> dict[str, Any]:
    """Each version stamps its name, as that of MPIJobs does."""

    def schema(version: str) -> dict[str, Any]:
        made = {"type": "string", "default": version}
        spec = {
            "type": "object",
            "default": {},
            "properties": {"made": made, "sails": {"type": "integer", "maximum": longest}},
        }
        return {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}

    names = {"kind": BOATS.kind, "plural": BOATS.plural}
    served = [
        {"name": version, "served": True, "storage": version == storage, "schema": schema(version)}
        for version in versions
    ]
    spec = {"group": BOATS.group, "scope": "Namespaced", "names": names, "versions": served}
    return {
        "apiVersion": DEFINITIONS.api_version,
        "kind": DEFINITIONS.kind,
        "metadata": {"name": NAME},
        "spec": spec,
    }


@dataclass
class Sea:
    server: ApiServer
    client: Client
    faults: Faults

    async def build(self, version: str, *names: str, **spec: Any) -> None:
        resource = Resource(BOATS.group, version, BOATS.kind, BOATS.plural)
        for name in names:
            body = {
                "apiVersion": resource.api_version,
                "kind": BOATS.kind,
                "metadata": {"name": name},
                "spec": spec,
            }
            await self.client.create(resource, "default", orjson.dumps(body))

    async def stored_versions(self) -> list[str]:
        status = orjson.loads(await self.client.get(DEFINITIONS, "", NAME))["status"]
        return list(status["storedVersions"])

    def stored_as(self) -> set[str]:
        boats = self.server.store.collection(f"{BOATS.group}/{BOATS.plural}").select()
        return {entry.object["apiVersion"].rpartition("/")[2] for entry in boats}

    async def made(self) -> dict[str, str]:
        boats = orjson.loads(await self.client.list(BOATS))["items"]
        return {boat["metadata"]["name"]: boat["spec"]["made"] for boat in boats}

    def written(self) -> list[str]:
        return [
            call.name for call in self.faults.calls if (call.verb, call.plural) == ("patch", BOATS.plural)
        ]


@asynccontextmanager
async def taken_over(*names: str) -> AsyncGenerator[Sea]:
    """Boats stored as v2beta1 by a definition that had nothing else, and then the one with v1."""
    faults = Faults()
    server = ApiServer(crds=[definition("v2beta1", storage="v2beta1")], interceptor=faults)
    await server.start()
    try:
        async with Client(Connection(server.url, token=lambda: server.token)) as client:
            sea = Sea(server, client, faults)
            await sea.build("v2beta1", *names)
            server.define(definition("v1", "v2beta1", storage="v1"))
            faults.calls.clear()
            yield sea
    finally:
        await server.stop()


async def test_all_objects_are_rewritten_and_the_old_version_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listwatch, "PAGE_SIZE", 4)
    names = [f"b{number:02}" for number in range(10)]
    async with taken_over(*names) as sea:
        assert (await sea.stored_versions(), sea.stored_as()) == (["v2beta1", "v1"], {"v2beta1"})

        written = await migrate(sea.client, BOATS)

        assert (written, sorted(sea.written())) == (10, names)
        assert (await sea.stored_versions(), sea.stored_as()) == (["v1"], {"v1"})
        assert await sea.made() == dict.fromkeys(names, "v2beta1")


async def test_without_objects_the_old_version_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """kube-apiserver encodes an empty list of metadata as null."""
    async with taken_over() as sea:

        async def empty(*args: Any, **options: Any) -> bytes:
            return b'{"kind":"PartialObjectMetadataList","metadata":{"resourceVersion":"1"},"items":null}'

        monkeypatch.setattr(sea.client, "list", empty)

        assert await migrate(sea.client, BOATS) == 0
        assert await sea.stored_versions() == ["v1"]


async def test_nothing_is_done_twice() -> None:
    async with taken_over("a") as sea:
        await migrate(sea.client, BOATS)
        sea.faults.calls.clear()

        assert await migrate(sea.client, BOATS) == 0
        assert [call.verb for call in sea.faults.calls] == ["get"]


@pytest.mark.parametrize(
    "others",
    [
        pytest.param(definition("v1", "v2beta1", storage="v2beta1"), id="another version is stored"),
        pytest.param(None, id="there is no definition"),
    ],
)
async def test_a_migrated_definition_is_left_alone(others: dict[str, Any] | None) -> None:
    async with taken_over("a") as sea:
        if others is None:
            await sea.client.delete(DEFINITIONS, "", NAME)
        else:
            sea.server.define(others)

        assert await migrate(sea.client, BOATS) == 0
        assert sea.written() == []


async def test_a_rejected_object_keeps_its_stored_version() -> None:
    async with taken_over("good", "poor") as sea:
        sea.faults.rules.append(Rule(Refuse(422, "Invalid"), verb="patch", name="poor"))

        with capture_logs() as lines:
            assert await migrate(sea.client, BOATS) == 1

        assert await sea.stored_versions() == ["v2beta1", "v1"]
        assert [line.get("name") for line in lines] == ["poor", None]


async def test_an_object_that_is_deleted_meanwhile_is_skipped() -> None:
    async with taken_over("a", "b") as sea:
        sea.faults.rules.append(Rule(Refuse(404, "NotFound"), verb="patch", name="a"))
        await migrate(sea.client, BOATS)

        assert await sea.stored_versions() == ["v1"]


@pytest.mark.parametrize("seconds", [30.0, 61.0], ids=["before", "among the patches"])
async def test_a_definition_that_changes_meanwhile_is_a_conflict(seconds: float) -> None:
    async with taken_over("a") as sea:
        sea.faults.rules.append(Rule(Delay(5.0), verb="patch", name="a"))
        migrating = asyncio.create_task(migrate(sea.client, BOATS))
        await asyncio.sleep(seconds)
        sea.server.define(definition("v1", "v2beta1", storage="v1", longest=8))

        with pytest.raises(Conflict):
            await migrating
        assert await sea.stored_versions() == ["v2beta1", "v1"]


@pytest.mark.parametrize("fault", [Refuse(500, "InternalError"), Reset(), Reset(committed=True)])
async def test_the_migration_continues_after_interruptions(fault: Refuse | Reset) -> None:
    async with taken_over("a", "b") as sea:
        sea.faults.rules.append(Rule(fault, verb="patch", plural=BOATS.plural, times=2))
        if isinstance(fault, Refuse):
            with pytest.raises(ServerError):
                await migrate(sea.client, BOATS)

        await migrated(sea.client, BOATS)

        assert await sea.stored_versions() == ["v1"]


async def test_missing_permissions_are_not_retried() -> None:
    async with taken_over("a") as sea:
        sea.faults.rules.append(Rule(Refuse(403, "Forbidden", "may not"), verb="patch"))
        with capture_logs() as lines:
            await migrated(sea.client, BOATS)

        assert [(line["event"], line["error"]) for line in lines] == [
            ("storage version migration skipped, permissions are missing", "may not")
        ]
        assert await sea.stored_versions() == ["v2beta1", "v1"]
