"""``rallypoint port-forward``: which pod and ports it chooses, and connections to pods of a local cluster."""

import argparse
import asyncio
import errno
import re
import signal
import socket
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from typing_extensions import override

from api import labels
from api.meta import PODS
from controller.kube.errors import ApiError
from rallypoint.cli import main, port_forward
from rallypoint.cli.cluster import CommandError
from rallypoint.cli.port_forward import LINGER_SECONDS, PortPair, choose, port_pair
from rallypoint.local.node.sandbox.selection import IsolationMode
from tests.support.local_harness import LocalHarness, phase, start_local_harness
from tests.support.port_forward import Forwarding, forwarding, free_port

MIB = 1024 * 1024
WEB = """
import socket, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
class Server(ThreadingHTTPServer):
    request_queue_size = 100
    address_family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
with Server((sys.argv[1], int(sys.argv[2])), Echo) as server:
    print("listens", flush=True)
    server.serve_forever()
"""
"""Listens where TensorBoard and Jupyter do by default, if it is given localhost."""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("6006", PortPair(None, 6006), id="the same port"),
        pytest.param("8080:6006", PortPair(8080, 6006), id="another port"),
        pytest.param(":6006", PortPair(0, 6006), id="any free port"),
        pytest.param("0:6006", PortPair(0, 6006), id="any free port, as a number"),
        pytest.param("8080:http", PortPair(8080, "http"), id="a name"),
        pytest.param("http", PortPair(None, "http"), id="a name alone"),
    ],
)
def test_ports_have_the_forms_of_kubectl(text: str, expected: PortPair) -> None:
    assert port_pair(text) == expected


@pytest.mark.parametrize("text", ["", ":", "0", "65536", "1:0", "x:1", "-1:1", "1:2:3", "8080:"])
def test_other_forms_of_ports_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=re.escape(f"{text!r} is not [LOCAL:]PORT")):
        port_pair(text)


def pod(name: str, *ports: int, phase: str = "Running", leads: bool = False) -> dict[str, Any]:
    declared = [{"name": f"port{port}", "containerPort": port} for port in ports]
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {labels.JOB_ROLE: "master"} if leads else {},
        },
        "spec": {"containers": [{"name": "main"}, {"name": "side", "ports": declared}]},
        "status": {"phase": phase},
    }


@pytest.mark.parametrize(
    ("pods", "replica", "port", "expected"),
    [
        pytest.param([pod("j-worker-0"), pod("j-worker-1", 6006)], "", 6006, "j-worker-1", id="it declares"),
        pytest.param(
            [pod("j-worker-0"), pod("j-worker-1", 6006)],
            "",
            "port6006",
            "j-worker-1",
            id="it declares the name",
        ),
        pytest.param(
            [pod("j-chief-0"), pod("j-worker-0", leads=True)], "", 6006, "j-worker-0", id="it leads"
        ),
        pytest.param([pod("j-worker-1"), pod("j-worker-0")], "", 6006, "j-worker-0", id="the first"),
        pytest.param(
            [pod("j-worker-0", 6006, phase="Pending"), pod("j-worker-1", 6006)],
            "",
            6006,
            "j-worker-1",
            id="it runs",
        ),
        pytest.param(
            [pod("j-worker-0", 6006), pod("j-worker-10"), pod("j-worker-1")],
            "worker-1",
            6006,
            "j-worker-1",
            id="a replica",
        ),
        pytest.param(
            [pod("j-worker-0"), pod("j-launcher-x7k2p")], "launcher", 6006, "j-launcher-x7k2p", id="a role"
        ),
    ],
)
def test_the_pod_of_a_job(pods: list[dict[str, Any]], replica: str, port: int | str, expected: str) -> None:
    assert choose("pytorchjob/j", pods, replica, [PortPair(0, port)])["metadata"]["name"] == expected


