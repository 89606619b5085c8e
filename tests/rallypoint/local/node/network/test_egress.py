"""The egress proxy of pods, with requests as curl and pip send them."""

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from rallypoint.local.node.network import egress
from rallypoint.local.node.network.egress import Egress

pytestmark = pytest.mark.looptime(False)

HOST = "127.0.0.1"


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> int:
    with socket.socket() as free:
        free.bind((HOST, 0))
        port: int = free.getsockname()[1]
    monkeypatch.setattr(egress, "PORT", port)
    return port


@pytest.fixture
async def proxy(port: int) -> AsyncIterator[Egress]:
    proxy = await Egress.open(socket.socket(), HOST, {})
    yield proxy
    proxy.close()


@pytest.fixture
async def outside() -> AsyncIterator[int]:
    """A server that says what it was asked, and ends."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"asked " + await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    server = await asyncio.start_server(answer, HOST)
    yield server.sockets[0].getsockname()[1]
    server.close()


async def ask(port: int, *pieces: str) -> str:
    reader, writer = await asyncio.open_connection(HOST, port)
    for piece in pieces:
        writer.write(piece.encode())
    said = await reader.read()
    writer.close()
    return said.decode()


async def test_a_tunnel(proxy: Egress, port: int, outside: int) -> None:
    said = await ask(port, f"CONNECT {HOST}:{outside} HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\n\r\n")

    assert said == "HTTP/1.1 200 Connection established\r\n\r\nasked GET / HTTP/1.1\r\n\r\n"


async def test_a_plain_http_request_closes_its_connection(proxy: Egress, port: int, outside: int) -> None:
    head = f"GET http://{HOST}:{outside}/a?b=c HTTP/1.1\r\nProxy-Connection: keep-alive\r\nX: y\r\n\r\n"

    assert await ask(port, head) == "asked GET /a?b=c HTTP/1.1\r\nConnection: close\r\nX: y\r\n\r\n"


@pytest.mark.parametrize(
    "head",
    [
        pytest.param("CONNECT 127.0.0.1:1 HTTP/1.1\r\n\r\n", id="nothing listens"),
        pytest.param("GET /path HTTP/1.1\r\n\r\n", id="not a proxy request"),
        pytest.param("nonsense\r\n\r\n", id="no HTTP"),
    ],
)
async def test_unreachable_targets_are_errors(proxy: Egress, port: int, head: str) -> None:
    assert (await ask(port, head)).startswith("HTTP/1.1 502 ")


async def test_a_proxy_of_the_user_is_used(port: int, outside: int) -> None:
    proxy = await Egress.open(socket.socket(), HOST, {"https_proxy": f"http://{HOST}:{outside}"})
    said = await ask(port, "CONNECT example.com:443 HTTP/1.1\r\n\r\n")
    proxy.close()

    assert said == "asked CONNECT example.com:443 HTTP/1.1\r\n\r\n"


async def test_variables_of_the_manifest_stay(proxy: Egress, port: int) -> None:
    env = proxy.variables({"HTTP_PROXY": "mine", "A": "1"}, "10.244.0.0/16")

    assert (env["HTTP_PROXY"], env["A"]) == ("mine", "1")
    assert env["https_proxy"] == f"http://{HOST}:{port}"
    assert "10.244.0.0/16" in env["no_proxy"]
