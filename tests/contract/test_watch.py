"""Watches: events, their order, bookmarks, and the end of a watch."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from rallypoint.testing.http_trace import JSON, MERGE, PARTIAL, TABLE, RawClient, Step

PODS = "/api/v1/namespaces/{ns}/pods"
CONFIGMAPS = "/api/v1/namespaces/{ns}/configmaps"
TRAINS = "/apis/contract.example.com/v1/namespaces/{ns}/trains"
TIMEOUT_SECONDS = 30.0
ENDS = "k8s.io/initial-events-end"
STREAMED = {
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
    "allowWatchBookmarks": "true",
}
FUTURE = "999999999"
Event = dict[str, Any]


class Server:
    """One server and the namespace of the test."""

    def __init__(self, client: RawClient, namespace: str) -> None:
        self.client = client
        self._namespace = namespace

    def at(self, path: str) -> str:
        return path.replace("{ns}", self._namespace)

    async def do(self, method: str, path: str, body: Any = None, kind: str = JSON, **query: str) -> Any:
        reply = await self.client.send(Step(method, self.at(path), body, type=kind, query=query))
        assert reply.code < 300, reply.text
        return reply.body

    async def configmap(self, name: str, **labels: str) -> str:
        made = await self.do("POST", CONFIGMAPS, {"metadata": {"name": name, "labels": labels}})
        version: str = made["metadata"]["resourceVersion"]
        return version

    async def relabel(self, name: str, **labels: str | None) -> None:
        await self.do("PATCH", f"{CONFIGMAPS}/{name}", {"metadata": {"labels": labels}}, MERGE)

    @asynccontextmanager
    async def watch(self, path: str, accept: str = JSON, **query: str) -> AsyncGenerator["Stream"]:
        async with self.client.stream(self.at(path), {"watch": "true", **query}, accept) as lines:
            yield Stream(lines)


class Stream:
    def __init__(self, lines: AsyncIterator[bytes]) -> None:
        self._lines = lines

    async def next(self) -> Event:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            event: Event = orjson.loads(await anext(self._lines))
            return event

    async def take(self, count: int) -> list[Event]:
        return [await self.next() for _ in range(count)]

    async def rest(self) -> list[Event]:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return [orjson.loads(line) async for line in self._lines]


def said(event: Event) -> tuple[str, str]:
    return event["type"], event["object"]["metadata"].get("name", "")


def version(event: Event) -> int:
    return int(event["object"]["metadata"]["resourceVersion"])


@pytest.fixture
def server(client: RawClient, namespace: str) -> Server:
    return Server(client, namespace)


async def test_changes_are_reported_in_order(server: Server) -> None:
    since = await server.configmap("a")
    async with server.watch(CONFIGMAPS, resourceVersion=since) as stream:
        await server.configmap("b")
        await server.relabel("b", x="y")
        await server.do("DELETE", f"{CONFIGMAPS}/a")
        events = await stream.take(3)

    assert [said(event) for event in events] == [("ADDED", "b"), ("MODIFIED", "b"), ("DELETED", "a")]
    versions = [version(event) for event in events]
    assert versions == sorted(set(versions))
    assert versions[0] > int(since)


async def test_changes_after_the_given_version_are_reported(server: Server) -> None:
    since = await server.configmap("a")
    await server.relabel("a", x="y")
    await server.do("DELETE", f"{CONFIGMAPS}/a")

    async with server.watch(CONFIGMAPS, resourceVersion=since) as stream:
        events = await stream.take(2)

    assert [said(event) for event in events] == [("MODIFIED", "a"), ("DELETED", "a")]


@pytest.mark.parametrize("query", [{}, {"resourceVersion": "0"}], ids=["no version", "any version"])
async def test_existing_objects_are_reported_first(server: Server, query: Mapping[str, str]) -> None:
    await server.configmap("a", mine="")
    await server.configmap("b", mine="")

    async with server.watch(CONFIGMAPS, labelSelector="mine", **query) as stream:
        first = await stream.take(2)
        await server.configmap("c", mine="")
        then = await stream.next()

    assert {said(event) for event in first} == {("ADDED", "a"), ("ADDED", "b")}
    assert said(then) == ("ADDED", "c")


async def test_a_deleted_object_has_a_new_resource_version(server: Server) -> None:
    since = await server.configmap("a")
    async with server.watch(CONFIGMAPS, resourceVersion=since) as stream:
        await server.do("DELETE", f"{CONFIGMAPS}/a")
        deleted = await stream.next()

    assert version(deleted) > int(since)
    assert "deletionTimestamp" not in deleted["object"]["metadata"]


async def test_the_deletion_of_a_bound_pod_is_reported_in_steps(server: Server) -> None:
    spec = {"nodeName": "nowhere", "containers": [{"name": "c", "image": "i"}]}
    made = await server.do("POST", PODS, {"metadata": {"name": "p"}, "spec": spec})
    async with server.watch(PODS, resourceVersion=made["metadata"]["resourceVersion"]) as stream:
        await server.do("DELETE", f"{PODS}/p")
        await server.do("DELETE", f"{PODS}/p", gracePeriodSeconds="0")
        events = await stream.take(3)

    changes = [(event["type"], event["object"]["metadata"]["deletionGracePeriodSeconds"]) for event in events]
    assert changes == [("MODIFIED", 30), ("MODIFIED", 0), ("DELETED", 0)]


async def test_the_deletion_of_an_unbound_pod_is_reported(server: Server) -> None:
    spec = {"containers": [{"name": "c", "image": "i"}]}
    made = await server.do("POST", PODS, {"metadata": {"name": "p"}, "spec": spec})
    async with server.watch(PODS, resourceVersion=made["metadata"]["resourceVersion"]) as stream:
        await server.do("DELETE", f"{PODS}/p")
        events = await stream.take(2)

    assert [said(event) for event in events] == [("MODIFIED", "p"), ("DELETED", "p")]


async def test_leaving_a_label_selector_is_a_deletion(server: Server) -> None:
    since = await server.configmap("a", app="x")
    async with server.watch(CONFIGMAPS, resourceVersion=since, labelSelector="app=x") as stream:
        await server.relabel("a", app="y")
        await server.relabel("a", app="z")
        await server.relabel("a", app="x")
        await server.relabel("a", more="labels")
        events = await stream.take(3)

    assert [said(event) for event in events] == [("DELETED", "a"), ("ADDED", "a"), ("MODIFIED", "a")]
    assert events[0]["object"]["metadata"]["labels"] == {"app": "x"}
    assert version(events[0]) > int(since)


async def test_leaving_a_field_selector_is_a_deletion(server: Server) -> None:
    made = await server.do(
        "POST", PODS, {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    )
    since = made["metadata"]["resourceVersion"]
    async with server.watch(PODS, resourceVersion=since, fieldSelector="status.phase=Pending") as stream:
        await server.do("PATCH", f"{PODS}/p/status", {"status": {"phase": "Running"}}, MERGE)
        event = await stream.next()

    assert said(event) == ("DELETED", "p")
    assert event["object"]["status"]["phase"] == "Pending"


async def test_a_field_selector_selects_an_object_by_name(server: Server) -> None:
    since = await server.configmap("a")
    async with server.watch(CONFIGMAPS, resourceVersion=since, fieldSelector="metadata.name=b") as stream:
        await server.configmap("c")
        await server.configmap("b")
        event = await stream.next()

    assert said(event) == ("ADDED", "b")


async def test_initial_events_end_with_a_bookmark(server: Server) -> None:
    await server.configmap("a", mine="")
    latest = await server.configmap("b", mine="")
    async with server.watch(CONFIGMAPS, labelSelector="mine", **STREAMED) as stream:
        first = await stream.take(2)
        bookmark = await stream.next()
        await server.configmap("c", mine="")
        after = await stream.next()

    assert {said(event) for event in first} == {("ADDED", "a"), ("ADDED", "b")}
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["metadata"]["annotations"] == {ENDS: "true"}
    assert bookmark["object"]["kind"] == "ConfigMap"
    assert version(bookmark) >= int(latest)
    assert said(after) == ("ADDED", "c")


async def test_initial_events_of_an_empty_collection_are_a_bookmark(server: Server) -> None:
    async with server.watch(TRAINS, **STREAMED) as stream:
        bookmark = await stream.next()

    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["apiVersion"] == "contract.example.com/v1"
    assert bookmark["object"]["kind"] == "Train"


async def test_initial_events_without_bookmarks_end_silently(server: Server) -> None:
    await server.configmap("a", mine="")
    query = {**STREAMED, "allowWatchBookmarks": "false"}
    async with server.watch(CONFIGMAPS, labelSelector="mine", **query) as stream:
        first = await stream.next()
        await server.configmap("b", mine="")
        second = await stream.next()

    assert [said(first), said(second)] == [("ADDED", "a"), ("ADDED", "b")]


async def test_initial_events_by_selector_as_partial_metadata(server: Server) -> None:
    await server.configmap("a", mine="")
    await server.configmap("b")
    query = {**STREAMED, "labelSelector": "mine"}
    async with server.watch(CONFIGMAPS, PARTIAL, **query) as stream:
        first, bookmark = await stream.take(2)

    assert said(first) == ("ADDED", "a")
    assert {event["object"]["kind"] for event in (first, bookmark)} == {"PartialObjectMetadata"}
    assert bookmark["object"]["metadata"]["annotations"] == {ENDS: "true"}


async def test_a_watch_resumes_at_the_bookmark_of_initial_events(server: Server) -> None:
    """A watch can resume at the bookmark's version, but not at those of the objects before it, which come in any order."""
    await server.configmap("a", mine="")
    query = {**STREAMED, "labelSelector": "mine"}
    async with server.watch(CONFIGMAPS, **query) as stream:
        _, bookmark = await stream.take(2)
    await server.do("DELETE", f"{CONFIGMAPS}/a")
    await server.configmap("b", mine="")
    bookmark_version = str(version(bookmark))
    async with server.watch(CONFIGMAPS, labelSelector="mine", resourceVersion=bookmark_version) as stream:
        events = await stream.take(2)

    assert [said(event) for event in events] == [("DELETED", "a"), ("ADDED", "b")]
    assert version(bookmark) < version(events[0]) < version(events[1])


