"""The informer: lists, watches and all their failures."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import orjson
import pytest
from aiohttp import web
from structlog.testing import capture_logs

from api.batch import BATCH_JOBS
from api.children import Pod, pod_from_json
from api.meta import CONFIG_MAPS, PODS, SERVICES
from controller.kube.client import METADATA_ONLY, METADATA_ONLY_LIST, Client
from controller.kube.connect import Connection
from controller.kube.transport import STREAM_SILENCE_SECONDS
from controller.runtime.backoff import Reconnect
from controller.runtime.informer import AWAY_SECONDS, RELISTED_ROWS, TRIES, Ending, Fill, Informer
from controller.runtime.listwatch import PER_SLICE
from rallypoint.local.apiserver import ApiServer
from tests.support.faults import Cut, Drop, Faults, Refuse, Reset, Rule, Say
from tests.support.scripted import (
    ReceivedRequest,
    ScriptedServer,
    answer_json,
    answer_lines,
    status_object,
)


def pod(name: str, version: int, **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "resourceVersion": str(version),
            **metadata,
        }
    }


def event(type_: str, name: str, version: int) -> dict[str, Any]:
    return {"type": type_, "object": pod(name, version)}


def bookmark(version: int) -> dict[str, Any]:
    return {"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"resourceVersion": str(version)}}}


def end_of_all(version: int) -> dict[str, Any]:
    """The bookmark at the end of the initial events of a watch."""
    metadata = {"resourceVersion": str(version), "annotations": {"k8s.io/initial-events-end": "true"}}
    return {"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": metadata}}


def expired(code: int = 410) -> dict[str, Any]:
    return {"type": "ERROR", "object": status_object(code, "Expired", "too old")}


Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Script:
    """What the server says to lists (``pages``, the last one for ever), to watches from a place, then no news, and to
    watches that are to begin with everything there is (``wholes``), then that it does not do that."""

    pages: list[Any] = field(default_factory=lambda: [{"metadata": {"resourceVersion": "10"}, "items": []}])
    watches: list[Answer] = field(default_factory=list)
    wholes: list[Answer] = field(default_factory=list)

    async def __call__(self, request: web.Request, received: ReceivedRequest) -> web.StreamResponse:
        if "sendInitialEvents" in received.query:
            return await (self.wholes.pop(0) if self.wholes else refusing(422, "Invalid"))(request)
        if "watch" in received.query:
            if self.watches:
                return await self.watches.pop(0)(request)
            return await silent(request)
        page = self.pages.pop(0) if len(self.pages) > 1 else self.pages[0]
        if callable(page):
            answer: Answer = page
            return await answer(request)
        return page if isinstance(page, web.Response) else answer_json(page)


def saying(*lines: Any, **end: Any) -> Answer:
    return lambda request: answer_lines(request, lines, **end)


class DelayedWatch:
    """A watch that sends its lines once ``is_due`` is set, and nothing after them."""

    def __init__(self) -> None:
        self.lines: list[Any] = []
        self.is_due = asyncio.Event()

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        await self.is_due.wait()
        return await answer_lines(request, self.lines, silence_seconds=1e9)


async def silent(request: web.Request) -> web.StreamResponse:
    """A living watch without news."""
    response = await answer_lines(request, [])
    while True:
        await minutes(1)
        await response.write(orjson.dumps(bookmark(int(request.query["resourceVersion"]))) + b"\n")


def refusing(code: int, reason: str) -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        return answer_json(status_object(code, reason), code)

    return answer


@dataclass
class Running:
    """A running informer and the changes that it has reported."""

    informer: Informer[Pod]
    server: ScriptedServer
    changes: list[tuple[str | None, str | None]]

    @property
    def names(self) -> set[str]:
        return {row.name for row in self.informer.store}

    @property
    def lists(self) -> list[ReceivedRequest]:
        return [request for request in self.server.requests if "watch" not in request.query]

    @property
    def watches(self) -> list[ReceivedRequest]:
        return [
            request
            for request in self.server.requests
            if "watch" in request.query and request not in self.wholes
        ]

    @property
    def wholes(self) -> list[ReceivedRequest]:
        return [request for request in self.server.requests if "sendInitialEvents" in request.query]


@asynccontextmanager
async def informing(script: Script, **options: Any) -> AsyncGenerator[Running]:
    changes: list[tuple[str | None, str | None]] = []

    def on_change(before: Pod | None, after: Pod | None) -> None:
        changes.append((before.name if before else None, after.name if after else None))

    async with ScriptedServer(script) as server, Client(server.connection) as client:
        informer = Informer[Pod](client, PODS, pod_from_json, on_change, **options)
        task = asyncio.create_task(informer.run())
        try:
            yield Running(informer, server, changes)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def minutes(count: float) -> None:
    await asyncio.sleep(60 * count)


async def test_synced_is_set_once_the_store_is_complete() -> None:
    script = Script([{"metadata": {"resourceVersion": "10"}, "items": [pod("a", 3), pod("b", 7)]}])

    async with informing(script) as running:
        assert not running.informer.synced.is_set()
        await running.informer.synced.wait()

        assert running.names == {"a", "b"}
        assert running.changes == [(None, "a"), (None, "b")]


async def test_the_items_of_an_empty_list_can_be_null() -> None:
    async with informing(Script([{"metadata": {"resourceVersion": "10"}, "items": None}])) as running:
        await running.informer.synced.wait()

        assert running.names == set()


async def test_long_lists_are_read_in_pages() -> None:
    script = Script(
        [
            {"metadata": {"resourceVersion": "10", "continue": "more"}, "items": [pod("a", 3)]},
            {"metadata": {"resourceVersion": "10", "continue": "yet more"}, "items": [pod("b", 4)]},
            {"metadata": {"resourceVersion": "10"}, "items": [pod("c", 5)]},
        ]
    )

    async with informing(script) as running:
        await running.informer.synced.wait()

        assert running.names == {"a", "b", "c"}
        assert [request.query.get("continue") for request in running.lists] == [None, "more", "yet more"]
        assert {request.query["limit"] for request in running.lists} == {"500"}


async def test_a_list_whose_pages_have_expired_starts_again() -> None:
    script = Script(
        [
            {"metadata": {"resourceVersion": "10", "continue": "more"}, "items": [pod("a", 3)]},
            answer_json(status_object(410, "Expired"), 410),
            {"metadata": {"resourceVersion": "12"}, "items": [pod("b", 11)]},
        ]
    )

    async with informing(script) as running:
        await running.informer.synced.wait()

        assert running.names == {"b"}


async def test_requests_carry_selectors_and_media_types() -> None:
    """List and watch send selectors and media types; a watch requests bookmarks and a timeout."""
    options = {
        "namespace": "team",
        "label_selector": "app",
        "field_selector": "spec.nodeName=n",
        "accept": lambda whole_list: METADATA_ONLY_LIST if whole_list else METADATA_ONLY,
    }
    async with informing(Script(), **options) as running:
        await minutes(1)

        (listed,), (watched,) = running.lists, running.watches
        assert listed.path == watched.path == "/api/v1/namespaces/team/pods"
        assert {request.query["labelSelector"] for request in (listed, watched)} == {"app"}
        assert {request.query["fieldSelector"] for request in (listed, watched)} == {"spec.nodeName=n"}
        assert (listed.headers["Accept"], watched.headers["Accept"]) == (METADATA_ONLY_LIST, METADATA_ONLY)
        assert (watched.query["allowWatchBookmarks"], watched.query["resourceVersion"]) == ("true", "10")
        assert 300 <= int(watched.query["timeoutSeconds"]) <= 600


async def test_a_watch_begins_with_the_existing_objects() -> None:
    """One request serves both. Objects arrive in any order, so their versions are no place to resume from."""
    begin = [event("ADDED", "b", 12), event("ADDED", "a", 3), end_of_all(10), event("ADDED", "c", 13)]
    script = Script(wholes=[saying(*begin, silence_seconds=60)])

    async with informing(script, label_selector="app") as running:
        await running.informer.synced.wait()
        assert running.names >= {"a", "b"}
        await minutes(1.1)

        assert running.names == {"a", "b", "c"}
        assert running.changes == [(None, "b"), (None, "a"), (None, "c")]
        (whole,) = running.wholes
        expected = {
            "labelSelector": "app",
            "watch": "1",
            "allowWatchBookmarks": "true",
            "sendInitialEvents": "true",
            "resourceVersionMatch": "NotOlderThan",
        }
        assert {key: text for key, text in whole.query.items() if key != "timeoutSeconds"} == expected
        assert [request.query["resourceVersion"] for request in running.watches] == ["13"]
        assert running.lists == []


async def test_the_store_never_shows_a_partial_list() -> None:
    """Objects may change while the initial events arrive; the bookmark at their end replaces the store at once."""
    begin = [
        event("ADDED", "a", 3),
        event("ADDED", "b", 4),
        event("MODIFIED", "b", 8),
        event("DELETED", "a", 9),
    ]
    released = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        response = await answer_lines(request, begin)
        await released.wait()
        await response.write(orjson.dumps(end_of_all(10)) + b"\n")
        await minutes(60)
        return response

    async with informing(Script(wholes=[answer])) as running:
        await asyncio.sleep(50)
        assert (running.names, running.changes) == (set(), [])
        assert not running.informer.synced.is_set()
        released.set()
        await asyncio.sleep(1)

        assert (running.names, running.changes) == ({"b"}, [(None, "b")])
        assert running.informer.synced.is_set()


@pytest.mark.parametrize(
    "whole",
    [
        pytest.param(refusing(400, "BadRequest"), id="400"),
        pytest.param(refusing(403, "Forbidden"), id="403"),
        pytest.param(refusing(404, "NotFound"), id="404"),
        pytest.param(refusing(422, "Invalid"), id="422, as servers that have it switched off"),
        pytest.param(refusing(500, "InternalError"), id="500"),
        pytest.param(saying(event("ADDED", "x", 3), bookmark(10)), id="a bookmark without the request"),
        pytest.param(saying(event("ADDED", "x", 3)), id="an end without that bookmark"),
        pytest.param(saying(event("ADDED", "x", 3), silence_seconds=1e9), id="no end and no bookmark"),
        pytest.param(saying(b"<html>"), id="garbage"),
    ],
)
async def test_a_server_without_streaming_lists_gets_a_single_streaming_request(whole: Answer) -> None:
    pages = [{"metadata": {"resourceVersion": str(n)}, "items": [pod(f"pod-{n}", n)]} for n in (10, 20)]
    script = Script(pages, [refusing(410, "Expired"), silent], [whole])

    async with informing(script) as running:
        await minutes(5)

        assert running.names == {"pod-20"}
        assert (len(running.wholes), len(running.lists)) == (1, 2)


@pytest.mark.parametrize(
    "whole",
    [
        pytest.param(refusing(429, "TooManyRequests"), id="429"),
        pytest.param(saying(event("ADDED", "x", 3), cut=True), id="cut"),
        pytest.param(refusing(401, "Unauthorized"), id="401"),
    ],
)
async def test_a_failed_streaming_list_is_retried(whole: Answer) -> None:
    script = Script(
        wholes=[whole, whole, saying(event("ADDED", "a", 3), end_of_all(10), silence_seconds=1e9)]
    )

    async with informing(script) as running:
        await minutes(1)

        assert running.names == {"a"}
        assert (len(running.wholes), len(running.lists)) == (3, 0)


@pytest.mark.parametrize("code", [502, 503, 504])
async def test_a_server_that_cannot_be_reached_once_is_asked_for_streaming_lists_again(code: int) -> None:
    pages = [{"metadata": {"resourceVersion": "10"}, "items": [pod("pod-10", 10)]}]
    whole = saying(event("ADDED", "a", 15), end_of_all(20), silence_seconds=1e9)
    script = Script(pages, [refusing(410, "Expired")], [refusing(code, "Unavailable"), whole])

    async with informing(script) as running:
        await minutes(1)

        assert running.names == {"a"}
        assert (len(running.wholes), len(running.lists)) == (2, 1)


async def test_retry_after_delays_the_next_request() -> None:
    async def later(request: web.Request) -> web.StreamResponse:
        return answer_json(status_object(429, "TooManyRequests"), 429, Retry_After="20")

    async with informing(Script(wholes=[later, saying(end_of_all(10), silence_seconds=1e9)])) as running:
        await minutes(1)

        first, second = (request.at for request in running.wholes)
        assert 20 <= second - first <= 21


async def test_after_errors_of_both_the_streaming_list_is_tried_again() -> None:
    """This happens when the CRD is installed later than the controller."""
    missing = answer_json(status_object(404, "NotFound"), 404)
    script = Script(
        [missing], wholes=[refusing(404, "NotFound"), saying(end_of_all(10), silence_seconds=1e9)]
    )

    async with informing(script) as running:
        await minutes(1)

        assert running.informer.synced.is_set()
        assert (len(running.wholes), len(running.lists)) == (2, 1)


async def test_changes_are_reported_in_order() -> None:
    script = Script(
        watches=[
            saying(
                event("ADDED", "a", 11),
                event("MODIFIED", "a", 12),
                event("MODIFIED", "a", 12),
                event("ADDED", "b", 13),
                event("DELETED", "a", 14),
                event("ADDED", "a", 11),
                silence_seconds=1e9,
            )
        ]
    )

    async with informing(script) as running:
        await minutes(1)

        assert running.changes == [(None, "a"), ("a", "a"), (None, "b"), ("a", None)]
        assert running.names == {"b"}


async def test_the_echo_of_an_own_create_is_not_decoded() -> None:
    decoded: list[str] = []

    async with informing(Script(watches=[watch := DelayedWatch()])) as running:
        decode = running.informer.decode

        def recording_decode(raw: msgspec.Raw) -> Pod:
            decoded.append((row := decode(raw)).name)
            return row

        running.informer.decode = recording_decode
        running.informer.store.put(decode(msgspec.Raw(orjson.dumps(pod("own", 11)))))
        watch.lines += [
            event("ADDED", "own", 11),
            event("ADDED", "other", 12),
            event("MODIFIED", "own", 13),
        ]
        watch.is_due.set()
        await minutes(1)

        assert decoded == ["other", "own"]
        assert running.changes == [(None, "other"), ("own", "own")]
        assert running.informer.store.last_synced_resource_version == 13


async def test_an_ended_watch_resumes_at_its_resource_version() -> None:
    script = Script(watches=[saying(event("ADDED", "a", 11), silence_seconds=60), silent])

    async with informing(script) as running:
        await minutes(1.01)

        assert [request.query["resourceVersion"] for request in running.watches] == ["10", "11"]
        assert len(running.lists) == 1


async def test_bookmarks_advance_the_resource_version() -> None:
    script = Script(watches=[saying(bookmark(400), silence_seconds=60), silent])

    async with informing(script) as running:
        await minutes(1.01)

        assert [request.query["resourceVersion"] for request in running.watches] == ["10", "400"]
        assert (running.changes, running.names) == ([], set())


@pytest.mark.parametrize(
    "gone",
    [
        pytest.param(refusing(410, "Expired"), id="as an answer"),
        pytest.param(refusing(410, "Gone"), id="as an answer of older servers"),
        pytest.param(saying(event("ADDED", "lost", 11), expired()), id="as an event"),
    ],
)
async def test_an_expired_resource_version_causes_a_new_list(gone: Any) -> None:
    """The informer lists once more at once and reports objects that were deleted meanwhile."""
    script = Script(
        [
            {"metadata": {"resourceVersion": "10"}, "items": [pod("a", 3), pod("b", 4)]},
            {"metadata": {"resourceVersion": "20"}, "items": [pod("b", 4), pod("c", 15)]},
        ],
        [gone, silent],
    )

    async with informing(script) as running:
        await asyncio.sleep(0.5)

        assert running.names == {"b", "c"}
        assert ("a", None) in running.changes
        assert [request.query["resourceVersion"] for request in running.watches] == ["10", "20"]
        assert len(running.lists) == 2


@pytest.mark.parametrize(
    ("watch", "most"),
    [
        pytest.param(saying(), 10, id="ends at once"),
        pytest.param(saying(cut=True), 10, id="is cut at once"),
        pytest.param(saying(bookmark(10)), 60, id="ends at once after a bookmark"),
        pytest.param(saying(expired()), 20, id="has always expired"),
        pytest.param(saying(b"<html>not this way</html>\n"), 10, id="is no watch at all"),
        pytest.param(saying(expired(500)), 10, id="fails inside"),
        pytest.param(refusing(500, "InternalError"), 10, id="is refused with 500"),
        pytest.param(refusing(429, "TooManyRequests"), 10, id="is refused with 429"),
        pytest.param(refusing(403, "Forbidden"), 10, id="is forbidden"),
    ],
)
async def test_failing_watches_cause_no_hot_loop(watch: Any, most: int) -> None:
    """A watch that always breaks in the same way is retried with growing pauses."""
    async with informing(Script(watches=[watch] * 10_000)) as running:
        await running.informer.synced.wait()
        running.server.requests.clear()
        await minutes(1)
        first = len(running.server.requests)
        running.server.requests.clear()
        await minutes(10)

        assert 3 <= first <= most
        assert len(running.server.requests) <= max(10 * most, 40)


@pytest.mark.parametrize(
    "watch",
    [
        pytest.param(saying(), id="ends at once"),
        pytest.param(refusing(429, "TooManyRequests"), id="429"),
        pytest.param(refusing(500, "InternalError"), id="500"),
        pytest.param(refusing(503, "ServiceUnavailable"), id="503"),
        pytest.param(saying(cut=True), id="cut"),
    ],
)
async def test_a_broken_watch_is_resumed_without_a_new_list(watch: Any) -> None:
    script = Script(watches=[watch, watch, saying(event("ADDED", "a", 11), silence_seconds=1e9)])

    async with informing(script) as running:
        await minutes(1)

        assert running.names == {"a"}
        assert len(running.lists) == 1
        assert {request.query["resourceVersion"] for request in running.watches} == {"10"}


@pytest.mark.parametrize(
    "failing",
    [
        pytest.param(refusing(500, "InternalError"), id="refused with 500"),
        pytest.param(refusing(504, "Timeout"), id="the server is behind that version"),
        pytest.param(saying(expired(500)), id="fails inside"),
        pytest.param(saying(b'{"type":7}\n'), id="garbage"),
    ],
)
async def test_a_resource_version_at_which_the_watch_always_fails_is_given_up(failing: Answer) -> None:
    script = Script(
        [{"metadata": {"resourceVersion": str(n)}, "items": [pod(f"pod-{n}", n)]} for n in (10, 20)],
        [failing] * TRIES + [silent],
    )

    async with informing(script) as running:
        await minutes(1)

        assert running.names == {"pod-20"}
        assert [request.query["resourceVersion"] for request in running.watches] == ["10"] * TRIES + ["20"]


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(saying(silence_seconds=1e9), id="by silence, as kube-apiserver does"),
        pytest.param(saying(bookmark(7), silence_seconds=1e9), id="by a bookmark"),
    ],
)
async def test_a_restored_server_causes_a_new_list(answer: Answer) -> None:
    """A server restored from a backup knows neither the resource version nor any later object."""
    script = Script(
        wholes=[
            saying(event("ADDED", "a", 3), event("ADDED", "b", 9), end_of_all(10)),
            saying(event("ADDED", "a", 3), event("ADDED", "c", 6), end_of_all(7), event("ADDED", "b", 8)),
        ],
        watches=[answer],
    )

    with capture_logs() as logs:
        async with informing(script) as running:
            await minutes(3)

            assert running.names == {"a", "b", "c"}
            assert ("b", None) in running.changes
            assert [request.query["resourceVersion"] for request in running.watches[:2]] == ["10", "8"]
    assert "resourceVersion of the API server went back" in [line["event"] for line in logs]


async def unanswered(request: web.Request) -> web.StreamResponse:
    """The connection is refused, or breaks before a word."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


