"""One call: what is sent, how long it may take, how often it is tried, and what its errors mean."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web

from api.meta import HORIZONTAL_POD_AUTOSCALERS, PODS
from controller.kube import errors
from controller.kube.client import (
    CALL_TIMEOUT_SECONDS,
    JSON_PATCH,
    LONGEST_PAUSE_SECONDS,
    METADATA_ONLY,
    RENEWAL_SECONDS,
    STREAM_SILENCE_SECONDS,
    TRIES,
    Client,
)
from controller.kube.connect import Connection, NotConfigured
from controller.kube.limiter import TokenBucket
from controller.testing.scripted import ScriptedServer, Seen, answer_json, answer_lines, refusal

Handler = Callable[[web.Request, Seen], Awaitable[web.StreamResponse]]


async def fine(request: web.Request, seen: Seen) -> web.StreamResponse:
    return answer_json({})


def saying(*answers: web.Response) -> Handler:
    """These answers one after the other, then all is fine."""
    coming = list(answers)

    async def handle(request: web.Request, seen: Seen) -> web.StreamResponse:
        return coming.pop(0) if coming else answer_json({})

    return handle


@asynccontextmanager
async def calling(
    handler: Handler = fine, connection: dict[str, Any] | None = None, **options: Any
) -> AsyncIterator[tuple[Client, ScriptedServer]]:
    async with (
        ScriptedServer(handler) as server,
        Client(Connection(server.url, **(connection or {})), **options) as client,
    ):
        yield client, server


def now() -> float:
    return asyncio.get_running_loop().time()


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
async def test_what_is_sent(
    call: Callable[[Client], Awaitable[bytes]], method: str, path: str, body: Any
) -> None:
    async with calling() as (client, server):
        assert await call(client) == b"{}"

    (seen,) = server.seen
    query = "&".join(f"{key}={value}" for key, value in seen.query.items())
    assert (seen.method, f"{seen.path}?{query}".rstrip("?")) == (method, path)
    assert (orjson.loads(seen.body) if seen.body else None) == body


async def test_headers() -> None:
    """Forms as asked for, no compression, no cookies, and the token of this very moment."""
    tokens = iter(["one", "two", ""])
    async with calling(connection={"token": lambda: next(tokens)}, user_agent="test/1") as (client, server):
        await client.get(PODS, "ns", "a", accept=METADATA_ONLY)
        await client.patch(PODS, "ns", "a", b"[]", content_type=JSON_PATCH)
        await client.get(PODS, "ns", "a")

    first, second, third = (one.headers for one in server.seen)
    assert (first["Accept"], first["User-Agent"], first["Accept-Encoding"]) == (
        METADATA_ONLY,
        "test/1",
        "identity",
    )
    assert second["Content-Type"] == JSON_PATCH
    assert [one.get("Authorization") for one in (first, second, third)] == ["Bearer one", "Bearer two", None]


async def test_the_environment_sets_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    async with calling() as (client, _):
        assert await client.get(PODS, "ns", "a") == b"{}"


async def test_a_proxy_is_used_where_the_connection_names_one() -> None:
    async with (
        ScriptedServer(fine) as proxy,
        Client(Connection("http://cluster.invalid", proxy=proxy.url)) as client,
    ):
        await client.get(PODS, "ns", "a")

    assert proxy.seen[0].headers["Host"] == "cluster.invalid"


@pytest.mark.parametrize("code", [404, 409, 422, 500, 503])
async def test_a_refusal_is_raised_after_one_try(code: int) -> None:
    async with calling(saying(answer_json(refusal(code, "Reason", "because"), code))) as (client, server):
        with pytest.raises(errors.ApiError, match="because") as caught:
            await client.get(PODS, "ns", "a")

    assert (caught.value.code, len(server.seen)) == (code, 1)


@pytest.mark.parametrize(
    ("code", "seconds", "waited"),
    [
        pytest.param(429, "3", 3, id="too many requests"),
        pytest.param(503, "2", 2, id="not ready"),
        pytest.param(429, "9999", LONGEST_PAUSE_SECONDS, id="longer than makes sense"),
    ],
)
async def test_it_comes_back_when_it_is_told_to(code: int, seconds: str, waited: float) -> None:
    answer = answer_json(refusal(code, "Busy"), code, Retry_After=seconds)
    async with calling(saying(answer)) as (client, server):
        started = now()
        assert await client.create(PODS, "ns", b"{}") == b"{}"

        assert now() - started == pytest.approx(waited, abs=0.01)
    assert len(server.seen) == 2


async def test_it_does_not_come_back_for_ever() -> None:
    async def busy(request: web.Request, seen: Seen) -> web.StreamResponse:
        return answer_json(refusal(429, "TooManyRequests"), 429, Retry_After="1")

    async with calling(busy) as (client, server):
        with pytest.raises(errors.TooManyRequests):
            await client.create(PODS, "ns", b"{}")

    assert len(server.seen) == TRIES


async def test_those_who_wait_to_come_back_take_no_place() -> None:
    async def handle(request: web.Request, seen: Seen) -> web.StreamResponse:
        if seen.path.endswith("/busy"):
            return answer_json(refusal(429, "TooManyRequests"), 429, Retry_After="5")
        return answer_json({})

    async with calling(handle, in_flight=1) as (client, _):
        waiting = asyncio.create_task(client.get(PODS, "ns", "busy"))
        await asyncio.sleep(1)
        started = now()
        await client.get(PODS, "ns", "free")

        assert now() == started
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def slow(request: web.Request, seen: Seen) -> web.StreamResponse:
    await asyncio.sleep(2)
    return answer_json({})


async def test_only_so_many_calls_are_under_way() -> None:
    async with calling(slow, in_flight=4) as (client, server):
        await asyncio.gather(*(client.get(PODS, "ns", str(number)) for number in range(12)))

    started = server.seen[0].at
    assert [round(one.at - started) for one in server.seen] == [0] * 4 + [2] * 4 + [4] * 4


async def test_watches_take_no_place_of_calls() -> None:
    async def handle(request: web.Request, seen: Seen) -> web.StreamResponse:
        if "watch" in seen.query:
            return await answer_lines(request, [b"{}\n"], silence_seconds=50)
        return answer_json({})

    async def watch(client: Client) -> bytes:
        async with client.stream("/api/v1/pods", {"watch": "1"}) as stream:
            return await stream.readline()

    async with calling(handle, in_flight=1) as (client, _):
        watches = [asyncio.create_task(watch(client)) for _ in range(20)]
        assert await client.get(PODS, "ns", "a") == b"{}"
        assert await asyncio.gather(*watches) == [b"{}\n"] * 20


async def test_a_limit_per_second_is_kept() -> None:
    async with calling(limiter=TokenBucket(2, burst=2)) as (client, server):
        await asyncio.gather(*(client.get(PODS, "ns", str(number)) for number in range(5)))

    started = server.seen[0].at
    assert [round(one.at - started, 2) for one in server.seen] == [0, 0, 0.5, 1, 1.5]


async def test_a_call_without_an_answer_has_failed_in_time() -> None:
    async def never(request: web.Request, seen: Seen) -> web.StreamResponse:
        await asyncio.sleep(1e6)
        return answer_json({})

    async with calling(never) as (client, _):
        started = now()
        with pytest.raises(TimeoutError):
            await client.get(PODS, "ns", "a")

        assert now() - started == pytest.approx(CALL_TIMEOUT_SECONDS, abs=1.1)


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(None, id="no answer"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", id="half an answer"),
        pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n", id="an answer of something else"),
    ],
)
async def test_a_connection_that_breaks_is_an_error_of_the_network(raw: bytes | None) -> None:
    async def handle(request: web.Request, seen: Seen) -> web.StreamResponse:
        assert request.transport is not None
        if raw:
            request.transport.write(raw)
        request.transport.close()
        return web.Response()

    async with calling(handle) as (client, _):
        with pytest.raises(aiohttp.ClientError):
            await client.create(PODS, "ns", b"{}")


async def test_nobody_there() -> None:
    async with ScriptedServer(fine) as server:
        pass
    async with Client(Connection(server.url)) as client:
        with pytest.raises(OSError, match="Cannot connect"):
            await client.get(PODS, "ns", "a")


async def test_a_silent_stream_has_failed_in_time() -> None:
    async def handle(request: web.Request, seen: Seen) -> web.StreamResponse:
        return await answer_lines(request, [b"one\n"], silence_seconds=1e6)

    async with calling(handle) as (client, _):
        started = now()
        async with client.stream("/x", {}) as stream:
            assert await stream.readline() == b"one\n"
            with pytest.raises(TimeoutError):
                await stream.readline()

        assert now() - started == pytest.approx(STREAM_SILENCE_SECONDS, abs=1.1)


async def test_a_talking_stream_has_no_end() -> None:
    async def handle(request: web.Request, seen: Seen) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(30):
            await asyncio.sleep(STREAM_SILENCE_SECONDS - 1)
            await response.write(b"still here\n")
        return response

    async with calling(handle) as (client, _), client.stream("/x", {}) as stream:
        assert len((await stream.read()).splitlines()) == 30


async def test_a_refused_stream_is_an_error_before_its_first_line() -> None:
    async with calling(saying(answer_json(refusal(410, "Expired", "too old"), 410))) as (client, _):
        with pytest.raises(errors.Gone, match="too old"):
            async with client.stream("/x", {}):
                pytest.fail("there is no stream")


async def test_calls_are_observed() -> None:
    observed: list[tuple[str, str, str, float]] = []

    async def handle(request: web.Request, seen: Seen) -> web.StreamResponse:
        assert request.transport is not None
        if seen.path.endswith("/broken"):
            request.transport.close()
        return answer_json({}, 404 if seen.path.endswith("/gone") else 200)

    async with calling(handle, observe=lambda *call: observed.append(call)) as (client, _):
        await client.get(PODS, "ns", "a")
        for name in ("gone", "broken"):
            with pytest.raises((errors.NotFound, aiohttp.ClientError)):
                await client.get(PODS, "ns", name)
        async with client.stream("/x", {}, resource="pods"):
            pass

    assert [one[:3] for one in observed] == [
        ("GET", "pods", "200"),
        ("GET", "pods", "404"),
        ("GET", "pods", "<error>"),
        ("GET", "pods", "200"),
    ]
    assert all(one[3] >= 0 for one in observed)


class Login:
    """A login whose token the server accepts from the ``good``-th on."""

    def __init__(self, good: int = 1, fails: Exception | None = None) -> None:
        self.number = 0
        self.good = good
        self.fails = fails

    async def renew(self) -> None:
        self.number += 1
        if self.fails:
            raise self.fails

    @property
    def connection(self) -> dict[str, Any]:
        return {"token": lambda: str(self.number), "renew": self.renew}

    async def handle(self, request: web.Request, seen: Seen) -> web.StreamResponse:
        if int(seen.headers["Authorization"].removeprefix("Bearer ")) >= self.good:
            return answer_json({})
        return answer_json(refusal(401, "Unauthorized", "Unauthorized"), 401)


async def test_a_token_that_is_not_accepted_is_renewed_once_for_all() -> None:
    login = Login()
    async with calling(login.handle, login.connection) as (client, _):
        answers = await asyncio.gather(*(client.create(PODS, "ns", b"{}") for _ in range(10)))

    assert answers == [b"{}"] * 10
    assert login.number == 1


async def test_a_stream_renews_the_token_for_its_next_try() -> None:
    login = Login()
    async with calling(login.handle, login.connection) as (client, _):
        with pytest.raises(errors.Unauthorized):
            async with client.stream("/x", {}):
                pass
        async with client.stream("/x", {}) as stream:
            assert await stream.read() == b"{}"


async def test_a_login_that_stays_unaccepted_is_renewed_now_and_then() -> None:
    login = Login(good=1000)
    async with calling(login.handle, login.connection) as (client, server):
        for _ in range(5):
            with pytest.raises(errors.Unauthorized):
                await client.get(PODS, "ns", "a")
        assert (login.number, len(server.seen)) == (1, 10)

        await asyncio.sleep(RENEWAL_SECONDS)
        with pytest.raises(errors.Unauthorized):
            await client.get(PODS, "ns", "a")
        assert login.number == 2


@pytest.mark.parametrize("failure", [NotConfigured("the plugin is gone"), OSError("the plugin is gone")])
async def test_a_renewal_that_fails_is_told(failure: Exception) -> None:
    login = Login(fails=failure)
    async with calling(login.handle, login.connection) as (client, _):
        with pytest.raises(errors.Unauthorized, match="the plugin is gone"):
            await client.get(PODS, "ns", "a")


async def test_without_a_way_to_renew_a_refused_token_is_an_error() -> None:
    async with calling(Login().handle, {"token": lambda: "0"}) as (client, server):
        with pytest.raises(errors.Unauthorized):
            await client.get(PODS, "ns", "a")

    assert len(server.seen) == 1