@pytest.mark.parametrize(
    ("pods", "replica", "message"),
    [
        pytest.param(
            [pod("p", phase="Pending")],
            "",
            "unable to forward port because pod is not running. Current status=Pending",
            id="a pod that waits",
        ),
        pytest.param(
            [pod("j-worker-0", phase="Failed"), pod("j-worker-1", phase="Pending")],
            "",
            "unable to forward port because no pod of pytorchjob/j is running",
            id="a job that does not run",
        ),
        pytest.param(
            [pod("j-worker-0"), pod("j-worker-1")],
            "worker-2",
            "pytorchjob/j has no replica worker-2: its pods are j-worker-0, j-worker-1",
            id="no such replica",
        ),
    ],
)
def test_there_is_no_pod_to_forward_to(pods: list[dict[str, Any]], replica: str, message: str) -> None:
    with pytest.raises(CommandError) as raised:
        choose("pytorchjob/j", pods, replica, [PortPair(0, 6006)])
    assert str(raised.value) == message


class PodSocket:
    """The WebSocket to a pod, with the messages that the pod sends; it ends ``silent_seconds`` later."""

    def __init__(self, *messages: bytes, silent_seconds: float = 0.0) -> None:
        self._messages = messages
        self._silent_seconds = silent_seconds
        self.sent = b""

    async def send_bytes(self, data: bytes) -> None:
        self.sent += data[1:]

    async def __aiter__(self) -> AsyncIterator[aiohttp.WSMessage]:
        for data in self._messages:
            yield aiohttp.WSMessage(aiohttp.WSMsgType.BINARY, data, None)
        await asyncio.sleep(self._silent_seconds)


class LocalWriter:
    """A local client that takes ``pause_seconds`` for each chunk, or has an error."""

    def __init__(self, error: OSError | None = None, pause_seconds: float = 0.0) -> None:
        self._error = error
        self._pause_seconds = pause_seconds
        self.written = b""
        self.is_closed = False

    def get_extra_info(self, name: str) -> tuple[str, int]:
        return "127.0.0.1", 8080

    def write(self, data: bytes) -> None:
        self.written += data

    async def drain(self) -> None:
        await asyncio.sleep(self._pause_seconds)
        if self._error:
            raise self._error

    def close(self) -> None:
        self.is_closed = True


class PodClient:
    def __init__(self, pod: PodSocket | BaseException) -> None:
        self._pod = pod

    @asynccontextmanager
    async def socket(self, path: str, protocols: list[str]) -> AsyncGenerator[PodSocket]:
        if isinstance(self._pod, BaseException):
            raise self._pod
        yield self._pod


def local_reader(*chunks: bytes, error: OSError | None = None) -> asyncio.StreamReader:
    """Return what a local client sends before it ends its input, or before an error."""
    reader = asyncio.StreamReader()
    for chunk in chunks:
        reader.feed_data(chunk)
    if error:
        reader.set_exception(error)
    else:
        reader.feed_eof()
    return reader


async def serve(pod: PodSocket | BaseException, reader: asyncio.StreamReader, writer: LocalWriter) -> None:
    client: Any = PodClient(pod)
    local: Any = writer
    await port_forward._serve(client, "/path", 6006, reader, local)
    assert writer.is_closed


HEADS = (b"\0\x17\x76", b"\1\x17\x76")
"""The first message of each channel, with the port."""


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(ConnectionResetError(), id="reset"),
        pytest.param(TimeoutError(errno.ETIMEDOUT, "Connection timed out"), id="vanished"),
        pytest.param(OSError(errno.EHOSTUNREACH, "No route to host"), id="unreachable"),
    ],
)
async def test_an_error_of_a_local_client_ends_its_connection_alone(error: OSError) -> None:
    await serve(PodSocket(*HEADS, b"\0answer"), local_reader(error=error), LocalWriter())
    await serve(PodSocket(*HEADS, b"\0answer"), local_reader(b"x"), LocalWriter(error))