@pytest.mark.parametrize(
    "away",
    [
        pytest.param(unanswered, id="no answer at all"),
        pytest.param(refusing(502, "BadGateway"), id="502 of a load balancer"),
        pytest.param(refusing(503, "ServiceUnavailable"), id="503"),
        pytest.param(refusing(504, "GatewayTimeout"), id="504"),
    ],
)
async def test_after_an_outage_of_the_server_everything_is_listed_again(away: Answer) -> None:
    """The server may have been restored and have passed the resource version since; no response would show that."""
    script = Script(
        [
            {"metadata": {"resourceVersion": "10"}, "items": [pod("lost", 9)]},
            {"metadata": {"resourceVersion": "20"}, "items": [pod("new", 11)]},
        ],
        [saying(cut=True), *[away] * 100],
    )

    async with informing(script) as running:
        await running.informer.synced.wait()
        await asyncio.sleep(4 * AWAY_SECONDS)
        script.watches.clear()
        await minutes(2)

        assert running.names == {"new"}
        assert ("lost", None) in running.changes


async def test_an_unreachable_server_is_a_line_for_each_step_of_the_back_off_of_all_watches() -> None:
    with capture_logs() as logs:
        async with Client(Connection("https://127.0.0.1:1")) as client:
            informers = [
                Informer(client, resource, pod_from_json, lambda before, after: None)
                for resource in (PODS, SERVICES, CONFIG_MAPS, BATCH_JOBS)
            ]
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(informer.run()) for informer in informers]
                await asyncio.sleep(60)
                for task in running:
                    task.cancel()

    lines = [line for line in logs if line["event"] == "watch failed"]
    tries = len(lines) + sum(line.get("repeats", 0) for line in lines)
    assert {line["error"] for line in lines} == {"cannot connect to 127.0.0.1:1: Connection refused"}
    assert tries > 3 * len(lines)


