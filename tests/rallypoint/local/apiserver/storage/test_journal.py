"""Objects, revisions, definitions and pending garbage collection survive a restart."""

import asyncio
import contextlib
import copy
import itertools
import random
import secrets
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from rallypoint.local.apiserver import ApiServer
from rallypoint.local.apiserver.storage.journal import Journal, JournalError
from rallypoint.local.apiserver.storage.store import Change, Entry
from rallypoint.testing.http_trace import MERGE, RawClient, Step

pytestmark = pytest.mark.looptime(False)

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
TRAINS = "/apis/contract.example.com/v1/namespaces/default/trains"
DEFINITION = yaml.safe_load((Path(__file__).parents[4] / "contract" / "trains.yaml").read_text())


@asynccontextmanager
async def serving(data: Path, **options: Any) -> AsyncIterator[RawClient]:
    server = ApiServer(data=data, **options)
    await server.start()
    async with RawClient(server.url, server.token) as client:
        yield client
    await server.stop()


def named(name: str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **metadata}}


def train() -> dict[str, Any]:
    return {"apiVersion": "contract.example.com/v1", "kind": "Train", **named("t"), "spec": {"engine": "x"}}


async def test_objects_and_revisions_survive_a_restart(tmp_path: Path) -> None:
    async with serving(tmp_path / "data") as client:
        created, _, gone, changed = await client.run(
            [
                Step("POST", CONFIGMAPS, {**named("kept"), "data": {"a": "b"}}),
                Step("POST", CONFIGMAPS, named("gone")),
                Step("DELETE", f"{CONFIGMAPS}/gone"),
                Step("PATCH", f"{CONFIGMAPS}/kept", {"data": {"a": "c"}}, 200, MERGE),
            ]
        )
        assert (created.code, gone.code, changed.code) == (201, 200, 200)

    async with serving(tmp_path / "data") as client:
        found, lost, new = await client.run(
            [
                Step("GET", f"{CONFIGMAPS}/kept"),
                Step("GET", f"{CONFIGMAPS}/gone"),
                Step("POST", CONFIGMAPS, named("new")),
            ]
        )

    assert found.body == changed.body
    assert lost.code == 404
    assert int(new.body["metadata"]["resourceVersion"]) > int(changed.body["metadata"]["resourceVersion"])


async def test_a_watch_from_before_the_restart_expires(tmp_path: Path) -> None:
    async with serving(tmp_path / "data") as client:
        made = await client.send(Step("POST", CONFIGMAPS, named("a")))
        await client.send(Step("POST", CONFIGMAPS, named("b")))
    before = made.body["metadata"]["resourceVersion"]

    async with serving(tmp_path / "data") as client:
        query = {"watch": "1", "resourceVersion": before, "timeoutSeconds": "1"}
        reply = await client.send(Step("GET", CONFIGMAPS, query=query))

    assert reply.body["object"]["code"] == 410


async def test_custom_resources_are_served_after_a_restart(tmp_path: Path) -> None:
    async with serving(tmp_path / "data", crds=[DEFINITION]) as client:
        made = await client.send(Step("POST", TRAINS, train()))
    async with serving(tmp_path / "data") as client:
        found = await client.send(Step("GET", f"{TRAINS}/t"))

    assert made.code == 201
    assert found.body == made.body


async def test_a_definition_of_the_new_process_replaces_the_stored_one(tmp_path: Path) -> None:
    async with serving(tmp_path / "data", crds=[DEFINITION]) as client:
        await client.send(Step("POST", TRAINS, train()))
    newer = yaml.safe_load(yaml.safe_dump(DEFINITION))
    newer["spec"]["names"]["shortNames"] = ["choochoo"]

    async with serving(tmp_path / "data", crds=[newer]) as client:
        group = await client.send(Step("GET", "/apis/contract.example.com/v1"))
        found = await client.send(Step("GET", f"{TRAINS}/t"))

    assert found.code == 200
    assert ["choochoo"] in [resource.get("shortNames") for resource in group.body["resources"]]


