"""One request: its connection, proxy, timeouts, login and metrics."""

import asyncio
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from api.meta import PODS
from controller.kube import errors
from controller.kube.client import Client
from controller.kube.connect import Connection, NotConfigured
from controller.kube.http1 import PIECE_BYTES
from controller.kube.token_bucket import TokenBucket
from controller.kube.transport import (
    CALL_TIMEOUT_SECONDS,
    RENEWAL_SECONDS,
    STREAM_SILENCE_SECONDS,
)
from tests.support.scripted import (
    ReceivedRequest,
    ScriptedServer,
    answer_json,
    answer_lines,
    calling,
    fine,
    saying,
    status_object,
)


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_the_environment_sets_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    async with calling() as (client, _):
        assert await client.get(PODS, "ns", "a") == b"{}"


async def test_a_connection_uses_its_proxy() -> None:
    async with (
        ScriptedServer(fine) as proxy,
        Client(Connection("http://cluster.invalid", proxy=proxy.url)) as client,
    ):
        await client.get(PODS, "ns", "a")

    assert proxy.requests[0].headers["Host"] == "cluster.invalid"


async def test_a_client_reports_the_date_of_a_response_and_how_long_it_took() -> None:
    reported: list[tuple[str, float]] = []

    async def slow(request: web.Request, received: ReceivedRequest) -> web.StreamResponse:
        await asyncio.sleep(3)
        return web.json_response({}, headers={"Date": "Thu, 01 Jan 2026 12:00:00 GMT"})

    def report(date: str, took_seconds: float) -> None:
        reported.append((date, took_seconds))

    async with (
        ScriptedServer(slow) as server,
        Client(Connection(server.url), on_date=report, timer=now) as client,
    ):
        await client.get(PODS, "ns", "a")

    assert reported == [("Thu, 01 Jan 2026 12:00:00 GMT", 3.0)]


async def test_a_call_without_a_response_times_out() -> None:
    async def never(request: web.Request, received: ReceivedRequest) -> web.StreamResponse:
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
    async def handle(request: web.Request, received: ReceivedRequest) -> web.StreamResponse:
        assert request.transport is not None
        if raw:
            request.transport.write(raw)
        request.transport.close()
        return web.Response()

    async with calling(handle) as (client, _):
        with pytest.raises(aiohttp.ClientError):
            await client.create(PODS, "ns", b"{}")


async def test_an_unreachable_server_is_an_os_error() -> None:
    async with ScriptedServer(fine) as server:
        pass
    async with Client(Connection(server.url)) as client:
        with pytest.raises(OSError, match="Cannot connect"):
            await client.get(PODS, "ns", "a")


async def test_a_silent_stream_times_out() -> None:
    async def handle(request: web.Request, received: ReceivedRequest) -> web.StreamResponse:
        return await answer_lines(request, [b"one\n"], silence_seconds=1e6)

    async with calling(handle) as (client, _):
        started = now()
        async with client.stream("/x", {}) as stream:
            assert await stream.readline() == b"one\n"
            with pytest.raises(TimeoutError):
                await stream.readline()

        assert now() - started == pytest.approx(STREAM_SILENCE_SECONDS, abs=1.1)


