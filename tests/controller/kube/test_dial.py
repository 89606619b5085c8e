"""Connections over real sockets: addresses, proxies and TLS, on each event loop that the commands use."""

import asyncio
import base64
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvloop
from yarl import URL

from controller.kube import errors
from controller.kube.dial import Dialer, probing
from controller.kube.http1 import PIECE_BYTES, Request
from controller.kube.pool import ConnectionPool
from controller.kube.tls import client_context
from rallypoint.testing.controlplane.certificates import Authority

Loop = Callable[[Coroutine[Any, Any, None]], None]
Handle = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

FINE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
GET = Request(b"GET / HTTP/1.1\r\n\r\n")


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Loop:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    (folder := tmp_path / "pki").mkdir()
    return Authority(folder)


@asynccontextmanager
async def listening(handle: Handle, tls: ssl.SSLContext | None = None) -> AsyncGenerator[URL]:
    """Serve connections on loopback; a handler's connection is closed when it returns."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(task := asyncio.current_task())
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                await handle(reader, writer)
        finally:
            tasks.discard(task)
            writer.transport.abort()

    tasks = set[asyncio.Task[Any] | None]()
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        port = server.sockets[0].getsockname()[1]
        yield URL(f"http{'s' if tls else ''}://127.0.0.1:{port}")
    finally:
        server.close()
        for task in [*tasks]:
            if task:
                task.cancel()
        await asyncio.gather(*filter(None, tasks), return_exceptions=True)


async def fine(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer requests without a body."""
    while True:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(FINE)


class Proxy:
    """A proxy with tunnels, which keeps the heads of the requests for them."""

    def __init__(self, answer: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n") -> None:
        self.answer = answer
        self.heads: list[bytes] = []

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(self.answer)
        await writer.drain()
        if b" 200 " not in self.answer:
            return
        host, port = self.heads[-1].split()[1].decode().split(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_pour(reader, far_writer))
                tasks.create_task(_pour(far_reader, writer))
        finally:
            far_writer.transport.abort()


async def _pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()


def serving(authority: Authority, *, needs_client: bool = False) -> ssl.SSLContext:
    pair = authority.issue("server")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.path))
    tls.verify_mode = ssl.CERT_REQUIRED if needs_client else ssl.CERT_NONE
    tls.load_cert_chain(pair.certificate, pair.key)
    return tls


@asynccontextmanager
async def pooled(server: URL, **options: Any) -> AsyncGenerator[ConnectionPool]:
    pool = ConnectionPool(Dialer(server, **options).dial, 4)
    try:
        yield pool
    finally:
        await pool.close()


@pytest.mark.parametrize("through", ["nothing", "a proxy", "a proxy with TLS"])
def test_a_server_with_tls(run: Loop, authority: Authority, through: str) -> None:
    tls = client_context(cafile=str(authority.path))
    proxy = Proxy()

    async def main() -> None:
        async with (
            listening(fine, serving(authority)) as server,
            listening(proxy.handle, serving(authority) if through == "a proxy with TLS" else None) as address,
        ):
            own = address.with_user("me").with_password("sesame")
            async with pooled(server, proxy=None if through == "nothing" else own) as pool:
                for _ in range(3):
                    assert (await pool.send(GET, tls)).body == b"{}"
            heads = [
                f"CONNECT {server.authority} HTTP/1.1\r\nHost: {server.authority}\r\n"
                f"Proxy-Authorization: Basic {base64.b64encode(b'me:sesame').decode()}\r\n\r\n".encode()
            ]
            assert proxy.heads == ([] if through == "nothing" else heads)

    run(main())


def test_a_server_without_tls(run: Loop) -> None:
    async def main() -> None:
        async with listening(fine) as server, pooled(server) as pool:
            for _ in range(3):
                assert (await pool.send(GET)).body == b"{}"

    run(main())


