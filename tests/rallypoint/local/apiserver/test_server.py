"""The embedded API server over HTTP: authentication, the interceptor, and its own features.

``tests/contract`` tests what it shares with a real API server.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from rallypoint.local.apiserver import ApiServer
from rallypoint.local.apiserver.apimachinery.errors import StatusError
from rallypoint.local.apiserver.serving import watch
from rallypoint.local.apiserver.serving.handlers import BODY_LIMIT
from rallypoint.testing.http_trace import MERGE, TABLE, RawClient, Step
from tests.support.faults import Faults

pytestmark = pytest.mark.looptime(False)

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    server = ApiServer(history=8)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def client(server: ApiServer) -> AsyncIterator[RawClient]:
    async with RawClient(server.url, server.token) as client:
        yield client


async def test_a_request_requires_a_token(server: ApiServer) -> None:
    async with RawClient(server.url, "another") as client:
        reply = await client.send(Step("GET", CONFIGMAPS))

    assert (reply.code, reply.body["reason"]) == (401, "Unauthorized")


async def test_the_kubeconfig_reaches_the_server(server: ApiServer) -> None:
    async with RawClient.from_kubeconfig(server.kubeconfig()) as client:
        reply = await client.send(Step("GET", "/version"))

    assert reply.body["major"] == "1"


async def test_the_openapi_document_of_version_2_is_empty(client: RawClient) -> None:
    """kubectl reads it, as protobuf, before it says that a kind does not exist."""
    accept = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
    binary, text = [await client.send(Step("GET", "/openapi/v2", accept=form)) for form in (accept, "")]

    assert (binary.code, binary.text, text.body["paths"]) == (200, "", {})


async def test_auto_namespaces_creates_missing_namespaces() -> None:
    server = ApiServer(auto_namespaces=True)
    await server.start()
    async with RawClient(server.url, server.token) as client:
        made = await client.send(
            Step("POST", "/api/v1/namespaces/new/configmaps", {"metadata": {"name": "c"}})
        )
        namespace = await client.send(Step("GET", "/api/v1/namespaces/new"))
    await server.stop()

    assert made.code == 201
    assert namespace.body["status"]["phase"] == "Active"


async def test_the_interceptor_gets_calls_and_errors() -> None:
    server = ApiServer(interceptor=(faults := Faults()))
    await server.start()
    async with RawClient(server.url, server.token) as client:
        step = Step("POST", CONFIGMAPS, {"metadata": {"name": "c"}})
        replies = [await client.send(step), await client.send(step)]
    await server.stop()

    calls = zip(faults.calls, replies, strict=True)
    assert [(call.verb, reply.code, call.user_agent) for call, reply in calls] == [
        ("create", 201, "contract/1"),
        ("create", 409, "contract/1"),
    ]
    assert faults.calls[0].body == b'{"metadata":{"name":"c"}}'


async def test_an_object_from_before_a_stricter_rule_can_be_deleted(
    server: ApiServer, client: RawClient
) -> None:
    spec = {"containers": [{"name": "c", "image": "i"}]}
    made = await client.send(
        Step("POST", PODS, {"metadata": {"name": "p", "finalizers": ["a.b/c"]}, "spec": spec})
    )
    probed = {**made.body["spec"]["containers"][0], "livenessProbe": {}}
    before = {**made.body, "spec": {**made.body["spec"], "containers": [probed]}}
    server.store.put(server.store.collection("/pods"), before)
    reported = await client.send(
        Step("PATCH", f"{PODS}/p/status", {"status": {"phase": "Failed"}}, type=MERGE)
    )
    freed = await client.send(Step("PATCH", f"{PODS}/p", {"metadata": {"finalizers": None}}, type=MERGE))
    changed = {"spec": {"activeDeadlineSeconds": 5}}
    refused = await client.send(Step("PATCH", f"{PODS}/p", changed, type=MERGE))

    assert (reported.code, freed.code) == (200, 200)
    assert (refused.code, refused.body["details"]["causes"][0]["field"]) == (
        422,
        "spec.containers[0].livenessProbe",
    )


async def test_the_handler_for_pods_serves_logs(server: ApiServer, client: RawClient) -> None:
    async def answer(request: web.Request, pod: dict[str, Any]) -> web.Response:
        return web.Response(text=f"{pod['metadata']['name']} {request.query['tailLines']}")

    spec = {"containers": [{"name": "c", "image": "i"}]}
    await client.send(Step("POST", PODS, {"metadata": {"name": "p"}, "spec": spec}))
    without_handler = await client.send(Step("GET", f"{PODS}/p/log"))
    server.answer_for_pods("log", answer)
    with_handler = await client.send(Step("GET", f"{PODS}/p/log", query={"tailLines": "5"}))

    assert without_handler.code == 501
    assert with_handler.text == "p 5"


async def test_a_page_of_a_compacted_list(client: RawClient) -> None:
    """An error with a token that continues from there without consistency."""
    for name in "abc":
        await client.send(Step("POST", CONFIGMAPS, {"metadata": {"name": name}}))
    page = await client.send(Step("GET", CONFIGMAPS, query={"limit": "1"}))
    for _ in range(10):
        await client.send(Step("PATCH", f"{CONFIGMAPS}/a", {"data": {"a": str(_)}}, type=MERGE))

    token = page.body["metadata"]["continue"]
    refused = await client.send(Step("GET", CONFIGMAPS, query={"limit": "1", "continue": token}))
    again = refused.body["metadata"]["continue"]
    rest = await client.send(Step("GET", CONFIGMAPS, query={"continue": again}))

    assert (refused.code, refused.body["reason"]) == (410, "Expired")
    assert [item["metadata"]["name"] for item in rest.body["items"]] == ["b", "c"]


async def test_an_exact_version_that_is_compacted(client: RawClient) -> None:
    made = await client.send(Step("POST", CONFIGMAPS, {"metadata": {"name": "a"}}))
    for count in range(10):
        await client.send(Step("PATCH", f"{CONFIGMAPS}/a", {"data": {"a": str(count)}}, type=MERGE))

    query = {"resourceVersion": made.body["metadata"]["resourceVersion"], "resourceVersionMatch": "Exact"}
    refused = await client.send(Step("GET", CONFIGMAPS, query=query))

    assert (refused.code, refused.body["reason"]) == (410, "Expired")


async def test_a_watch_ends_with_the_server() -> None:
    server = ApiServer()
    await server.start()
    async with (
        RawClient(server.url, server.token) as client,
        client.stream(CONFIGMAPS, {"watch": "true"}, "application/json") as lines,
    ):
        await server.stop()
        async with asyncio.timeout(10):
            assert [line async for line in lines] == []


async def test_a_client_that_does_not_read_is_disconnected(
    server: ApiServer, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its queue overflows while its socket is full; writers do not block."""
    monkeypatch.setattr(watch, "QUEUE_CAPACITY", 4)
    host, port = server.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
    writer.write(
        f"GET {CONFIGMAPS}?watch=1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.token}\r\n\r\n".encode()
    )
    assert b"200" in await reader.readline()

    for count in range(60):
        body = {"metadata": {"name": f"c{count}"}, "data": {"a": "x" * 500_000}}
        assert (await client.send(Step("POST", CONFIGMAPS, body))).code == 201

    async with asyncio.timeout(10):
        received = await reader.read()
    writer.close()
    assert not received.endswith(b"0\r\n\r\n")  # aborted without the final chunk
    assert received.count(b'"type":"ADDED"') < 60
    assert not server.store.collection("/configmaps").watchers


