"""Probes and hooks with real sockets and processes, and the results of their responses."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import web

from rallypoint.local.node.containers.process import Streams
from rallypoint.local.node.containers.program import CannotStart
from rallypoint.local.node.pods.handlers import Handlers, Outcome, ProbeResult
from rallypoint.local.node.pods.probes import Kind, Probe
from rallypoint.local.node.volumes.references import Unresolved

pytestmark = pytest.mark.looptime(False)

POD = {"metadata": {"name": "p", "namespace": "n", "uid": "u"}}


class Beside:
    """A process beside nothing."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def wait(self) -> int:
        try:
            return await self._process.wait()
        except asyncio.CancelledError:
            self._process.kill()
            await self._process.wait()
            raise

    def send(self, number: int) -> None:
        self._process.send_signal(number)


class Environment:
    """A node whose pod is at 127.0.0.1, and was told port 1 in place of port 2."""

    def __init__(self) -> None:
        self.moved: dict[int, int] = {}
        self.problem: Exception | None = None
        self.isolation: Any = SimpleNamespace(
            pod_address=lambda _: "127.0.0.1", port=lambda _, port: self.moved.get(port, port), socket=_socket
        )

    async def enter(self, pod: Any, container: Any, command: Sequence[str], streams: Streams) -> Beside:
        if self.problem is not None:
            raise self.problem
        fields: dict[str, Any] = {"stdin": streams.stdin, "stdout": streams.stdout, "stderr": streams.stderr}
        return Beside(await asyncio.create_subprocess_exec(*command, **fields))


async def _socket() -> socket.socket:
    own = socket.socket()
    own.setblocking(False)
    return own


@pytest.fixture
def environment() -> Environment:
    return Environment()


@asynccontextmanager
async def serving(answer: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncGenerator[int]:
    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    listener = web.TCPSite(runner, "127.0.0.1", 0)
    await listener.start()
    assert runner.addresses
    yield int(runner.addresses[0][1])
    await runner.cleanup()


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


async def run_probe(
    environment: Environment, timeout_seconds: float = 20, ports: Sequence[Any] = (), **spec: Any
) -> ProbeResult:
    probe = Probe.of(Kind.READINESS, {"timeoutSeconds": timeout_seconds, **spec})
    return await Handlers(POD, cast("Any", environment)).probe({"name": "main", "ports": list(ports)}, probe)


@pytest.mark.parametrize(
    ("script", "answer"),
    [
        pytest.param("echo fine", ProbeResult(Outcome.SUCCESS, "fine\n"), id="success"),
        pytest.param(
            "echo bad; echo worse >&2; exit 3", ProbeResult(Outcome.FAILURE, "bad\nworse\n"), id="failure"
        ),
        pytest.param(
            "head -c 100000 /dev/zero | tr '\\0' x; exit 1",
            ProbeResult(Outcome.FAILURE, "x" * 10240),
            id="much output",
        ),
    ],
)
async def test_exec_probes(environment: Environment, script: str, answer: ProbeResult) -> None:
    assert await run_probe(environment, exec={"command": ["sh", "-c", script]}) == answer


async def test_a_command_that_takes_too_long_is_a_failure(environment: Environment) -> None:
    answer = await run_probe(environment, 0.1, exec={"command": ["sleep", "1000"]})

    assert answer == ProbeResult(Outcome.FAILURE, 'command "sleep 1000" timed out')


@pytest.mark.parametrize("problem", [CannotStart("no such program"), Unresolved("no such ConfigMap")])
async def test_a_command_that_does_not_start_is_an_error(
    environment: Environment, problem: Exception
) -> None:
    environment.problem = problem

    assert await run_probe(environment, exec={"command": ["x"]}) == ProbeResult(Outcome.ERROR, str(problem))


async def test_tcp_probes(environment: Environment) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert await run_probe(environment, tcpSocket={"port": port}) == ProbeResult(Outcome.SUCCESS)
        environment.moved[1] = port
        assert await run_probe(environment, tcpSocket={"port": 1}) == ProbeResult(Outcome.SUCCESS)
    refused = f"dial tcp 127.0.0.1:{port}: connect: connection refused"
    assert await run_probe(environment, tcpSocket={"port": port}) == ProbeResult(Outcome.FAILURE, refused)


@pytest.mark.parametrize(
    ("port", "words"),
    [
        pytest.param("nosuch", "couldn't find port: nosuch", id="no port of this name"),
        pytest.param("0", "invalid port number: 0", id="no port"),
    ],
)
async def test_an_invalid_port_is_an_error(environment: Environment, port: Any, words: str) -> None:
    assert await run_probe(environment, httpGet={"port": port}) == ProbeResult(Outcome.ERROR, words)


@pytest.mark.parametrize(
    ("status", "outcome", "words"),
    [
        (200, Outcome.SUCCESS, ""),
        (204, Outcome.SUCCESS, ""),
        (304, Outcome.WARNING, "Probe terminated redirects, Response body: "),
        (400, Outcome.FAILURE, "HTTP probe failed with statuscode: 400"),
        (503, Outcome.FAILURE, "HTTP probe failed with statuscode: 503"),
    ],
)
async def test_http_probes(environment: Environment, status: int, outcome: Outcome, words: str) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status)

    async with serving(answer) as port:
        assert await run_probe(environment, httpGet={"port": port}) == ProbeResult(outcome, words)