def test_a_large_body_over_tls_and_an_answer_before_its_end(run: Loop, authority: Authority) -> None:
    tls = client_context(cafile=str(authority.path))
    body = bytes(range(256)) * (PIECE_BYTES // 32)
    received = list[bytes]()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while b"/early" not in await reader.readuntil(b"\r\n\r\n"):
            received.append(await reader.readexactly(len(body)))
            writer.write(FINE)
        writer.write(FINE)
        await asyncio.Event().wait()

    async def main() -> None:
        async with listening(handle, serving(authority)) as server, pooled(server) as pool:
            for path in (b"/", b"/early"):
                head = b"POST %b HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (path, len(body))
                assert (await pool.send(Request(head, body), tls)).body == b"{}"

    run(main())
    assert received == [body]


def test_a_canceled_request_closes_its_connection(run: Loop, authority: Authority) -> None:
    tls = client_context(cafile=str(authority.path))

    async def main() -> None:
        read, ended = asyncio.Event(), asyncio.Event()

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            read.set()
            with suppress(OSError):
                await reader.read()
            ended.set()

        async with listening(handle, serving(authority)) as server, pooled(server) as pool:
            task = asyncio.create_task(pool.send(GET, tls))
            await read.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await ended.wait()

    run(main())


def test_a_missing_client_certificate(run: Loop, authority: Authority) -> None:
    """With TLS 1.3 the server refuses it only after the handshake."""
    pair = authority.issue("client")
    bare, own = (client_context(cafile=str(authority.path)) for _ in range(2))
    own.load_cert_chain(pair.certificate, pair.key)

    async def main() -> None:
        async with listening(fine, serving(authority, needs_client=True)) as server, pooled(server) as pool:
            with pytest.raises(aiohttp.ClientConnectionError):
                await pool.send(GET, bare)
            assert (await pool.send(GET, own)).body == b"{}"

    run(main())


@pytest.mark.parametrize(
    "through", [pytest.param(False, id="directly"), pytest.param(True, id="through a proxy")]
)
def test_a_certificate_that_is_not_trusted(
    run: Loop, authority: Authority, tmp_path: Path, through: bool
) -> None:
    (folder := tmp_path / "other").mkdir()
    tls = client_context(cafile=str(Authority(folder).path))

    async def main() -> None:
        async with listening(fine, serving(authority)) as server, listening(Proxy().handle) as proxy:
            async with pooled(server, proxy=proxy if through else None) as pool:
                with pytest.raises(aiohttp.ClientConnectorCertificateError) as caught:
                    await pool.send(GET, tls)
            assert f"the certificate of {server.authority} is not trusted" in errors.describe(caught.value)

    run(main())


def test_the_system_trusts_no_unknown_authority_by_default(run: Loop, authority: Authority) -> None:
    async def main() -> None:
        async with listening(fine, serving(authority)) as server, pooled(server) as pool:
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await pool.send(GET)

    run(main())


def test_a_server_that_does_not_speak_tls(run: Loop, authority: Authority) -> None:
    tls = client_context(cafile=str(authority.path))

    async def banner(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
        await reader.read()

    async def main() -> None:
        async with listening(banner) as server, pooled(server.with_scheme("https")) as pool:
            with pytest.raises(aiohttp.ClientConnectorSSLError) as caught:
                await pool.send(GET, tls)
            assert f"no TLS connection to {server.authority}" in errors.describe(caught.value)

    run(main())


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        pytest.param(
            b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 5\r\n\r\nlogin",
            aiohttp.ClientHttpProxyError,
            "the proxy refuses to connect to the server: 407 Proxy Authentication Required",
            id="a password that it does not accept",
        ),
        pytest.param(
            b"HTTP/1.1 599 Odd\r\n\r\n",
            aiohttp.ClientHttpProxyError,
            "the proxy refuses to connect to the server: 599",
            id="an unknown status",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\n\r\nwelcome",
            aiohttp.ClientConnectorError,
            "the proxy closed the tunnel",
            id="bytes before those of the server",
        ),
        pytest.param(b"220 smtp", aiohttp.ClientPayloadError, "not valid HTTP", id="no proxy at all"),
        pytest.param(b"", aiohttp.ServerDisconnectedError, "disconnected", id="nothing"),
    ],
)
def test_a_proxy_that_opens_no_tunnel(
    run: Loop, authority: Authority, answer: bytes, error: type[Exception], text: str
) -> None:
    tls = client_context(cafile=str(authority.path))

    async def main() -> None:
        async with listening(fine) as server, listening(Proxy(answer).handle) as proxy:
            own = proxy.with_user("me").with_password("sesame")
            async with pooled(server.with_scheme("https"), proxy=own) as pool:
                with pytest.raises(error) as caught:
                    await pool.send(GET, tls)
        assert text in errors.describe(caught.value)
        assert "sesame" not in f"{caught.value!r} {caught.value}"

    run(main())


def test_nobody_listens(run: Loop) -> None:
    async def main() -> None:
        async with listening(fine) as gone:
            pass
        for options in ({"server": gone}, {"server": URL("http://a.invalid"), "proxy": gone}):
            async with pooled(**options) as pool:
                with pytest.raises(aiohttp.ClientConnectorError) as caught:
                    await pool.send(GET)
            whom = "the proxy " if "proxy" in options else ""
            assert errors.describe(caught.value) == (
                f"cannot connect to {whom}127.0.0.1:{gone.port}: Connection refused"
            )

    run(main())


def test_a_name_with_several_addresses_and_one_without(run: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with listening(fine) as server:

            async def addresses(host: str, port: int, **_: Any) -> list[Any]:
                if host != "api.example":
                    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
                # Nobody listens on the first one.
                hosts = ["127.0.0.2", "127.0.0.1"]
                return [
                    (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))
                    for host in hosts
                ]

            monkeypatch.setattr("controller.kube.dial.resolve", addresses)
            async with pooled(server.with_host("api.example")) as pool:
                assert (await pool.send(GET)).body == b"{}"
            async with pooled(server.with_host("nothing.example")) as pool:
                with pytest.raises(aiohttp.ClientConnectorDNSError) as caught:
                    await pool.send(GET)
            assert errors.describe(caught.value).endswith("Name or service not known")

    run(main())


async def test_the_kernel_probes_idle_connections() -> None:
    made = probing((socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", 1)))
    with made:
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        if hasattr(socket, "TCP_KEEPIDLE"):
            assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 15
