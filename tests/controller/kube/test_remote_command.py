"""Commands in containers, over a WebSocket to a server of the test."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from controller.kube import errors
from controller.kube.client import Client
from controller.kube.connect import Connection
from controller.kube.remote_command import ERROR, PROTOCOLS, STDERR, STDOUT, CommandError, Output, run

pytestmark = pytest.mark.looptime(False)
SUCCESS = {"status": "Success"}
Behavior = Callable[[web.WebSocketResponse], Awaitable[None]]


def failure(code: int) -> dict[str, object]:
    return {"status": "Failure", "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]}}


def saying(status: object, *messages: tuple[int, bytes]) -> Behavior:
    """Send these messages, then the status if there is one."""

    async def behave(socket: web.WebSocketResponse) -> None:
        for channel, data in messages:
            await socket.send_bytes(bytes((channel,)) + data)
        if status is not None:
            await socket.send_bytes(bytes((ERROR,)) + orjson.dumps(status))

    return behave


async def silent(socket: web.WebSocketResponse) -> None:
    await socket.receive()


@asynccontextmanager
async def container(behave: Behavior, seen: list[web.Request] | None = None) -> AsyncIterator[Client]:
    async def serve(request: web.Request) -> web.StreamResponse:
        if seen is not None:
            seen.append(request)
        socket = web.WebSocketResponse(protocols=PROTOCOLS)
        await socket.prepare(request)
        await behave(socket)
        await socket.close()
        return socket

    app = web.Application()
    app.router.add_get("/api/v1/namespaces/ml/pods/train-0/exec", serve)
    async with TestServer(app) as server, Client(Connection(str(server.make_url("")).rstrip("/"))) as client:
        yield client


async def command(client: Client, *, pod: str = "train-0", seconds: float = 10.0) -> Output | None:
    arguments = ["sh", "-c", "echo a b"]
    return await run(client, "ml", pod, "pytorch", arguments, timeout_seconds=seconds, most_bytes=8)


async def test_the_request_names_the_container_and_each_word() -> None:
    seen: list[web.Request] = []
    async with container(saying(SUCCESS), seen) as client:
        await command(client)

    assert seen[0].query.getall("command") == ["sh", "-c", "echo a b"]
    assert {name: seen[0].query[name] for name in ("container", "stdout", "stderr")} == {
        "container": "pytorch",
        "stdout": "true",
        "stderr": "true",
    }
    assert seen[0].headers["Sec-WebSocket-Protocol"] == "v4.channel.k8s.io"


async def test_the_output_and_the_exit_code_are_returned() -> None:
    messages = [(STDOUT, b"a"), (STDERR, b"warning"), (STDOUT, b"b"), (STDOUT, b"")]
    async with container(saying(SUCCESS, *messages)) as client:
        assert await command(client) == Output(0, b"ab")
    async with container(saying(failure(3))) as client:
        assert await command(client) == Output(3, b"")


async def test_more_output_than_wanted_is_discarded() -> None:
    async with container(saying(SUCCESS, (STDOUT, b"12345"), (STDOUT, b"67890"), (STDOUT, b"x"))) as client:
        assert await command(client) == Output(0, b"12345678")


async def test_a_command_that_does_not_end_has_no_result() -> None:
    async with container(silent) as client:
        assert await command(client, seconds=0.1) is None


@pytest.mark.parametrize(
    ("status", "text"),
    [
        pytest.param({"status": "Failure", "message": "no such file: sh"}, "no such file: sh", id="no such program"),
        pytest.param(None, "the connection ended before the command did", id="a lost connection"),
    ],
)  # fmt: skip
async def test_a_command_that_was_not_run_raises(status: object, text: str) -> None:
    async with container(saying(status)) as client:
        with pytest.raises(CommandError, match=text):
            await command(client)


async def test_a_broken_connection_is_an_error() -> None:
    async def behave(socket: web.WebSocketResponse) -> None:
        transport = socket._req.transport if socket._req else None
        assert transport
        transport.write(b"\xff\xff")  # a frame with reserved bits

    async with container(behave) as client:
        with pytest.raises(CommandError, match="the connection to the container broke"):
            await command(client)


async def test_a_status_that_is_not_json_is_an_error() -> None:
    async with container(saying(None, (ERROR, b"<html>"))) as client:
        with pytest.raises(CommandError, match="not JSON"):
            await command(client)


async def test_a_connection_counts_towards_the_timeout() -> None:
    async def serve(request: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    app = web.Application()
    app.router.add_get("/api/v1/namespaces/ml/pods/train-0/exec", serve)
    async with TestServer(app) as server, Client(Connection(str(server.make_url("")).rstrip("/"))) as client:
        with pytest.raises(TimeoutError):
            await command(client, seconds=0.1)


async def test_a_refusal_of_the_server_is_an_error_of_the_api() -> None:
    async with container(silent) as client:
        with pytest.raises(errors.NotFound):
            await command(client, pod="other")


async def test_no_connection_is_an_error() -> None:
    async with Client(Connection("http://127.0.0.1:9")) as client:
        with pytest.raises(aiohttp.ClientError):
            await command(client)