async def test_an_invalid_definition() -> None:
    with pytest.raises(StatusError) as refused:
        ApiServer(crds=[{"metadata": {"name": "x"}, "spec": {"group": "g", "names": {}, "versions": []}}])

    assert refused.value.code == 422


async def test_a_notice_is_a_warning_on_create() -> None:
    server = ApiServer(notices={"/configmaps": "it has no effect here"})
    await server.start()
    async with RawClient(server.url, server.token) as client:
        made = await client.send(Step("POST", CONFIGMAPS, {"metadata": {"name": "c"}}))
        changed = await client.send(Step("PATCH", f"{CONFIGMAPS}/c", {"data": {"a": "b"}}, type=MERGE))
    await server.stop()

    assert made.warnings == ('299 - "it has no effect here"',)
    assert changed.warnings == ()


async def test_objects_with_missing_names_do_not_break_tables(client: RawClient) -> None:
    containers = [{"name": "c", "image": "i"}]
    spec = {"containers": containers, "readinessGates": [{}]}
    body = {"metadata": {"name": "gated"}, "spec": spec}
    pods = "/api/v1/namespaces/default/pods"
    assert (await client.send(Step("POST", pods, body))).code in (201, 422)

    assert (await client.send(Step("GET", pods, accept=TABLE))).code == 200


async def test_an_unexpected_exception_is_a_status(server: ApiServer, client: RawClient) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("rallypoint.local.apiserver.serving.handlers.list_entries", lambda *_: 1 / 0)
        answer = await client.send(Step("GET", CONFIGMAPS))

    assert (answer.code, answer.body["reason"]) == (500, "InternalError")
    assert "ZeroDivisionError" in answer.body["message"]


async def test_a_timeout_of_0_is_the_default(server: ApiServer, client: RawClient) -> None:
    async with client.stream(
        CONFIGMAPS, {"watch": "true", "timeoutSeconds": "0"}, "application/json"
    ) as lines:
        await asyncio.sleep(0)
        await client.send(Step("POST", CONFIGMAPS, {"metadata": {"name": "c"}}))
        async with asyncio.timeout(10):
            assert b"ADDED" in await anext(aiter(lines))


async def test_a_body_that_is_too_large_is_refused(client: RawClient) -> None:
    body = {"metadata": {"name": "c"}, "data": {"a": "x" * BODY_LIMIT}}

    answer = await client.send(Step("POST", CONFIGMAPS, body))

    assert (answer.code, answer.body["reason"]) == (413, "RequestEntityTooLarge")
