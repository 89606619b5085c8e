"""The stretch from the API server to the store: lists, watches, and all the ways in which they break."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from api.children import Pod, pod_from_json
from api.meta import PODS
from controller.kube.client import METADATA_ONLY, METADATA_ONLY_LIST, Client
from controller.kube.connect import Connection
from controller.kube.transport import STREAM_SILENCE_SECONDS
from controller.local.apiserver import ApiServer
from controller.runtime.backoff import Reconnect
from controller.runtime.informer import LINES_PER_SLICE, Informer
from controller.testing.faults import Cut, Drop, Faults, Refuse, Reset, Rule, Say
from controller.testing.scripted import ScriptedServer, Seen, answer_json, answer_lines, refusal


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


def expired(code: int = 410) -> dict[str, Any]:
    return {"type": "ERROR", "object": refusal(code, "Expired", "too old")}


@dataclass
class Script:
    """What the server says: ``pages`` to lists, one after the other, then its last one for ever; ``watches`` likewise."""

    pages: list[Any] = field(default_factory=lambda: [{"metadata": {"resourceVersion": "10"}, "items": []}])
    watches: list[Callable[[web.Request], Awaitable[web.StreamResponse]]] = field(default_factory=list)

    async def __call__(self, request: web.Request, seen: Seen) -> web.StreamResponse:
        if "watch" in seen.query:
            if self.watches:
                return await self.watches.pop(0)(request)
            return await silence(request)
        page = self.pages.pop(0) if len(self.pages) > 1 else self.pages[0]
        return page if isinstance(page, web.Response) else answer_json(page)


def saying(*lines: Any, **end: Any) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    return lambda request: answer_lines(request, lines, **end)


async def silence(request: web.Request) -> web.StreamResponse:
    return await answer_lines(request, [], silence_seconds=1e9)


def refusing(code: int, reason: str) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(request: web.Request) -> web.StreamResponse:
        return answer_json(refusal(code, reason), code)

    return answer


@dataclass
class Running:
    """An informer at work, and what it has told."""

    informer: Informer[Pod]
    server: ScriptedServer
    changes: list[tuple[str | None, str | None]]

    @property
    def names(self) -> set[str]:
        return {row.name for row in self.informer.store}

    @property
    def lists(self) -> list[Seen]:
        return [one for one in self.server.seen if "watch" not in one.query]

    @property
    def watches(self) -> list[Seen]:
        return [one for one in self.server.seen if "watch" in one.query]


@asynccontextmanager
async def informing(script: Script, **options: Any) -> AsyncIterator[Running]:
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


async def test_everything_is_there_when_it_says_that_it_is_synced() -> None:
    script = Script([{"metadata": {"resourceVersion": "10"}, "items": [pod("a", 3), pod("b", 7)]}])

    async with informing(script) as running:
        assert not running.informer.synced.is_set()
        await running.informer.synced.wait()

        assert running.names == {"a", "b"}
        assert running.changes == [(None, "a"), (None, "b")]


async def test_an_empty_list_may_be_null() -> None:
    async with informing(Script([{"metadata": {"resourceVersion": "10"}, "items": None}])) as running:
        await running.informer.synced.wait()

        assert running.names == set()


async def test_long_lists_come_in_pages() -> None:
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
        assert [one.query.get("continue") for one in running.lists] == [None, "more", "yet more"]
        assert {one.query["limit"] for one in running.lists} == {"500"}


async def test_a_list_whose_pages_have_expired_starts_again() -> None:
    script = Script(
        [
            {"metadata": {"resourceVersion": "10", "continue": "more"}, "items": [pod("a", 3)]},
            answer_json(refusal(410, "Expired"), 410),
            {"metadata": {"resourceVersion": "12"}, "items": [pod("b", 11)]},
        ]
    )

    async with informing(script) as running:
        await running.informer.synced.wait()

        assert running.names == {"b"}


async def test_what_is_asked_for() -> None:
    """Selectors and forms go with both questions; a watch asks for bookmarks and for its own end."""
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
        assert {one.query["labelSelector"] for one in (listed, watched)} == {"app"}
        assert {one.query["fieldSelector"] for one in (listed, watched)} == {"spec.nodeName=n"}
        assert (listed.headers["Accept"], watched.headers["Accept"]) == (METADATA_ONLY_LIST, METADATA_ONLY)
        assert (watched.query["allowWatchBookmarks"], watched.query["resourceVersion"]) == ("true", "10")
        assert 300 <= int(watched.query["timeoutSeconds"]) <= 600


async def test_changes_are_told_as_they_come() -> None:
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


async def test_a_watch_that_has_ended_goes_on_where_it_was() -> None:
    script = Script(watches=[saying(event("ADDED", "a", 11), silence_seconds=60), silence])

    async with informing(script) as running:
        await minutes(1.01)

        assert [one.query["resourceVersion"] for one in running.watches] == ["10", "11"]
        assert len(running.lists) == 1


async def test_bookmarks_move_the_place_on() -> None:
    script = Script(watches=[saying(bookmark(400), silence_seconds=60), silence])

    async with informing(script) as running:
        await minutes(1.01)

        assert [one.query["resourceVersion"] for one in running.watches] == ["10", "400"]
        assert (running.changes, running.names) == ([], set())


@pytest.mark.parametrize(
    "gone",
    [
        pytest.param(refusing(410, "Expired"), id="as an answer"),
        pytest.param(refusing(410, "Gone"), id="as an answer of older servers"),
        pytest.param(saying(event("ADDED", "lost", 11), expired()), id="as an event"),
    ],
)
async def test_a_place_that_the_server_has_forgotten(gone: Any) -> None:
    """One new list at once; what went meanwhile is told."""
    script = Script(
        [
            {"metadata": {"resourceVersion": "10"}, "items": [pod("a", 3), pod("b", 4)]},
            {"metadata": {"resourceVersion": "20"}, "items": [pod("b", 4), pod("c", 15)]},
        ],
        [gone, silence],
    )

    async with informing(script) as running:
        await asyncio.sleep(0.5)

        assert running.names == {"b", "c"}
        assert ("a", None) in running.changes
        assert [one.query["resourceVersion"] for one in running.watches] == ["10", "20"]
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
async def test_no_hot_loop(watch: Any, most: int) -> None:
    """A watch that breaks the same way for ever is asked for ever more rarely."""
    async with informing(Script(watches=[watch] * 10_000)) as running:
        await running.informer.synced.wait()
        running.server.seen.clear()
        await minutes(1)
        first = len(running.server.seen)
        running.server.seen.clear()
        await minutes(10)

        assert 3 <= first <= most
        assert len(running.server.seen) <= max(10 * most, 40)


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
        assert {one.query["resourceVersion"] for one in running.watches} == {"10"}


async def test_pauses_start_small() -> None:
    async with informing(Script(watches=[saying(), silence])) as running:
        await minutes(1)

        first, second = (one.at for one in running.watches)
        assert Reconnect.FIRST_SECONDS <= second - first <= 2 * Reconnect.FIRST_SECONDS


async def test_silence_is_a_broken_watch() -> None:
    """A half-open connection says nothing for ever; a living one sends bookmarks."""
    script = Script(
        watches=[
            saying(event("ADDED", "a", 11), silence_seconds=1e9),
            saying(event("ADDED", "b", 12), silence_seconds=1e9),
        ]
    )

    async with informing(script) as running:
        await asyncio.sleep(STREAM_SILENCE_SECONDS - 1)
        assert len(running.watches) == 1
        await asyncio.sleep(1 + 2 * Reconnect.FIRST_SECONDS)

        assert running.names == {"a", "b"}
        assert [one.query["resourceVersion"] for one in running.watches] == ["10", "11"]


@pytest.mark.parametrize(
    "garbage",
    [
        pytest.param(b"<html>\n", id="HTML"),
        pytest.param(b"\n", id="an empty line"),
        pytest.param(b'{"type":"ADDED"}\n', id="an event without an object"),
        pytest.param(b'{"type":7,"object":{}}\n', id="an event of no type"),
        pytest.param(b"\xff\xfe\x00\n", id="bytes that are no text"),
        pytest.param(b'{"type":"ADDED","object":{"metadata"', id="half a line"),
        pytest.param(b'{"type":"BOOKMARK","object":{}}\n', id="a bookmark without a place"),
        pytest.param(
            b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"x"}}}\n',
            id="a bookmark whose place is no number",
        ),
        pytest.param(b'{"type":"ERROR","object":"no"}\n', id="an error that is no Status"),
        pytest.param(b"x" * (17 * 1024 * 1024), id="a line without an end"),
    ],
)
async def test_garbage_breaks_the_watch_and_nothing_else(garbage: bytes) -> None:
    script = Script(
        watches=[
            saying(event("ADDED", "a", 11), garbage),
            saying(event("ADDED", "b", 12), silence_seconds=1e9),
        ]
    )

    async with informing(script) as running:
        await minutes(2)

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
async def test_an_object_that_is_not_understood_is_passed_over(metadata: dict[str, Any]) -> None:
    """It is logged, and stands in nobody's way: neither in a list nor in a watch."""
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
    assert [one["event"] for one in logs] == ["object not understood"] * 2


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(answer_json(refusal(403, "Forbidden"), 403), id="forbidden"),
        pytest.param(answer_json(refusal(404, "NotFound"), 404), id="the definition is not installed yet"),
        pytest.param(answer_json(refusal(503, "ServiceUnavailable"), 503), id="unavailable"),
        pytest.param(answer_json(["no list"]), id="no list"),
        pytest.param(web.Response(body=b"<html>"), id="no JSON"),
        pytest.param(
            answer_json({"metadata": {"resourceVersion": "x"}, "items": []}), id="a version that is no number"
        ),
    ],
)
async def test_a_list_that_fails_is_tried_again(answer: web.Response) -> None:
    """Until it works, nothing is said to be synced."""
    script = Script([answer, {"metadata": {"resourceVersion": "10"}, "items": [pod("a", 3)]}])

    async with informing(script) as running:
        await asyncio.sleep(Reconnect.FIRST_SECONDS / 2)
        assert not running.informer.synced.is_set()
        await minutes(1)

        assert running.informer.synced.is_set()
        assert running.names == {"a"}


