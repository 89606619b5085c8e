"""One API call: its request, its turn in the queue, its retries and its errors."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest
from aiohttp import web

from api.meta import EVENTS, HORIZONTAL_POD_AUTOSCALERS, PODS
from controller.kube import errors
from controller.kube.client import (
    JSON_PATCH,
    LONGEST_PAUSE_SECONDS,
    METADATA_ONLY,
    TRIES,
    UNKNOWN_WRITE_SECONDS,
    WARMING_SECONDS,
    Client,
)
from controller.kube.concurrency import PriorityLevel
from controller.kube.token_bucket import TokenBucket
from controller.kube.transport import CALL_TIMEOUT_SECONDS
from tests.support.scripted import (
    ReceivedRequest,
    answer_json,
    answer_lines,
    calling,
    saying,
    status_object,
)


def now() -> float:
    return asyncio.get_running_loop().time()


async def ended(task: "asyncio.Task[Any]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(
    ("call", "method", "path", "body"),
    [
        pytest.param(lambda c: c.get(PODS, "ns", "a"), "GET", "/api/v1/namespaces/ns/pods/a", None, id="get"),
        pytest.param(
            lambda c: c.list(PODS, label_selector="a=b"),
            "GET",
            "/api/v1/pods?labelSelector=a=b",
            None,
            id="list",
        ),
        pytest.param(
            lambda c: c.create(HORIZONTAL_POD_AUTOSCALERS, "ns", b'{"a":1}'),
            "POST",
            "/apis/autoscaling/v2/namespaces/ns/horizontalpodautoscalers",
            {"a": 1},
            id="create",
        ),
        pytest.param(
            lambda c: c.create(PODS, "ns", b"{}", name="a", subresource="binding"),
            "POST",
            "/api/v1/namespaces/ns/pods/a/binding",
            {},
            id="create of a subresource",
        ),
        pytest.param(
            lambda c: c.update(PODS, "ns", "a", b"{}"), "PUT", "/api/v1/namespaces/ns/pods/a", {}, id="update"
        ),
        pytest.param(
            lambda c: c.patch(PODS, "ns", "a", b"[]", content_type=JSON_PATCH, subresource="status"),
            "PATCH",
            "/api/v1/namespaces/ns/pods/a/status",
            [],
            id="patch",
        ),
        pytest.param(
            lambda c: c.delete(PODS, "ns", "a"),
            "DELETE",
            "/api/v1/namespaces/ns/pods/a",
            {"kind": "DeleteOptions", "apiVersion": "v1"},
            id="delete",
        ),
        pytest.param(
            lambda c: c.delete(PODS, "ns", "a", uid="u", grace_period_seconds=0, propagation="Foreground"),
            "DELETE",
            "/api/v1/namespaces/ns/pods/a",
            {
                "kind": "DeleteOptions",
                "apiVersion": "v1",
                "preconditions": {"uid": "u"},
                "gracePeriodSeconds": 0,
                "propagationPolicy": "Foreground",
            },
            id="delete of one very object",
        ),
    ],
)
async def test_each_call_sends_its_request(
    call: Callable[[Client], Awaitable[bytes]], method: str, path: str, body: Any
) -> None:
    async with calling() as (client, server):
        assert await call(client) == b"{}"

    (received,) = server.requests
    query = "&".join(f"{key}={value}" for key, value in received.query.items())
    assert (received.method, f"{received.path}?{query}".rstrip("?")) == (method, path)
    assert (orjson.loads(received.body) if received.body else None) == body


async def test_headers() -> None:
    """The client sends the requested media types, no compression, no cookies and the current token."""
    tokens = iter(["one", "two", ""])
    async with calling(connection={"token": lambda: next(tokens)}, user_agent="test/1") as (client, server):
        await client.get(PODS, "ns", "a", accept=METADATA_ONLY)
        await client.patch(PODS, "ns", "a", b"[]", content_type=JSON_PATCH)
        await client.get(PODS, "ns", "a")

    first, second, third = (request.headers for request in server.requests)
    assert (first["Accept"], first["User-Agent"], first["Accept-Encoding"]) == (
        METADATA_ONLY,
        "test/1",
        "identity",
    )
    assert second["Content-Type"] == JSON_PATCH
    assert [headers.get("Authorization") for headers in (first, second, third)] == [
        "Bearer one",
        "Bearer two",
        None,
    ]


@pytest.mark.parametrize("code", [404, 409, 422, 500, 503])
async def test_an_error_without_retry_after_is_raised_after_the_first_try(code: int) -> None:
    async with calling(saying(answer_json(status_object(code, "Reason", "because"), code))) as (
        client,
        server,
    ):
        with pytest.raises(errors.ApiError, match="because") as caught:
            await client.get(PODS, "ns", "a")

    assert (caught.value.code, len(server.requests)) == (code, 1)


@pytest.mark.parametrize(
    ("code", "seconds", "waited"),
    [
        pytest.param(429, "3", 3, id="too many requests"),
        pytest.param(503, "2", 2, id="not ready"),
        pytest.param(429, "9999", LONGEST_PAUSE_SECONDS, id="longer than makes sense"),
    ],
)
async def test_a_call_is_retried_after_retry_after(code: int, seconds: str, waited: float) -> None:
    answer = answer_json(status_object(code, "Busy"), code, Retry_After=seconds)
    async with calling(saying(answer)) as (client, server):
        started = now()
        assert await client.create(PODS, "ns", b"{}") == b"{}"

        assert now() - started == pytest.approx(waited, abs=0.01)
    assert len(server.requests) == 2


async def test_retries_are_limited() -> None:
    async def busy(request: web.Request, received: ReceivedRequest) -> web.StreamResponse:
        return answer_json(status_object(429, "TooManyRequests"), 429, Retry_After="1")

    async with calling(busy) as (client, server):
        with pytest.raises(errors.TooManyRequests):
            await client.create(PODS, "ns", b"{}")

    assert len(server.requests) == TRIES


async def test_a_call_that_waits_to_retry_does_not_count_as_in_flight() -> None:
    async def handle(request: web.Request, received: ReceivedRequest) -> web.StreamResponse:
        if received.path.endswith("/busy"):
            return answer_json(status_object(429, "TooManyRequests"), 429, Retry_After="5")
        return answer_json({})

    async with calling(handle, in_flight=1) as (client, _):
        waiting = asyncio.create_task(client.get(PODS, "ns", "busy"))
        await asyncio.sleep(1)
        started = now()
        await client.get(PODS, "ns", "free")

        assert now() == started
        await ended(waiting)


async def slow(request: web.Request, received: ReceivedRequest) -> web.StreamResponse:
    await asyncio.sleep(2)
    return answer_json({})


async def test_calls_in_flight_are_limited() -> None:
    async with calling(slow, in_flight=4) as (client, server):
        await asyncio.gather(*(client.get(PODS, "ns", str(number)) for number in range(12)))

    started = server.requests[0].at
    assert [round(request.at - started) for request in server.requests] == [0] * 4 + [2] * 4 + [4] * 4


async def test_watches_do_not_count_as_calls_in_flight() -> None:
    async def handle(request: web.Request, received: ReceivedRequest) -> web.StreamResponse:
        if "watch" in received.query:
            return await answer_lines(request, [b"{}\n"], silence_seconds=50)
        return answer_json({})

    async def watch(client: Client) -> bytes:
        async with client.stream("/api/v1/pods", {"watch": "1"}) as stream:
            return await stream.readline()

    async with calling(handle, in_flight=1) as (client, _):
        watches = [asyncio.create_task(watch(client)) for _ in range(20)]
        assert await client.get(PODS, "ns", "a") == b"{}"
        assert await asyncio.gather(*watches) == [b"{}\n"] * 20


async def test_waiting_calls_are_sent_by_priority_and_namespace() -> None:
    """Reads go first, then statuses, children and events; namespaces take turns."""

    async def each_a_second(request: web.Request, received: ReceivedRequest) -> web.StreamResponse:
        await asyncio.sleep(1)
        return answer_json({})

    async with calling(each_a_second, in_flight=1) as (client, server):
        await asyncio.gather(
            client.create(PODS, "big", b"{}", name="first"),
            client.create(EVENTS, "big", b"{}", name="event", level=PriorityLevel.EVENT),
            client.create(PODS, "big", b"{}", name="pod-1"),
            client.create(PODS, "big", b"{}", name="pod-2"),
            client.create(PODS, "small", b"{}", name="pod-3"),
            client.patch(PODS, "big", "status", b"{}", level=PriorityLevel.STATUS),
            client.get(PODS, "big", "read"),
        )

    names = [request.path.rsplit("/", 1)[1] for request in server.requests]
    assert names == ["first", "read", "status", "pod-1", "pod-3", "pod-2", "event"]


async def test_the_rate_limiter_sends_the_highest_priority_first() -> None:
    async with calling(rate_limiter=TokenBucket(2, burst=2)) as (client, server):
        await asyncio.gather(
            *(client.create(PODS, "ns", b"{}", name=str(number)) for number in range(4)),
            client.patch(PODS, "ns", "status", b"{}", level=PriorityLevel.STATUS),
        )

    started = server.requests[0].at
    assert [round(request.at - started, 2) for request in server.requests] == [0, 0, 0.5, 1, 1.5]
    assert server.requests[2].path.endswith("/status")


async def test_a_client_does_not_wait_for_the_limit_of_another_client() -> None:
    async with (
        calling(rate_limiter=TokenBucket(0.01, burst=1)) as (limited, server),
        Client(server.connection) as other,
    ):
        await limited.create(PODS, "ns", b"{}")
        waiting = asyncio.create_task(limited.create(PODS, "ns", b"{}"))
        await asyncio.sleep(1)
        started = now()
        await other.update(PODS, "ns", "lease", b"{}")

        assert now() == started
        assert not waiting.done()
        await ended(waiting)


class Permit:
    """A permit to write until some loop time."""

    def __init__(self, until: float = float("inf")) -> None:
        self.until = until

    def __call__(self) -> float:
        return self.until - now()


async def test_a_write_without_a_permit_is_not_sent() -> None:
    async with calling(permit=lambda: 0.0) as (client, server):
        for write in (
            client.create(PODS, "ns", b"{}"),
            client.update(PODS, "ns", "a", b"{}"),
            client.patch(PODS, "ns", "a", b"{}"),
            client.delete(PODS, "ns", "a"),
        ):
            with pytest.raises(errors.NotLeading):
                await write
        assert await client.get(PODS, "ns", "a") == b"{}"

    assert [request.method for request in server.requests] == ["GET"]


async def test_the_permit_is_checked_again_when_the_bytes_are_sent() -> None:
    """The process may have been paused in between."""
    answers = iter([5.0, 0.0])
    async with calling(permit=lambda: next(answers)) as (client, server):
        with pytest.raises(errors.NotLeading, match="not sent"):
            await client.create(PODS, "default", b"{}")

        assert server.requests == []
        assert list(answers) == []


async def test_the_permit_is_checked_after_every_wait() -> None:
    """Neither a write whose turn comes too late nor a delayed retry is sent."""
    later = answer_json(status_object(429, "Busy"), 429, Retry_After="5")
    async with calling(saying(later), permit=Permit(now() + 3), in_flight=1) as (client, server):
        with pytest.raises(errors.NotLeading):
            await client.create(PODS, "ns", b"{}")
        with pytest.raises(errors.NotLeading):
            await client.create(PODS, "ns", b"{}")

    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("permitted", "taken"),
    [
        pytest.param(0.4, 0.4, id="a short one"),
        pytest.param(7.3, 7.3, id="one of more than five seconds, not rounded up"),
        pytest.param(1e6, CALL_TIMEOUT_SECONDS, id="one without end"),
    ],
)
async def test_a_write_times_out_when_its_permit_expires(permitted: float, taken: float) -> None:
    async def never(request: web.Request, received: ReceivedRequest) -> web.StreamResponse:
        await asyncio.sleep(1e6)
        return answer_json({})

    async with calling(never, permit=Permit(now() + permitted)) as (client, _):
        started = now()
        with pytest.raises(TimeoutError):
            await client.create(PODS, "ns", b"{}")

        assert now() - started == pytest.approx(taken, abs=0.01)


async def test_warm_connections_cover_the_limit_of_calls_in_flight() -> None:
    peers: list[Any] = []

    async def handle(request: web.Request, received: ReceivedRequest) -> web.StreamResponse:
        peers.append(request.get_extra_info("peername"))
        await asyncio.sleep(0.5)
        return answer_json({})

    async with calling(handle, in_flight=8) as (client, server):
        warming = asyncio.create_task(client.keep_warm())
        await asyncio.sleep(1)
        assert ([request.path for request in server.requests], len(set(peers))) == (["/version"] * 8, 8)

        await asyncio.gather(*(client.create(PODS, "ns", b"{}") for _ in range(8)))
        assert len(set(peers)) == 8, "the first calls need no new ones"

        await asyncio.sleep(WARMING_SECONDS)
        assert len(server.requests) == 24
        await ended(warming)


@pytest.mark.parametrize("code", [403, 500, 0], ids=["403", "not able", "not there"])
async def test_connections_stay_warm_whatever_the_response_is(code: int) -> None:
    async def handle(request: web.Request, received: ReceivedRequest) -> web.StreamResponse:
        assert request.transport is not None
        if not code:
            request.transport.abort()
        return answer_json(status_object(code, "No"), code or 200)

    async with calling(handle, in_flight=2) as (client, server):
        warming = asyncio.create_task(client.keep_warm())
        await asyncio.sleep(1)
        once = len(server.requests)
        await asyncio.sleep(WARMING_SECONDS)

        assert len(server.requests) == 2 * once
        assert not warming.done()
        await ended(warming)


async def test_keeping_connections_warm_uses_no_tokens_of_the_rate_limiter() -> None:
    async with calling(rate_limiter=TokenBucket(1, burst=1)) as (client, server):
        await client.keep_warm()

    assert server.requests == []


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda c: c.create(PODS, "ns", b"{}"), id="create"),
        pytest.param(lambda c: c.update(PODS, "ns", "a", b"{}"), id="update"),
        pytest.param(lambda c: c.patch(PODS, "ns", "a", b"{}"), id="patch"),
        pytest.param(lambda c: c.delete(PODS, "ns", "a"), id="delete"),
        pytest.param(lambda c: c.request("DELETE", "/api/v1/pods"), id="delete a collection"),
        pytest.param(lambda c: c.request("PUT", "/api/v1/pods", body=b"{}"), id="any other method"),
    ],
)
async def test_a_read_only_client_sends_no_write(call: Callable[[Client], Awaitable[bytes]]) -> None:
    async with calling(read_only=True) as (client, server):
        with pytest.raises(errors.ReadOnly, match="was not sent"):
            await call(client)
        assert server.requests == []


async def test_a_read_only_client_opens_no_connection_to_a_pod() -> None:
    """The command of a WebSocket is a GET, and may do anything."""
    async with calling(read_only=True) as (client, server):
        with pytest.raises(errors.ReadOnly):
            client.socket("/api/v1/namespaces/ns/pods/a/exec?command=rm", [])
        assert server.requests == []


async def test_a_read_only_client_reads() -> None:
    async with calling(saying(answer_json({"items": []})), read_only=True) as (client, server):
        assert orjson.loads(await client.list(PODS, "ns")) == {"items": []}
        assert [request.method for request in server.requests] == ["GET"]


@pytest.mark.parametrize(
    ("answer", "is_known"),
    [
        pytest.param(answer_json({}), True, id="accepted"),
        pytest.param(answer_json(status_object(409, "Conflict"), 409), True, id="refused"),
        pytest.param(answer_json(status_object(504, "Timeout"), 504), False, id="timeout of the server"),
        pytest.param(answer_json(status_object(500, "InternalError"), 500), False, id="error of the server"),
    ],
)
async def test_a_client_knows_its_writes_if_the_answers_say_what_became_of_them(
    answer: web.Response, is_known: bool
) -> None:
    async with calling(saying(answer)) as (client, _):
        await asyncio.gather(client.create(PODS, "ns", b"{}"), return_exceptions=True)

        assert client.knows_its_writes() is is_known


async def test_a_client_knows_a_write_without_an_answer_when_time_has_passed() -> None:
    async def answer(request: web.Request, received: ReceivedRequest) -> web.StreamResponse:
        await asyncio.sleep(5)
        return answer_json({})

    async with calling(answer) as (client, _):
        write = asyncio.create_task(client.create(PODS, "ns", b"{}"))
        await asyncio.sleep(1)
        await ended(write)
        assert not client.knows_its_writes()
        await asyncio.sleep(UNKNOWN_WRITE_SECONDS + 1)

        assert client.knows_its_writes()