async def test_an_error_of_the_pods_connection_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    class Broken(PodSocket):
        @override
        async def __aiter__(self) -> AsyncIterator[aiohttp.WSMessage]:
            raise OSError(errno.EHOSTUNREACH, "No route to host")
            yield

    await serve(Broken(), local_reader(b"x"), LocalWriter())
    await serve(aiohttp.ClientPayloadError("cut off"), local_reader(b"x"), LocalWriter())

    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("an error occurred forwarding 8080 -> 6006: ")
    assert "No route to host" in first
    assert "cut off" in second


async def test_a_local_client_that_reads_slowly_gets_all_data(capsys: pytest.CaptureFixture[str]) -> None:
    writer = LocalWriter(pause_seconds=LINGER_SECONDS + 1)
    await serve(PodSocket(*HEADS, b"\0one", b"\0two"), local_reader(b"x"), writer)

    assert writer.written == b"onetwo"
    assert capsys.readouterr().err == ""


async def test_the_input_may_end_while_the_local_client_reads_slowly() -> None:
    reader, writer = asyncio.StreamReader(), LocalWriter(pause_seconds=LINGER_SECONDS + 1)
    asyncio.get_running_loop().call_later(0.5, reader.feed_eof)
    await serve(PodSocket(*HEADS, b"\0one", b"\0two"), reader, writer)

    assert writer.written == b"onetwo"