async def test_an_active_stream_does_not_time_out() -> None:
    async def handle(request: web.Request, received: ReceivedRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(30):
            await asyncio.sleep(STREAM_SILENCE_SECONDS - 1)
            await response.write(b"still here\n")
        return response

    async with calling(handle) as (client, _), client.stream("/x", {}) as stream:
        assert len((await stream.read()).splitlines()) == 30


async def test_a_refused_stream_is_an_error_before_its_first_line() -> None:
    async with calling(saying(answer_json(status_object(410, "Expired", "too old"), 410))) as (client, _):
        with pytest.raises(errors.Gone, match="too old"):
            async with client.stream("/x", {}):
                pytest.fail("there is no stream")


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

    async def handle(self, request: web.Request, received: ReceivedRequest) -> web.StreamResponse:
        if int(received.headers["Authorization"].removeprefix("Bearer ")) >= self.good:
            return answer_json({})
        return answer_json(status_object(401, "Unauthorized", "Unauthorized"), 401)


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


async def test_a_rejected_login_is_renewed_at_most_once_per_interval() -> None:
    login = Login(good=1000)
    async with calling(login.handle, login.connection) as (client, server):
        for _ in range(5):
            with pytest.raises(errors.Unauthorized):
                await client.get(PODS, "ns", "a")
        assert (login.number, len(server.requests)) == (1, 10)

        await asyncio.sleep(RENEWAL_SECONDS)
        with pytest.raises(errors.Unauthorized):
            await client.get(PODS, "ns", "a")
        assert login.number == 2


@pytest.mark.parametrize("failure", [NotConfigured("the plugin is gone"), OSError("the plugin is gone")])
async def test_the_error_names_a_failed_renewal(failure: Exception) -> None:
    login = Login(fails=failure)
    async with calling(login.handle, login.connection) as (client, _):
        with pytest.raises(errors.Unauthorized, match="the plugin is gone"):
            await client.get(PODS, "ns", "a")


async def test_without_a_way_to_renew_a_refused_token_is_an_error() -> None:
    async with calling(Login().handle, {"token": lambda: "0"}) as (client, server):
        with pytest.raises(errors.Unauthorized):
            await client.get(PODS, "ns", "a")

    assert len(server.requests) == 1


class RecordingObserver:
    """An observer that records its calls."""

    def __init__(self) -> None:
        self.answers: list[tuple[str, str, str, int, int]] = []
        self.retries: list[tuple[str, str]] = []
        self.waits: list[tuple[str, float]] = []

    def answered(
        self, method: str, resource: str, code: str, seconds: float, sent_bytes: int, received_bytes: int
    ) -> None:
        assert seconds >= 0
        self.answers.append((method, resource, code, sent_bytes, received_bytes))

    def retried(self, method: str, code: str) -> None:
        self.retries.append((method, code))

    def limited(self, method: str, seconds: float) -> None:
        self.waits.append((method, round(seconds, 2)))


async def test_the_observer_records_responses() -> None:
    async def handle(request: web.Request, received: ReceivedRequest) -> web.StreamResponse:
        assert request.transport is not None
        if received.path.endswith("/broken"):
            request.transport.close()
        return answer_json({}, 404 if received.path.endswith("/gone") else 200)

    async with calling(handle, observer=(observer := RecordingObserver())) as (client, _):
        await client.get(PODS, "ns", "a")
        await client.create(PODS, "ns", b'{"a":1}')
        for name in ("gone", "broken"):
            with pytest.raises((errors.NotFound, aiohttp.ClientError)):
                await client.get(PODS, "ns", name)
        async with client.stream("/x", {}, resource="pods"):
            pass
        with pytest.raises(aiohttp.ClientError):
            async with client.stream("/broken", {}, resource="pods"):
                pytest.fail("there is no stream")

    assert observer.answers == [
        ("GET", "pods", "200", 0, 2),
        ("POST", "pods", "200", 7, 2),
        ("GET", "pods", "404", 0, 2),
        ("GET", "pods", "<error>", 0, 0),
        ("GET", "pods", "200", 0, 0),
        ("GET", "pods", "<error>", 0, 0),
    ]
    assert (observer.retries, observer.waits) == ([], [])


async def test_the_observer_records_retries_and_waits() -> None:
    login = Login()
    busy = answer_json(status_object(429, "Busy"), 429, Retry_After="1")
    observer = RecordingObserver()
    async with calling(login.handle, login.connection, observer=observer) as (client, _):
        await client.get(PODS, "ns", "a")
    async with calling(saying(busy), observer=observer, rate_limiter=TokenBucket(0.5, burst=1)) as (
        client,
        _,
    ):
        await client.create(PODS, "ns", b"{}")

    assert observer.retries == [("GET", "401"), ("POST", "429")]
    assert observer.waits == [("POST", 0), ("POST", 1)]


async def test_a_large_body_arrives_whole() -> None:
    body = b'"' + b"x" * PIECE_BYTES + b'"'
    async with calling() as (client, server):
        await client.create(PODS, "ns", body)

    assert server.requests[0].body == body


async def test_the_permit_is_checked_again_while_a_large_body_is_sent() -> None:
    answers = iter([5.0, 5.0, 0.0])
    async with calling(permit=lambda: next(answers)) as (client, server):
        with pytest.raises(errors.NotLeading, match="not sent"):
            await client.create(PODS, "default", b"x" * 10 * PIECE_BYTES)

        assert server.requests == []
        assert list(answers) == []


async def test_a_redirect_is_an_error_that_names_the_address() -> None:
    elsewhere = answer_json({}, 307, Location="https://elsewhere.example/api")
    async with calling(saying(elsewhere)) as (client, server):
        with pytest.raises(errors.ApiError, match=r"redirect to https://elsewhere\.example/api") as caught:
            await client.create(PODS, "ns", b"{}")

    assert (caught.value.code, len(server.requests)) == (307, 1)


async def test_parameters_are_quoted_and_empty_ones_omitted() -> None:
    async with calling() as (client, server):
        await client.list(PODS, "ns", label_selector="a/b in (c, d),e=é&f", params={"limit": "5"})
        await client.request("GET", "/logs?container=a", params={"tail": "1"})
        await client.request("GET", "/plain", params={"x": ""})

    assert [request.query for request in server.requests] == [
        {"labelSelector": "a/b in (c, d),e=é&f", "limit": "5"},
        {"container": "a", "tail": "1"},
        {},
    ]


@pytest.mark.parametrize(
    ("path", "connection"),
    [
        pytest.param("/a b", {}, id="a space in the path"),
        pytest.param("/a\r\nX: y", {}, id="a line break in the path"),
        pytest.param("/a", {"token": lambda: "t\r\nX: y"}, id="a line break in the token"),
        pytest.param(
            "/a", {"headers": lambda: (("Impersonate-User", "a\nb"),)}, id="a line break in a header"
        ),
        pytest.param("/a", {"headers": lambda: (("Impersonate-User", "a\rb"),)}, id="half a line break"),
    ],
)
async def test_nothing_can_add_headers_to_a_request(path: str, connection: dict[str, Any]) -> None:
    async with calling(connection=connection) as (client, server):
        with pytest.raises(ValueError, match="cannot be sent"):
            await client.request("GET", path)

    assert server.requests == []


async def test_an_address_with_a_path_and_a_login() -> None:
    async with ScriptedServer(fine) as server:
        address = server.url.replace("://", "://me:sesame@") + "/clusters/a/"
        async with Client(Connection(address)) as client:
            await client.create(PODS, "ns", b"{}")

    (received,) = server.requests
    assert received.path == "/clusters/a/api/v1/namespaces/ns/pods"
    assert received.headers["Authorization"] == "Basic bWU6c2VzYW1l"
    assert received.headers["Host"] == server.url.removeprefix("http://")


async def test_a_request_without_tls_through_a_proxy_names_the_server_and_logs_in() -> None:
    async with ScriptedServer(fine) as proxy:
        address = proxy.url.replace("://", "://me:sesame@")
        async with Client(Connection("http://cluster.invalid/a", proxy=address)) as client:
            await client.delete(PODS, "ns", "b")

    (received,) = proxy.requests
    assert received.path == "/a/api/v1/namespaces/ns/pods/b"
    assert received.headers["Proxy-Authorization"] == "Basic bWU6c2VzYW1l"


async def test_writes_say_how_long_they_are() -> None:
    async with calling() as (client, server):
        await client.request("POST", "/a")
        await client.request("POST", "/a", body=b"{}")
        await client.request("GET", "/a")

    lengths = [request.headers.get("Content-Length") for request in server.requests]
    assert lengths == ["0", "2", None]


async def test_a_write_is_not_repeated_when_its_connection_ends_without_an_answer() -> None:
    async def handle(request: web.Request, received: ReceivedRequest) -> web.StreamResponse:
        if len(server.requests) % 2 == 0:
            assert request.transport is not None
            request.transport.close()
        return answer_json({})

    async with calling(handle) as (client, server):
        await client.get(PODS, "ns", "a")
        with pytest.raises(aiohttp.ClientError):
            await client.patch(PODS, "ns", "a", b"{}")
        assert [request.method for request in server.requests] == ["GET", "PATCH"]

        await client.get(PODS, "ns", "a")
        await client.get(PODS, "ns", "b")
    assert [request.path[-1] for request in server.requests[2:]] == ["a", "b", "b"]
