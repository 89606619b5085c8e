"""The user and the lifetime of pod tokens."""

import base64
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from rallypoint.local.apiserver import ApiServer
from rallypoint.testing.http_trace import RawClient, Step

pytestmark = pytest.mark.looptime(False)

PODS = "/api/v1/namespaces/team/pods"
SPEC: dict[str, Any] = {"containers": [{"name": "c", "image": "i"}], "serviceAccountName": "trainer"}


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    server = ApiServer(auto_namespaces=True)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def pod(server: ApiServer) -> dict[str, Any]:
    return await create_pod(server)


async def create_pod(server: ApiServer) -> dict[str, Any]:
    async with RawClient(server.url, server.token) as client:
        body: dict[str, Any] = (
            await client.send(Step("POST", PODS, {"metadata": {"name": "p"}, "spec": SPEC}))
        ).body
    return body


async def delete_pod(server: ApiServer) -> None:
    async with RawClient(server.url, server.token) as client:
        await client.send(Step("DELETE", f"{PODS}/p", query={"gracePeriodSeconds": "0"}))


async def code(server: ApiServer, token: str) -> int:
    async with RawClient(server.url, token) as client:
        return (await client.send(Step("GET", "/version"))).code


async def test_a_token_names_its_account(server: ApiServer, pod: dict[str, Any]) -> None:
    async with RawClient(server.url, server.pod_token(pod)) as client:
        refused = await client.send(Step("GET", PODS))

    assert 'User "system:serviceaccount:team:trainer" cannot list' in refused.body["message"]


async def test_a_token_has_the_claims_of_kubernetes(server: ApiServer, pod: dict[str, Any]) -> None:
    claims = server.pod_token(pod).split(".")[1]
    read = orjson.loads(base64.urlsafe_b64decode(claims + "=="))

    assert read["sub"] == "system:serviceaccount:team:trainer"
    assert read["kubernetes.io"]["namespace"] == "team"
    assert read["kubernetes.io"]["pod"] == {"name": "p", "uid": pod["metadata"]["uid"]}


async def test_a_token_ends_with_its_pod(server: ApiServer, pod: dict[str, Any]) -> None:
    token = server.pod_token(pod)
    before = await code(server, token)
    await delete_pod(server)

    assert (before, await code(server, token)) == (200, 401)


async def test_a_pod_of_the_same_name_has_another_token(server: ApiServer, pod: dict[str, Any]) -> None:
    token = server.pod_token(pod)
    await delete_pod(server)
    second = await create_pod(server)

    assert await code(server, token) == 401
    assert await code(server, server.pod_token(second)) == 200


async def test_a_token_for_another_audience_is_rejected(server: ApiServer, pod: dict[str, Any]) -> None:
    assert await code(server, server.pod_token(pod, "vault")) == 401


async def test_a_token_stays_the_same(server: ApiServer, pod: dict[str, Any]) -> None:
    """A changed token would rewrite the mounted file."""
    assert server.pod_token(pod) == server.pod_token(pod)


async def test_a_token_of_another_server_is_rejected(server: ApiServer, pod: dict[str, Any]) -> None:
    assert await code(server, ApiServer().pod_token(pod)) == 401


@pytest.mark.parametrize("token", ["", ".", "..", "a.b.c", "é", "\udce9"])
async def test_a_malformed_token_is_rejected(server: ApiServer, token: str) -> None:
    assert await code(server, token) == 401


async def test_a_token_with_changed_claims_is_rejected(server: ApiServer, pod: dict[str, Any]) -> None:
    header, claims, signature = server.pod_token(pod).split(".")
    read = base64.urlsafe_b64decode(claims + "==").replace(b"trainer", b"ruler00")
    forged = base64.urlsafe_b64encode(read).decode().rstrip("=")

    assert await code(server, f"{header}.{forged}.{signature}") == 401