async def test_a_long_stream_leaves_others_their_turn() -> None:
    count = 20 * LINES_PER_SLICE
    lines = [event("ADDED", f"pod-{number}", 11 + number) for number in range(count)]
    turns = 0

    async with informing(Script(watches=[saying(*lines, silence_seconds=1e9)])) as running:
        while len(running.informer.store) < count:
            turns += 1
            await asyncio.sleep(0)

    assert turns >= 20


async def test_what_is_not_served_is_named() -> None:
    answer = answer_json(refusal(404, "NotFound", "404 page not found"), 404)
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


async def test_silence_is_counted_from_the_last_word() -> None:
    script = Script(watches=[saying(bookmark(11), silence_seconds=1e9)])
    async with informing(script) as running:
        assert running.informer.silent_seconds() == 0
        await minutes(1)

        assert running.informer.silent_seconds() == pytest.approx(60, abs=1)


async def test_silence_is_counted_from_the_start_when_there_was_no_word_yet() -> None:
    async with informing(Script([answer_json(refusal(403, "Forbidden"), 403)])) as running:
        await minutes(5)

        assert running.informer.silent_seconds() == 300


async def test_a_refused_watch_is_silent_however_often_it_is_asked_for() -> None:
    script = Script(watches=[refusing(403, "Forbidden")] * 1000)
    async with informing(script) as running:
        await minutes(5)

        assert running.informer.silent_seconds() == pytest.approx(300, abs=1)


@asynccontextmanager
async def against_server(faults: Faults) -> AsyncIterator[tuple[Client, Informer[Pod]]]:
    server = ApiServer(front=faults, history=8)
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
        pytest.param(Rule(Reset(), verb="watch", times=3), id="no watch comes about"),
        pytest.param(Rule(Refuse(503), verb="watch", times=3), id="watches are refused"),
        pytest.param(Rule(Refuse(410, "Expired"), verb="watch", times=2), id="its place is forgotten"),
        pytest.param(Rule(Say(b""), verb="watch", times=3), id="watches end at once"),
    ],
)
async def test_after_the_faults_the_store_is_like_the_server(rule: Rule) -> None:
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


async def test_a_lost_removal_is_noticed_with_the_next_list() -> None:
    faults = Faults([Rule(Drop(), verb="watch", containing=b'"DELETED"', times=1)])
    async with against_server(faults) as (client, informer):
        await client.create(PODS, "default", POD % b"a")
        await client.delete(PODS, "default", "a")
        await minutes(1)
        assert informer.store.get("default", "a") is not None

        faults.rules.append(Rule(Refuse(410, "Expired"), verb="watch", times=1))
        await minutes(15)

        assert informer.store.get("default", "a") is None