async def test_a_short_connection_failure_causes_no_new_list() -> None:
    """This happens when one of several API servers restarts and another answers."""
    script = Script(watches=[saying(cut=True), unanswered, saying(event("ADDED", "a", 11))])

    async with informing(script) as running:
        await minutes(1)

        assert running.names == {"a"}
        assert len(running.lists) == 1


async def test_the_first_pause_is_short() -> None:
    async with informing(Script(watches=[saying(), silent])) as running:
        await minutes(1)

        first, second = (request.at for request in running.watches)
        assert Reconnect.FIRST_SECONDS <= second - first <= 2 * Reconnect.FIRST_SECONDS


async def test_a_silent_watch_is_broken() -> None:
    """A half-open connection stays silent; a live one sends bookmarks. The server counts as unreachable."""
    script = Script(
        [
            {"metadata": {"resourceVersion": "10"}, "items": []},
            {"metadata": {"resourceVersion": "20"}, "items": [pod("b", 12)]},
        ],
        watches=[saying(event("ADDED", "a", 11), silence_seconds=1e9)],
    )

    async with informing(script) as running:
        await asyncio.sleep(STREAM_SILENCE_SECONDS - 1)
        assert len(running.watches) == 1
        await asyncio.sleep(1 + 2 * Reconnect.FIRST_SECONDS)

        assert running.names == {"b"}
        assert [request.query["resourceVersion"] for request in running.watches] == ["10", "20"]


