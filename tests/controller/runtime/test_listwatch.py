"""The requests of lists and watches, and the parsing of their responses."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
import orjson
import pytest
from aiohttp import web

from api.meta import PODS
from controller.kube import errors
from controller.kube.client import METADATA_ONLY, METADATA_ONLY_LIST, Client
from controller.runtime.listwatch import WHOLE, Bookmark, Event, Source, read_bookmark
from tests.support.scripted import (
    Answer,
    ReceivedRequest,
    ScriptedServer,
    answer_json,
    answer_lines,
    status_object,
)


def nothing() -> None: ...


@asynccontextmanager
async def asking(answer: Any) -> AsyncGenerator[tuple[Source, ScriptedServer]]:
    """A source of pods, and the server that says ``answer``: one value to a list, lines to a watch."""

    async def handle(request: web.Request, received: ReceivedRequest) -> web.StreamResponse:
        if isinstance(answer, list):
            return await answer_lines(request, answer)
        return answer_json(answer)

    scripted: Answer = handle
    async with ScriptedServer(scripted) as server, Client(server.connection) as client:
        yield (
            Source(
                client,
                PODS,
                namespace="team",
                selectors={"labelSelector": "app", "fieldSelector": ""},
                accept=lambda whole_list: METADATA_ONLY_LIST if whole_list else METADATA_ONLY,
            ),
            server,
        )


async def test_a_page_of_a_list() -> None:
    listed = {"metadata": {"resourceVersion": "10", "continue": "more"}, "items": [{"a": 1}, {"b": 2}]}
    async with asking(listed) as (source, server):
        page = await source.page("that")

    assert ([bytes(item) for item in page.items], page.resource_version) == ([b'{"a":1}', b'{"b":2}'], 10)
    assert page.rest == "more"
    (received,) = server.requests
    assert received.path == "/api/v1/namespaces/team/pods"
    assert received.query == {"labelSelector": "app", "limit": "500", "continue": "that"}
    assert received.headers["Accept"] == METADATA_ONLY_LIST


@pytest.mark.parametrize("version", ["", "x", "-1", "1.5"])
async def test_versions_are_numbers(version: str) -> None:
    async with asking({"metadata": {"resourceVersion": version}, "items": []}) as (source, _):
        with pytest.raises(msgspec.DecodeError, match="resourceVersion"):
            await source.page()


async def test_a_watch_yields_events() -> None:
    lines = [{"type": "ADDED", "object": {"a": 1}}, {"type": "DELETED", "object": {"b": 2}}]
    async with asking(lines) as (source, server), source.watch(WHOLE, nothing) as events:
        yielded = [await events.next() for _ in range(3)]

    assert [(event.type, bytes(event.object)) for event in yielded if event] == [
        ("ADDED", b'{"a":1}'),
        ("DELETED", b'{"b":2}'),
    ]
    assert (yielded[2], events.count) == (None, 2)
    (received,) = server.requests
    assert received.headers["Accept"] == METADATA_ONLY
    assert 300 <= int(received.query["timeoutSeconds"]) <= 600
    assert WHOLE.items() <= received.query.items()


async def test_each_line_is_reported_before_it_is_parsed() -> None:
    """A line that is no event is still a sign of life."""
    heard: list[int] = []
    said = [{"type": "ADDED", "object": {}}, b"garbage\n"]
    async with asking(said) as (source, _), source.watch({}, lambda: heard.append(1)) as events:
        await events.next()
        with pytest.raises(msgspec.DecodeError):
            await events.next()

    assert len(heard) == 2


async def test_an_error_event_is_raised() -> None:
    async with asking([{"type": "ERROR", "object": status_object(410, "Expired", "too old")}]) as (source, _):
        with pytest.raises(errors.Gone, match="too old"):
            async with source.watch({}, nothing) as events:
                await events.next()


async def test_a_stream_that_ends_without_data_is_an_error() -> None:
    async with asking([]) as (source, _):
        with pytest.raises(aiohttp.ClientPayloadError):
            async with source.watch({}, nothing) as events:
                assert await events.next() is None


@pytest.mark.parametrize(
    ("annotations", "ends_whole"),
    [
        pytest.param(None, False, id="one of those that come once a minute"),
        pytest.param({"k8s.io/initial-events-end": "true"}, True, id="after all that was there"),
        pytest.param({"k8s.io/initial-events-end": "false"}, False, id="anything else"),
    ],
)
def test_a_bookmark(annotations: dict[str, str] | None, ends_whole: bool) -> None:
    whole = {"metadata": {"resourceVersion": "12", "annotations": annotations}}

    assert read_bookmark(Event("BOOKMARK", msgspec.Raw(orjson.dumps(whole)))) == Bookmark(12, ends_whole)