async def test_objects_are_read_by_the_current_definition(tmp_path: Path) -> None:
    """Also if it changed before the restart: stored objects are as old as their last write."""
    newer = copy.deepcopy(DEFINITION)
    fields = newer["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    fields["colour"] = {"type": "string", "default": "red"}
    async with serving(tmp_path / "data", crds=[DEFINITION]) as client:
        assert (await client.send(Step("POST", TRAINS, train()))).code == 201
    for _ in range(2):
        async with serving(tmp_path / "data", crds=[newer]) as client:
            assert (await client.send(Step("GET", f"{TRAINS}/t"))).body["spec"]["colour"] == "red"


async def test_garbage_collection_continues_after_a_restart(tmp_path: Path) -> None:
    """The process ends after the owner is deleted and before its dependent is."""
    async with serving(tmp_path / "data") as client:
        owner = await client.send(Step("POST", CONFIGMAPS, named("owner")))
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner"}
        reference["uid"] = owner.body["metadata"]["uid"]
        await client.send(Step("POST", CONFIGMAPS, named("dependent", ownerReferences=[reference])))
    with sqlite3.connect(tmp_path / "data") as file:
        file.execute("DELETE FROM objects WHERE name = 'owner'")
    file.close()

    async with serving(tmp_path / "data") as client:
        async with asyncio.timeout(20):
            found = await client.send(Step("GET", f"{CONFIGMAPS}/dependent"))
            while found.code != 404:
                await asyncio.sleep(0.01)
                found = await client.send(Step("GET", f"{CONFIGMAPS}/dependent"))
        dependents = await client.send(Step("GET", CONFIGMAPS))

    assert dependents.body["items"] == []


def test_two_processes_do_not_share_a_file(tmp_path: Path) -> None:
    first = Journal(tmp_path / "data")
    with pytest.raises(JournalError, match="another process uses it"):
        Journal(tmp_path / "data")
    first.close()


def test_a_file_of_another_format_is_not_changed(tmp_path: Path) -> None:
    Journal(tmp_path / "data").close()
    with sqlite3.connect(tmp_path / "data") as file:
        file.execute("UPDATE counters SET value = 99 WHERE name = 'format'")
    file.close()

    with pytest.raises(JournalError, match="its format is 99, and this version reads 1"):
        Journal(tmp_path / "data")


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("something else entirely, and long enough to be looked at" * 20)

    with pytest.raises(JournalError, match="not a database"):
        Journal(tmp_path / "data")


def change(name: str, revision: int) -> Change:
    metadata = {"name": name, "namespace": "a", "resourceVersion": str(revision)}
    return Change("ADDED", Entry({"apiVersion": "v1", "kind": "Thing", "metadata": metadata}, revision), None)


async def test_concurrent_flushes_share_a_write(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "data")
    for number in range(100):
        journal.record("/things", change(f"t{number}", 2 + number))
    await asyncio.gather(*(journal.flush() for _ in range(100)))
    revision, found = journal.revision, list(journal.objects())
    journal.close()

    assert revision == 101
    assert len(found) == 100


async def test_a_failed_write_is_retried(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "data")
    journal.record("/things", change("t", 2))
    journal._query("PRAGMA query_only = ON")
    with pytest.raises(sqlite3.Error):
        await journal.flush()
    journal._query("PRAGMA query_only = OFF")
    await journal.flush()
    found = list(journal.objects())
    journal.close()

    assert [collection for collection, _ in found] == ["/things"]


async def test_a_server_without_a_file_does_not_wait() -> None:
    server = ApiServer()
    await server.start()
    async with RawClient(server.url, server.token) as client:
        made = await client.send(Step("POST", CONFIGMAPS, named("a")))
    await server.stop()

    assert made.code == 201


ROUNDS = 4
ALONE = """
import asyncio, sys
from pathlib import Path
from rallypoint.local.apiserver import ApiServer

async def main():
    server = ApiServer(data=Path(sys.argv[1]), token="t")
    await server.start()
    print(server.url, flush=True)
    await asyncio.sleep(3600)

asyncio.run(main())
"""


async def test_acknowledged_writes_survive_a_kill(tmp_path: Path) -> None:
    """Writers create and delete continuously while the server is killed repeatedly."""
    seed = secrets.randbits(32)
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    rng = random.Random(seed)
    there: set[str] = set()
    gone: set[str] = set()
    for number in range(ROUNDS):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", ALONE, str(tmp_path / "data"), stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        url = (await process.stdout.readline()).decode().strip()
        async with RawClient(url, "t") as client:
            listed = await client.send(Step("GET", CONFIGMAPS))
            found = {item["metadata"]["name"] for item in listed.body["items"]}
            assert (there - found, gone & found) == (set(), set())
            writers = [asyncio.create_task(_write(client, f"r{number}w{i}", there, gone)) for i in range(4)]
            await asyncio.sleep(rng.uniform(0.05, 0.4))
            process.kill()
            await asyncio.gather(*writers)
        await process.wait()

    assert there
    assert gone


async def _write(client: RawClient, name: str, there: set[str], gone: set[str]) -> None:
    """Create objects and delete every third, and record acknowledged writes, until the server stops responding."""
    with contextlib.suppress(aiohttp.ClientError):
        for number in itertools.count():
            made = await client.send(Step("POST", CONFIGMAPS, named(f"{name}n{number}")))
            assert made.code == 201
            there.add(f"{name}n{number}")
            if number % 3 == 0:
                there.discard(f"{name}n{number}")  # A write without acknowledgment is stored or not.
                await client.send(Step("DELETE", f"{CONFIGMAPS}/{name}n{number}"))
                gone.add(f"{name}n{number}")