@pytest.mark.parametrize(
    "garbage",
    [
        pytest.param(b"<html>\n", id="HTML"),
        pytest.param(b"\n", id="an empty line"),
        pytest.param(b'{"type":"ADDED"}\n', id="an event without an object"),
        pytest.param(b'{"type":7,"object":{}}\n', id="an event of no type"),
        pytest.param(b"\xff\xfe\x00\n", id="invalid UTF-8"),
        pytest.param(b'{"type":"ADDED","object":{"metadata"', id="half a line"),
        pytest.param(b'{"type":"BOOKMARK","object":{}}\n', id="a bookmark without a version"),
        pytest.param(
            b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"x"}}}\n',
            id="a bookmark whose version is no number",
        ),
        pytest.param(b'{"type":"ERROR","object":"no"}\n', id="an error that is no Status"),
        pytest.param(b"x" * (17 * 1024 * 1024), id="a line without an end"),
    ],
)
async def test_invalid_data_breaks_only_the_watch(garbage: bytes) -> None:
    script = Script(
        watches=[
            saying(event("ADDED", "a", 11), garbage),
            saying(event("ADDED", "b", 12), silence_seconds=1e9),
        ]
    )

    async with informing(script) as running:
        await minutes(1)

        assert running.names == {"a", "b"}
        assert len(running.lists) == 1


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param({"resourceVersion": "soon"}, id="a version that is no number"),
        pytest.param({"labels": ["a"]}, id="labels that are a list"),
        pytest.param({"name": 7}, id="a name that is a number"),
    ],
)
async def test_an_object_that_cannot_be_parsed_is_skipped(metadata: dict[str, Any]) -> None:
    """The object is logged and blocks no other object, neither in a list nor in a watch."""
    odd = pod("odd", 5)
    odd["metadata"].update(metadata)
    script = Script(
        [{"metadata": {"resourceVersion": "10"}, "items": [odd, pod("a", 3)]}],
        [saying({"type": "ADDED", "object": odd}, event("ADDED", "b", 12), silence_seconds=1e9)],
    )

    with capture_logs() as logs:
        async with informing(script) as running:
            await minutes(1)

            assert running.names == {"a", "b"}
    assert [line["event"] for line in logs if line["log_level"] == "error"] == [
        "object cannot be decoded"
    ] * 2


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(answer_json(status_object(403, "Forbidden"), 403), id="forbidden"),
        pytest.param(
            answer_json(status_object(404, "NotFound"), 404), id="the definition is not installed yet"
        ),
        pytest.param(answer_json(status_object(503, "ServiceUnavailable"), 503), id="unavailable"),
        pytest.param(answer_json(["no list"]), id="no list"),
        pytest.param(web.Response(body=b"<html>"), id="no JSON"),
        pytest.param(
            answer_json({"metadata": {"resourceVersion": "x"}, "items": []}), id="a version that is no number"
        ),
    ],
)
async def test_a_failed_list_is_retried(answer: web.Response) -> None:
    """Until it works, nothing is said to be synced."""
    script = Script([answer, {"metadata": {"resourceVersion": "10"}, "items": [pod("a", 3)]}])

    async with informing(script) as running:
        await asyncio.sleep(Reconnect.FIRST_SECONDS / 2)
        assert not running.informer.synced.is_set()
        await minutes(1)

        assert running.informer.synced.is_set()
        assert running.names == {"a"}