async def test_initial_events_of_a_future_version_are_an_error(server: Server) -> None:
    """As after the server was restored from a backup."""
    await server.configmap("a")
    async with server.watch(CONFIGMAPS, resourceVersion=FUTURE, **STREAMED) as stream:
        (event,) = await stream.rest()

    assert event["type"] == "ERROR"
    status = event["object"]
    assert (status["code"], status["reason"]) == (504, "Timeout")
    assert status["message"].startswith(f"Timeout: Too large resource version: {FUTURE}, current: ")
    assert [cause["reason"] for cause in status["details"]["causes"]] == ["ResourceVersionTooLarge"]


async def test_a_watch_from_a_future_version_is_silent(server: Server) -> None:
    """The server sends nothing, not even a bookmark; a client cannot tell it from a dead connection."""
    query = {"resourceVersion": FUTURE, "allowWatchBookmarks": "true", "timeoutSeconds": "4"}
    async with server.watch(CONFIGMAPS, **query) as stream:
        await server.configmap("a")
        events = await stream.rest()

    assert events == []


async def test_a_watch_ends_after_its_timeout(server: Server) -> None:
    since = await server.configmap("a")
    async with server.watch(CONFIGMAPS, resourceVersion=since, timeoutSeconds="1") as stream:
        events = await stream.rest()

    assert events == []