@pytest.mark.parametrize("messages", [HEADS, (*HEADS, b"\0the first part")])
async def test_an_answer_that_comes_too_late_is_an_error(
    messages: tuple[bytes, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    pod_socket = PodSocket(*messages, silent_seconds=LINGER_SECONDS + 1)
    await serve(pod_socket, local_reader(b"request"), LocalWriter())

    assert capsys.readouterr().err == (
        "an error occurred forwarding 8080 -> 6006: closed: the pod sent nothing for 10 s after the end of the input\n"
    )


async def test_the_end_of_a_kept_connection_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    """As HTTP clients do it: the request, its answer, later the end."""
    reader = asyncio.StreamReader()
    reader.feed_data(b"request")
    asyncio.get_running_loop().call_later(3, reader.feed_eof)
    pod_socket = PodSocket(*HEADS, b"\0answer", silent_seconds=4 * LINGER_SECONDS)
    await serve(pod_socket, reader, LocalWriter())

    assert asyncio.get_running_loop().time() < 2 * LINGER_SECONDS
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("data", [b"", b"\2text", b"\xffx"])
async def test_messages_without_a_known_channel_are_ignored(data: bytes) -> None:
    writer = LocalWriter()
    await serve(PodSocket(*HEADS, data, b"\0answer"), local_reader(b"x"), writer)

    assert writer.written == b"answer"


async def test_any_free_port_is_the_same_at_all_addresses(capsys: pytest.CaptureFixture[str]) -> None:
    class Client:
        async def request(self, method: str, path: str) -> None:
            raise ApiError(400, "BadRequest", "Upgrade request required")

    class Cluster:
        client = Client()

        async def pods(self, arguments: list[str], selector: str) -> list[dict[str, Any]]:
            return [pod("j", 6006)]

    args = argparse.Namespace(
        what="j", replica="", ports=[PortPair(0, 6006)], address=["127.0.0.1", "127.0.0.2"]
    )
    cluster: Any = Cluster()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await port_forward._port_forward(args, cluster)

    first, second = re.findall(r"from (\S+):(\d+) -> 6006", capsys.readouterr().out)
    assert (first[0], second[0]) == ("127.0.0.1", "127.0.0.2")
    assert first[1] == second[1]


class Bench:
    """A local cluster with a kubeconfig."""

    def __init__(self, harness: LocalHarness, kubeconfig: Path) -> None:
        self.harness = harness
        self.kubeconfig = kubeconfig

    async def web(self, name: str, host: str, port: int) -> None:
        await self.harness.pod(name, sys.executable, "-c", WEB, host, str(port))
        await self.harness.wait_for_log(name, "listens")

    def forward(self, name: str, port: int) -> AbstractAsyncContextManager[Forwarding]:
        return forwarding(self.kubeconfig, name, port)


@pytest.fixture
async def bench(tmp_path: Path, isolation: IsolationMode) -> AsyncIterator[Bench]:
    async with start_local_harness(tmp_path / "site", isolation) as harness:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(dict(harness.kubeconfig)))
        yield Bench(harness, kubeconfig)


async def post(url: str, body: bytes) -> bytes:
    async with aiohttp.ClientSession() as session, session.post(url, data=body) as response:
        return await response.read()


@pytest.mark.looptime(False)
@pytest.mark.parametrize(
    "host", ["127.0.0.1", "0.0.0.0", *(["::1"] if Path("/proc/net/if_inet6").exists() else [])]
)
async def test_a_web_server_in_a_pod_is_reached(bench: Bench, host: str) -> None:
    port = free_port()
    await bench.web("web", host, port)
    async with bench.forward("web", port) as forward:
        bodies = [bytes([number]) * MIB for number in range(40)]
        assert await asyncio.gather(*(post(forward.url, body) for body in bodies)) == bodies

        forward.process.send_signal(signal.SIGINT)
        async with asyncio.timeout(60):
            assert await forward.process.wait() == 130
        assert await forward.error() == ""


@pytest.mark.looptime(False)
async def test_a_port_without_a_program_is_an_error_of_its_connection(bench: Bench) -> None:
    """Another pod listens on it, which with loopback would answer at the same address."""
    port = free_port()
    await bench.web("other", "0.0.0.0", port)
    await bench.harness.pod("idle", "sleep", "1000")
    idle = await bench.harness.wait_for("idle", lambda pod: phase(pod) == "Running")
    async with bench.forward("idle", port) as forward:
        for _ in range(2):
            with pytest.raises(aiohttp.ClientError):
                await post(forward.url, b"x")
            assert await forward.error() == (
                f"an error occurred forwarding {forward.local_port} -> {port}: error forwarding port {port} to pod idle, uid "
                f"{idle['metadata']['uid']}: connection refused: no program in the pod listens on this port"
            )


@pytest.mark.looptime(False)
async def test_a_pod_may_be_replaced(bench: Bench) -> None:
    port = free_port()
    await bench.web("web", "localhost", port)
    async with bench.forward("web", port) as forward:
        assert await post(forward.url, b"one") == b"one"
        await bench.harness.client.delete(PODS, "default", "web", grace_period_seconds=0)
        await bench.harness.wait_for_deletion("web")
        with pytest.raises(aiohttp.ClientError):
            await post(forward.url, b"none")
        assert 'pods "web" not found' in await forward.error()

        await bench.web("web", "localhost", port)
        assert await post(forward.url, b"two") == b"two"


@pytest.mark.looptime(False)
async def test_errors_at_the_start(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async with start_local_harness(tmp_path / "site", "loopback") as harness:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(dict(harness.kubeconfig)))
        await harness.pod("runs", "sleep", "1000")
        await harness.wait_for("runs", lambda pod: phase(pod) == "Running")
        await harness.pod("waits", "true", spec={"nodeSelector": {"no": "node"}})
        with socket.create_server(("127.0.0.1", 0)) as taken:
            used = taken.getsockname()[1]
            found = []
            for words in (["none", "1"], ["waits", "1"], ["runs", "http"], ["runs", f"{used}:1"]):
                command = ["port-forward", "--kubeconfig", str(kubeconfig), *words]
                assert await asyncio.to_thread(main, command) == 1
                found.append(capfd.readouterr().err)

    assert found[:3] == [
        'Error from server (NotFound): pods "none" not found\n',
        "error: unable to forward port because pod is not running. Current status=Pending\n",
        "error: pod runs does not have a named port 'http'\n",
    ]
    assert found[3].startswith(f"error: unable to listen on port {used}: ")
    assert "address already in use" in found[3]