async def test_a_long_stream_yields_to_other_tasks() -> None:
    count = 20 * PER_SLICE
    lines = [event("ADDED", f"pod-{number}", 11 + number) for number in range(count)]
    iterations = 0

    async with informing(Script(watches=[saying(*lines, silence_seconds=1e9)])) as running:
        while len(running.informer.store) < count:
            iterations += 1
            await asyncio.sleep(0)

    assert iterations >= 20


async def test_existing_objects_are_reported_in_slices() -> None:
    """The store has all objects at once; reporting them takes longer and yields to other tasks."""
    count = 20 * PER_SLICE
    begin = [event("ADDED", f"pod-{number}", 11 + number) for number in range(count)]
    counts = set[int]()

    async with informing(Script(wholes=[saying(*begin, end_of_all(5000), silence_seconds=1e9)])) as running:
        while not running.informer.synced.is_set():
            if running.informer.store:
                assert len(running.informer.store) == count
                counts.add(len(running.changes))
            await asyncio.sleep(0)

    assert len(counts) >= 20


async def test_a_new_list_while_changes_are_reported_loses_no_change() -> None:
    """The store has them all already, so neither later events nor a relist would show a difference."""
    count = 20 * PER_SLICE
    begin = [event("ADDED", f"pod-{number}", 11 + number) for number in range(count)]
    whole = saying(*begin, end_of_all(5000), silence_seconds=1e9)

    iterations = 0

    async with informing(Script(wholes=[whole, whole])) as running:
        while not running.changes:
            iterations += 1
            await asyncio.sleep(0)
        assert len(running.changes) < count
        running.informer.relist("a list does not fit")
        await minutes(1)

        assert len(running.changes) == count
        assert len(running.wholes) == 2
        assert running.informer.synced.is_set()