async def test_a_bookmark_precedes_the_end_of_a_watch(server: Server) -> None:
    since = await server.configmap("a")
    query = {"resourceVersion": since, "timeoutSeconds": "4", "allowWatchBookmarks": "true"}
    async with server.watch(CONFIGMAPS, **query) as stream:
        events = await stream.rest()

    assert [event["type"] for event in events[-1:]] == ["BOOKMARK"]
    assert version(events[-1]) >= int(since)


async def test_a_compacted_version_is_an_error(server: Server) -> None:
    async with server.watch(TRAINS, resourceVersion="1") as stream:
        (event,) = await stream.rest()

    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
    assert event["object"]["message"].startswith("too old resource version: 1 (")


async def test_a_watch_of_partial_metadata(server: Server) -> None:
    since = await server.configmap("a")
    async with server.watch(CONFIGMAPS, PARTIAL, resourceVersion=since) as stream:
        await server.configmap("b", x="y")
        event = await stream.next()

    assert event["object"]["kind"] == "PartialObjectMetadata"
    assert event["object"]["metadata"]["labels"] == {"x": "y"}
    assert "data" not in event["object"]


async def test_a_watch_of_a_table_sends_rows(server: Server) -> None:
    since = await server.configmap("a")
    async with server.watch(CONFIGMAPS, TABLE, resourceVersion=since) as stream:
        await server.configmap("b")
        await server.configmap("c")
        first, second = await stream.take(2)

    assert [event["object"]["kind"] for event in (first, second)] == ["Table", "Table"]
    assert [column["name"] for column in first["object"]["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert not second["object"].get("columnDefinitions")
    assert second["object"]["rows"][0]["cells"][0] == "c"


async def test_a_watch_of_all_namespaces(server: Server) -> None:
    since = await server.configmap("a")
    async with server.watch("/api/v1/configmaps", resourceVersion=since, labelSelector="mine") as stream:
        await server.configmap("b", mine="")
        event = await stream.next()

    assert event["object"]["metadata"]["namespace"] == server.at("{ns}")


@pytest.mark.parametrize(
    ("query", "code"),
    [
        pytest.param({"resourceVersionMatch": "NotOlderThan"}, 422, id="a match without initial events"),
        pytest.param({"sendInitialEvents": "true"}, 422, id="initial events without a match"),
        pytest.param({"labelSelector": "a in"}, 400, id="a bad selector"),
        pytest.param({"fieldSelector": "a=b"}, 400, id="a bad field"),
        pytest.param({"timeoutSeconds": "x"}, 400, id="an invalid timeout"),
    ],
)
async def test_an_invalid_watch_is_rejected(
    embedded: RawClient, real: RawClient, namespace: str, query: dict[str, str], code: int
) -> None:
    step = Step("GET", CONFIGMAPS.replace("{ns}", namespace), query={"watch": "true", **query})
    ours, theirs = await embedded.send(step), await real.send(step)

    assert (ours.code, theirs.code) == (code, code)
    assert ours.body["reason"] == theirs.body["reason"]
    assert ours.body.get("details") == theirs.body.get("details")