async def test_a_request_has_the_fields_of_the_manifest(environment: Environment) -> None:
    requests: list[web.Request] = []

    async def answer(request: web.Request) -> web.Response:
        requests.append(request)
        return web.Response(text="x" * 100_000)

    headers = [("X-A", "1"), ("X-A", "2"), ("Host", "example.com"), ("User-Agent", "me")]
    named = [{"name": name, "value": value} for name, value in headers]
    async with serving(answer) as port:
        ports = [{"name": "web", "containerPort": port}]
        defaults = await run_probe(environment, ports=ports, httpGet={"port": "web"})
        customized = await run_probe(
            environment, httpGet={"port": port, "path": "ready?a=%20b", "httpHeaders": named}
        )

    assert (defaults, customized) == (ProbeResult(Outcome.SUCCESS),) * 2
    assert (requests[0].raw_path, requests[0].headers["Host"]) == ("/", f"127.0.0.1:{port}")
    assert requests[0].headers["User-Agent"].startswith("kube-probe/")
    assert requests[1].raw_path == "/ready?a=%20b"
    assert requests[1].headers.getall("X-A") == ["1", "2"]
    assert requests[1].headers.getall("Host") == ["example.com"]
    assert requests[1].headers.getall("User-Agent") == ["me"]


async def test_redirects_are_followed_on_the_same_host(environment: Environment) -> None:
    async def answer(request: web.Request) -> web.Response:
        if request.path == "/there":
            return web.Response(status=418)
        return web.Response(status=302, headers={"Location": "/there"})

    async with serving(answer) as port:
        found = await run_probe(environment, httpGet={"port": port})

    assert found == ProbeResult(Outcome.FAILURE, "HTTP probe failed with statuscode: 418")


async def test_a_redirect_to_another_host_is_not_followed(environment: Environment) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": "http://127.0.0.2:1/"}, text="moved")

    async with serving(answer) as port:
        found = await run_probe(environment, httpGet={"port": port})

    assert found == ProbeResult(Outcome.WARNING, "Probe terminated redirects, Response body: moved")


async def test_redirects_in_a_circle_fail(environment: Environment) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": "/"})

    async with serving(answer) as port:
        found = await run_probe(environment, httpGet={"port": port})

    assert found == ProbeResult(
        Outcome.FAILURE, f'Get "http://127.0.0.1:{port}/": stopped after 10 redirects'
    )


async def test_a_refused_http_connection_is_a_failure(environment: Environment) -> None:
    port = free_port()
    found = await run_probe(environment, httpGet={"port": port, "path": "/a"})
    url = f"http://127.0.0.1:{port}/a"

    assert found == ProbeResult(
        Outcome.FAILURE, f'Get "{url}": dial tcp 127.0.0.1:{port}: connect: connection refused'
    )


async def test_an_http_timeout_is_a_failure(environment: Environment) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        found = await run_probe(environment, 0.1, httpGet={"port": silent.getsockname()[1]})

    assert found.outcome is Outcome.FAILURE
    assert found.text.endswith("context deadline exceeded (Client.Timeout exceeded while awaiting headers)")


async def test_a_closed_http_connection_is_a_failure(environment: Environment) -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        found = await run_probe(environment, httpGet={"port": port})

    assert found == ProbeResult(Outcome.FAILURE, f'Get "http://127.0.0.1:{port}/": EOF')


async def hooked(environment: Environment, **hook: Any) -> str:
    return await Handlers(POD, cast("Any", environment)).hook({"name": "main"}, hook)


async def test_hooks(environment: Environment) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=500)

    async with serving(answer) as port:
        assert await hooked(environment, httpGet={"port": port}) == ""
    assert "connection refused" in await hooked(environment, httpGet={"port": port})
    assert await hooked(environment, exec={"command": ["true"]}) == ""
    assert (
        await hooked(environment, exec={"command": ["sh", "-c", "echo no; exit 2"]})
        == "command exited with 2: no\n"
    )
    assert await hooked(environment, tcpSocket={"port": port}) == "invalid handler: tcpSocket"