async def test_a_page_is_stored_in_slices() -> None:
    count = 20 * PER_SLICE
    items = [pod(f"pod-{number}", 3) for number in range(count)]
    rows, iterations = 0, 0

    def decode(raw: Any) -> Pod:
        nonlocal rows
        rows += 1
        return pod_from_json(raw)

    page = {"metadata": {"resourceVersion": "10"}, "items": items}
    async with ScriptedServer(Script([page])) as server, Client(server.connection) as client:
        informer = Informer[Pod](client, PODS, decode, lambda before, after: None)
        task = asyncio.create_task(informer.run())
        while rows < count:
            iterations += rows > 0
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    assert iterations >= 19


async def test_lists_watches_and_failures_are_counted() -> None:
    script = Script(
        watches=[
            saying(event("ADDED", "a", 11), silence_seconds=60),
            saying(cut=True),
            refusing(410, "Expired"),
        ],
        wholes=[refusing(429, "TooManyRequests"), saying(end_of_all(10))],
    )
    async with informing(script) as running:
        await minutes(5)

        assert running.informer.fills == {Fill.WATCH: 1, Fill.LIST: 1}
        assert running.informer.endings == {
            Ending.REFUSED: 1,
            Ending.DONE: 2,
            Ending.BROKEN: 1,
            Ending.LOST: 1,
        }


async def test_a_missing_resource_is_logged() -> None:
    answer = answer_json(status_object(404, "NotFound", "404 page not found"), 404)
    with capture_logs() as logs:
        async with informing(Script([answer])):
            await asyncio.sleep(Reconnect.FIRST_SECONDS / 2)

    assert logs == [
        {
            "event": "resource not served",
            "log_level": "warning",
            "resource": "pods",
            "api_version": "v1",
            "error": "404 page not found",
            "hint": "is its CustomResourceDefinition installed?",
        }
    ]


async def test_a_missing_resource_is_logged_once_and_again_when_it_is_served() -> None:
    with capture_logs() as logs:
        script = Script([refusing(404, "NotFound")])
        async with informing(script) as running:
            await minutes(10)
            assert (running.informer.unserved.is_set(), running.informer.synced.is_set()) == (True, False)
            script.pages = [{"metadata": {"resourceVersion": "10"}, "items": []}]
            await minutes(1)

            assert (running.informer.unserved.is_set(), running.informer.synced.is_set()) == (False, True)
    events = [line["event"] for line in logs if line["event"].startswith("resource")]
    assert events == ["resource not served", "resource served"]


@pytest.mark.parametrize(
    ("code", "seconds"),
    [
        pytest.param(403, 0.5, id="forbidden, at once"),
        pytest.param(500, 10, id="failing, after some tries"),
        pytest.param(503, 150, id="unavailable, after a while"),
    ],
)
async def test_a_store_that_cannot_be_filled_counts_as_unserved(code: int, seconds: float) -> None:
    async with informing(Script([refusing(code, "Refused")])) as running:
        await asyncio.sleep(seconds)

        assert running.informer.unserved.is_set()


@pytest.mark.parametrize("code", [403, 500, 503])
async def test_a_filled_store_is_preserved_when_the_server_returns_errors(code: int) -> None:
    whole = saying(event("ADDED", "a", 5), end_of_all(10))
    script = Script([refusing(code, "Refused")], wholes=[whole])
    script.watches = [refusing(code, "Refused") for _ in range(100)]
    async with informing(script) as running:
        await minutes(10)

        assert (running.informer.unserved.is_set(), running.informer.synced.is_set()) == (False, True)
        assert len(running.informer.store) == 1


async def test_silence_is_measured_from_the_last_data() -> None:
    script = Script(watches=[saying(bookmark(11), silence_seconds=1e9)])
    async with informing(script) as running:
        assert running.informer.silent_seconds() == 0
        await minutes(1)

        assert running.informer.silent_seconds() == pytest.approx(60, abs=1)


async def test_silence_is_measured_from_the_start_without_any_data() -> None:
    async with informing(Script([answer_json(status_object(403, "Forbidden"), 403)])) as running:
        await minutes(5)

        assert running.informer.silent_seconds() == 300


async def test_a_rejected_watch_counts_as_silent_however_often_it_is_retried() -> None:
    script = Script(watches=[refusing(403, "Forbidden")] * 1000)
    async with informing(script) as running:
        await minutes(5)

        assert running.informer.silent_seconds() == pytest.approx(300, abs=1)


@asynccontextmanager
async def against_server(faults: Faults) -> AsyncGenerator[tuple[Client, Informer[Pod]]]:
    server = ApiServer(interceptor=faults, history=8)
    await server.start()
    async with Client(Connection(server.url, token=lambda: server.token)) as client:
        informer = Informer[Pod](client, PODS, pod_from_json, lambda before, after: None)
        task = asyncio.create_task(informer.run())
        await informer.synced.wait()
        try:
            yield client, informer
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await server.stop()


POD = b'{"metadata":{"name":"%s"},"spec":{"containers":[{"name":"c","image":"i"}]}}'


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param(Rule(Cut(), verb="watch", times=3), id="the watch is cut"),
        pytest.param(Rule(Reset(), verb="watch", times=3), id="no watch starts"),
        pytest.param(Rule(Refuse(503), verb="watch", times=3), id="watches are refused"),
        pytest.param(
            Rule(Refuse(410, "Expired"), verb="watch", times=2), id="its resource version is compacted"
        ),
        pytest.param(Rule(Say(b""), verb="watch", times=3), id="watches end at once"),
    ],
)
async def test_after_faults_the_store_equals_the_server(rule: Rule) -> None:
    async with against_server(Faults([rule, Rule(Cut(), verb="watch", containing=b"pod-7", times=1)])) as (
        client,
        informer,
    ):
        for number in range(20):
            await client.create(PODS, "default", POD % f"pod-{number}".encode())
            if number % 3 == 0:
                await client.delete(PODS, "default", f"pod-{number}")
            await asyncio.sleep(0.5)
        await minutes(5)

        assert {row.name for row in informer.store} == {f"pod-{n}" for n in range(20) if n % 3}


async def test_the_next_list_reports_a_lost_deletion() -> None:
    faults = Faults([Rule(Drop(), verb="watch", containing=b'"DELETED"', times=1)])
    async with against_server(faults) as (client, informer):
        await client.create(PODS, "default", POD % b"a")
        await client.delete(PODS, "default", "a")
        await minutes(1)
        assert informer.store.get("default", "a") is not None

        faults.rules.append(Rule(Refuse(410, "Expired"), verb="watch", times=1))
        await minutes(15)

        assert informer.store.get("default", "a") is None


async def test_a_restored_server_replaces_the_store() -> None:
    """Another server at the same address that knows less and counts from further back."""
    first, second = ApiServer(token="t"), ApiServer(token="t")
    await first.start()
    port = int(first.url.rsplit(":", 1)[1])
    async with Client(Connection(first.url, token=lambda: "t")) as client:
        informer = Informer[Pod](client, PODS, pod_from_json, lambda before, after: None)
        task = asyncio.create_task(informer.run())
        for number in range(20):
            await client.create(PODS, "default", POD % f"pod-{number}".encode())
        await minutes(1)
        await first.stop()
        await second.start(port=port)
        await client.create(PODS, "default", POD % b"pod-3")
        await minutes(5)
        await client.create(PODS, "default", POD % b"pod-21")
        await asyncio.sleep(1)

        rows = {row.name: row.resource_version for row in informer.store}
        live = orjson.loads(await client.list(PODS, "default"))["items"]
        assert rows == {item["metadata"]["name"]: int(item["metadata"]["resourceVersion"]) for item in live}
        assert rows.keys() == {"pod-3", "pod-21"}
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await second.stop()


LARGE = [pod(f"pod-{number}", number + 1) for number in range(RELISTED_ROWS + 1)]
"""More rows than are listed again instead of waiting for a bookmark."""
FULL = {"metadata": {"resourceVersion": "5000"}, "items": LARGE}


def current(version: int) -> dict[str, Any]:
    """The answer to the question for the present resourceVersion."""
    return {"metadata": {"resourceVersion": str(version)}, "items": []}


async def test_an_informer_has_caught_up_when_the_watch_has_reported_the_latest_change() -> None:
    async def late(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.5)
        return await answer_lines(request, [event("ADDED", "late", 12)], silence_seconds=80)

    async with informing(Script(watches=[late])) as running:
        await running.informer.synced.wait()

        assert await running.informer.catch_up(12)
        assert running.names == {"late"}
        assert (len(running.lists), len(running.watches)) == (1, 1)


async def test_a_small_store_whose_watch_lacks_the_latest_change_is_listed_again() -> None:
    async with informing(Script()) as running:
        await running.informer.synced.wait()

        assert not await running.informer.catch_up(12)
        assert not await running.informer.catch_up(None)


async def test_a_large_store_catches_up_by_a_bookmark() -> None:
    script = Script([FULL, current(6000)], [silent, saying(bookmark(6000))])
    async with informing(script) as running:
        await running.informer.synced.wait()
        await minutes(0.1)

        assert await running.informer.catch_up(None)
        question, again = running.lists[-1], running.watches[-1]
        assert question.path == "/api/v1/namespaces/default/pods"
        assert question.query == {"fieldSelector": "metadata.name=rallypoint"}
        assert (again.query["resourceVersion"], again.query["timeoutSeconds"]) == ("5000", "3")
        assert len(running.lists) == 2, "it is not listed again"
        assert running.informer.endings == {}


async def test_a_large_store_catches_up_by_a_later_event() -> None:
    script = Script([FULL, current(6000)], [silent, saying(event("ADDED", "late", 6001))])
    async with informing(script) as running:
        await running.informer.synced.wait()
        await minutes(0.1)

        assert await running.informer.catch_up(None)
        assert "late" in running.names


@pytest.mark.parametrize(
    "again",
    [
        pytest.param(saying(), id="without a bookmark"),
        pytest.param(saying(bookmark(5999)), id="with an older bookmark"),
        pytest.param(refusing(500, "InternalError"), id="with an error"),
    ],
)
async def test_a_large_store_is_listed_again_if_its_watch_does_not_get_that_far(again: Answer) -> None:
    async with informing(Script([FULL, current(6000)], [silent, again])) as running:
        await running.informer.synced.wait()
        await minutes(0.1)

        assert not await running.informer.catch_up(None)


@pytest.mark.parametrize(
    "answer",
    [refusing(403, "Forbidden"), refusing(500, "InternalError"), answer_json({}), answer_json(current(4999))],
    ids=["forbidden", "error", "no list", "a restored server"],
)
async def test_a_large_store_is_listed_again_if_the_server_does_not_say_where_it_is(answer: Any) -> None:
    async with informing(Script([FULL, answer], [silent])) as running:
        await running.informer.synced.wait()
        await minutes(0.1)

        assert not await running.informer.catch_up(None)
        assert len(running.watches) == 1, "the watch goes on until the caller ends it"


async def test_a_store_whose_server_does_not_answer_is_listed_again() -> None:
    async with informing(Script(watches=[refusing(503, "ServiceUnavailable")] * 99)) as running:
        await running.informer.synced.wait()
        await minutes(0.1)

        assert not await running.informer.catch_up(1)


async def test_the_handover_of_a_store_is_its_latest_change_and_not_its_position() -> None:
    script = Script(
        [{"metadata": {"resourceVersion": "10"}, "items": [pod("a", 3), pod("b", 7)]}],
        [saying(event("DELETED", "a", 12), bookmark(99), silence_seconds=80)],
    )
    async with informing(script) as running:
        await running.informer.synced.wait()
        assert running.informer.store.latest_change == 7
        await minutes(0.1)

        assert running.informer.store.latest_change == 12
        assert running.informer.store.last_synced_resource_version == 99
