"""Connections to an API server: a pod's ServiceAccount and kubeconfig files."""

import asyncio
import base64
import contextlib
import os
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Self

import aiohttp
import pytest
import yaml
from aiohttp import web

from api.meta import PODS
from controller.kube.client import Client
from controller.kube.connect import (
    FILE_LIFETIME_SECONDS,
    Connection,
    MountedFile,
    NotConfigured,
    connect,
    from_kubeconfig,
    in_cluster,
)
from rallypoint.testing.controlplane.certificates import Authority


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    (folder := tmp_path / "pki").mkdir()
    return Authority(folder)


@pytest.fixture
def service_account(tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a ServiceAccount, and the environment of a pod."""
    (folder := tmp_path / "serviceaccount").mkdir()
    (folder / "token").write_text("secret-token\n")
    (folder / "ca.crt").write_bytes(authority.pem)
    (folder / "namespace").write_text("training\n")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    return folder


@pytest.mark.parametrize(
    ("host", "server"),
    [
        pytest.param("10.0.0.1", "https://10.0.0.1:6443", id="IPv4"),
        pytest.param("fd00::1", "https://[fd00::1]:6443", id="IPv6"),
    ],
)
def test_in_a_cluster(service_account: Path, monkeypatch: pytest.MonkeyPatch, host: str, server: str) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)

    connection = in_cluster(service_account)

    assert (connection.server, connection.token(), connection.namespace) == (
        server,
        "secret-token",
        "training",
    )
    assert (tls := connection.tls()) is not None
    assert tls.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize("missing", ["token", "environment"])
def test_outside_of_a_cluster(service_account: Path, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    if missing == "token":
        (service_account / "token").unlink()
    else:
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST")

    with pytest.raises(NotConfigured, match="--kubeconfig"):
        in_cluster(service_account)


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        pytest.param("token", " \n", "the token is empty", id="an empty token"),
        pytest.param(
            "ca.crt",
            "",
            "CA certificates is empty",
            id="an empty CA file does not select the system's authorities",
        ),
        pytest.param("ca.crt", "garbage", "does not contain a certificate", id="an invalid CA file"),
        pytest.param("ca.crt", None, "ca.crt", id="a missing CA file"),
    ],
)
def test_an_invalid_service_account_is_an_error(
    service_account: Path, name: str, content: str | None, complaint: str
) -> None:
    path = service_account / name
    path.unlink() if content is None else path.write_text(content)

    with pytest.raises(NotConfigured, match=complaint):
        in_cluster(service_account)


def test_a_ca_file_can_contain_comments(service_account: Path, authority: Authority) -> None:
    (service_account / "ca.crt").write_text("# Főtanúsítvány\n" + authority.pem.decode())

    assert (tls := in_cluster(service_account).tls())
    assert len(tls.get_ca_certs()) == 1


class Mounted:
    """A mounted file, and the time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now = 0.0
        path.write_text("first")
        self.read = MountedFile(path, self.make, clock=lambda: self.now)

    @staticmethod
    def make(text: str) -> list[str]:
        if not text:
            raise ValueError
        return [text]


@pytest.fixture
def mounted(tmp_path: Path) -> Mounted:
    return Mounted(tmp_path / "file")


def test_a_mounted_file_is_read_again_after_a_minute(mounted: Mounted) -> None:
    mounted.path.write_text("second")

    mounted.now = FILE_LIFETIME_SECONDS - 1
    assert mounted.read() == ["first"]
    mounted.now = FILE_LIFETIME_SECONDS
    assert mounted.read() == ["second"]


def test_the_same_content_makes_the_same_object(mounted: Mounted) -> None:
    first = mounted.read()
    mounted.path.write_text("first")
    mounted.now = FILE_LIFETIME_SECONDS

    assert mounted.read() is first


@pytest.mark.parametrize("content", [None, ""], ids=["missing", "invalid"])
def test_the_last_valid_content_counts_until_it_changes(mounted: Mounted, content: str | None) -> None:
    mounted.path.unlink() if content is None else mounted.path.write_text(content)
    mounted.read.expire()
    assert mounted.read() == ["first"]

    mounted.path.write_text("second")
    mounted.now += FILE_LIFETIME_SECONDS
    assert mounted.read() == ["second"]


async def test_a_refused_token_is_read_again_at_once(service_account: Path) -> None:
    connection = in_cluster(service_account)
    assert connection.token() == "secret-token"
    (service_account / "token").write_text("rotated")

    assert connection.renew is not None
    await connection.renew()

    assert connection.token() == "rotated"


def kubeconfig(path: Path, cluster: dict[str, Any], user: dict[str, Any], namespace: str = "") -> str:
    context = {"cluster": "c", "user": "u"} | ({"namespace": namespace} if namespace else {})
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "main",
                "contexts": [
                    {"name": "main", "context": context},
                    {"name": "other", "context": {"cluster": "other", "user": "u"}},
                ],
                "clusters": [
                    {"name": "c", "cluster": cluster},
                    {"name": "other", "cluster": {"server": "http://other:8080"}},
                ],
                "users": [{"name": "u", "user": user}],
            }
        )
    )
    return str(path)


async def test_a_kubeconfig_with_a_token(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", {"server": "http://here:8080/"}, {"token": "secret-token"}, "team")

    connection = await from_kubeconfig(path)

    assert (connection.server, connection.token(), connection.namespace) == (
        "http://here:8080",
        "secret-token",
        "team",
    )
    assert (connection.tls(), connection.proxy) == (None, "")


async def test_another_context(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", {"server": "http://here:8080"}, {"token": "t"})

    assert (await from_kubeconfig(path, "other")).server == "http://other:8080"


async def test_a_kubeconfig_that_names_a_proxy(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", {"server": "http://here:1", "proxy-url": "http://proxy:3128"}, {})

    connection = await from_kubeconfig(path)

    assert (connection.proxy, connection.token()) == ("http://proxy:3128", "")


async def test_a_token_file_is_read_again_with_the_next_login(tmp_path: Path) -> None:
    (token := tmp_path / "token").write_text("first")
    path = kubeconfig(tmp_path / "config", {"server": "http://here:1"}, {"tokenFile": str(token)})
    connection = await from_kubeconfig(path)
    token.write_text("second")
    assert connection.token() == "first"

    assert connection.renew is not None
    await connection.renew()

    assert connection.token() == "second"


@pytest.mark.parametrize(
    ("first", "second", "headers"),
    [
        pytest.param(
            {"username": "me", "password": "a"},
            {"username": "me", "password": "b"},
            (("Authorization", "Basic bWU6Yg=="),),
            id="a password",
        ),
        pytest.param(
            {"token": "t", "as": "jane"},
            {"token": "t", "as": "joe"},
            (("Impersonate-User", "joe"),),
            id="an impersonated user",
        ),
    ],
)
async def test_headers_change_with_the_next_login(
    tmp_path: Path, first: dict[str, Any], second: dict[str, Any], headers: tuple[tuple[str, str], ...]
) -> None:
    connection = await from_kubeconfig(kubeconfig(tmp_path / "config", {"server": "http://here:1"}, first))
    kubeconfig(tmp_path / "config", {"server": "http://here:1"}, second)

    assert connection.renew is not None
    await connection.renew()

    assert connection.headers() == headers


PLUGIN = """
import json, pathlib, sys
count = pathlib.Path(sys.argv[1])
number = int(count.read_text()) + 1
count.write_text(str(number))
if number > 2:
    sys.exit("no more logins")
print(json.dumps({
    "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
    "status": {"token": f"login-{number}"},
}))
"""


@pytest.mark.looptime(False)  # the plugin is a process of its own
async def test_an_exec_plugin_logs_in_and_logs_in_again(tmp_path: Path) -> None:
    (tmp_path / "plugin.py").write_text(PLUGIN)
    (tmp_path / "count").write_text("0")
    command = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": [str(tmp_path / "plugin.py"), str(tmp_path / "count")],
    }
    path = kubeconfig(tmp_path / "config", {"server": "http://here:1"}, {"exec": command})

    connection = await from_kubeconfig(path)
    assert connection.token() == "login-1"
    assert connection.renew is not None
    await connection.renew()
    assert connection.token() == "login-2"
    with pytest.raises(NotConfigured, match="no more logins"):
        await connection.renew()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        pytest.param(None, "no such file", id="missing"),
        pytest.param("", "it is not a kubeconfig", id="empty"),
        pytest.param("a: [", "it is not a kubeconfig: while parsing", id="invalid YAML"),
        pytest.param("\x00", "it is not a kubeconfig: unacceptable character", id="binary data"),
        pytest.param("garbage", "it is not a kubeconfig", id="a string"),
        pytest.param("- a\n- b\n", "it is not a kubeconfig", id="a list"),
        pytest.param("kind: Pod\n", "Expected key current-context", id="another kind"),
        pytest.param(
            "contexts: [{name: a, context: b}]\nclusters: [{name: b}]\ncurrent-context: a",
            "a part of it is malformed",
            id="the context is a string",
        ),
        pytest.param("apiVersion: v1\nkind: Config\n", "kubeconfig", id="no clusters"),
        pytest.param(
            "contexts: [{name: a, context: {cluster: c}}]\nclusters: [{name: c, cluster: {proxy-url: p}}]\ncurrent-context: a",
            "no server",
            id="a cluster without a server",
        ),
        pytest.param(
            "contexts: [{name: a, context: {cluster: c}}]\nclusters: []\ncurrent-context: a",
            "kubeconfig",
            id="a missing cluster",
        ),
        pytest.param(
            "contexts: [{name: a, context: {cluster: c}}]\ncurrent-context: a\n"
            "clusters: [{name: c, cluster: {server: 'https://a', certificate-authority: /nowhere}}]",
            "kubeconfig",
            id="a missing certificate",
        ),
        pytest.param(
            "contexts: [{name: a, context: {cluster: c, user: u}}]\ncurrent-context: a\nusers: [{name: u, user: {token: t}}]\n"
            "clusters: [{name: c, cluster: {server: 'https://a', certificate-authority-data: bm8=}}]",
            "certificates",
            id="an invalid certificate",
        ),
    ],
)
async def test_an_unusable_kubeconfig_is_an_error(tmp_path: Path, text: str | None, complaint: str) -> None:
    path = tmp_path / "config"
    if text is not None:
        path.write_text(text)

    with pytest.raises(NotConfigured, match=complaint) as caught:
        await from_kubeconfig(str(path))
    assert str(path) in str(caught.value)


@asynccontextmanager
async def serving(authority: Authority, port: int = 0) -> AsyncIterator[str]:
    """Run a minimal API server over TLS that returns the client's name; yield its address."""

    async def handle(request: web.Request) -> web.Response:
        peer = request.get_extra_info("peercert") or {}
        names = [value for attributes in peer.get("subject", ()) for _, value in attributes]
        if request.path == "/slow":
            await asyncio.sleep(1)
        return web.json_response({"client": names})

    pair = authority.issue("server")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.path))
    tls.verify_mode = ssl.CERT_OPTIONAL
    tls.load_cert_chain(pair.certificate, pair.key)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
    try:
        yield f"https://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def ask(path: str) -> bytes:
    async with Client(await from_kubeconfig(path)) as client:
        return await client.get(PODS, "ns", "a")


def encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


@pytest.mark.parametrize("inline", [True, False], ids=["in the file", "beside the file"])
async def test_certificates_of_server_and_client(tmp_path: Path, authority: Authority, inline: bool) -> None:
    pair = authority.issue("somebody")
    async with serving(authority) as server:
        if inline:
            cluster = {"server": server, "certificate-authority-data": encoded(authority.path)}
            user = {
                "client-certificate-data": encoded(pair.certificate),
                "client-key-data": encoded(pair.key),
            }
        else:
            cluster = {"server": server, "certificate-authority": str(authority.path)}
            user = {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}

        assert await ask(kubeconfig(tmp_path / "config", cluster, user)) == b'{"client": ["somebody"]}'


@pytest.mark.parametrize(
    ("cluster", "accepted"),
    [
        pytest.param({}, True, id="the name in the address"),
        pytest.param({"tls-server-name": "localhost"}, True, id="another name of the certificate"),
        pytest.param(
            {"tls-server-name": "elsewhere.example"}, False, id="a name that the certificate does not have"
        ),
    ],
)
async def test_the_name_in_the_servers_certificate(
    tmp_path: Path, authority: Authority, cluster: dict[str, str], accepted: bool
) -> None:
    async with serving(authority) as server:
        cluster = {"server": server, "certificate-authority": str(authority.path), **cluster}
        path = kubeconfig(tmp_path / "config", cluster, {})

        if accepted:
            assert await ask(path)
        else:
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await ask(path)


@pytest.mark.parametrize("skip", [True, False], ids=["verification is off", "verification is on"])
async def test_a_server_of_an_unknown_authority(tmp_path: Path, authority: Authority, skip: bool) -> None:
    async with serving(authority) as server:
        path = kubeconfig(tmp_path / "config", {"server": server, "insecure-skip-tls-verify": skip}, {})

        if skip:
            assert await ask(path)
        else:
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await ask(path)


class Rotation:
    """An API server that will be signed by another authority, and a pod that only knows the one that is."""

    def __init__(self, tmp_path: Path, service_account: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("old", "new"):
            (tmp_path / name).mkdir()
        self.old, self.new = Authority(tmp_path / "old"), Authority(tmp_path / "new")
        self.file = service_account / "ca.crt"
        self.file.write_bytes(self.old.pem)
        self._folder = service_account
        self._monkeypatch = monkeypatch

    def connection(self, server: str) -> Connection:
        host, port = server.removeprefix("https://").split(":")
        self._monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
        self._monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
        return in_cluster(self._folder)


@pytest.fixture
def rotation(tmp_path: Path, service_account: Path, monkeypatch: pytest.MonkeyPatch) -> Rotation:
    return Rotation(tmp_path, service_account, monkeypatch)


@asynccontextmanager
async def rotated(rotation: Rotation) -> AsyncIterator[Client]:
    """A client of a server that has come back with a certificate of the new authority."""
    async with AsyncExitStack() as stack:
        async with serving(rotation.old) as server:
            client = await stack.enter_async_context(Client(rotation.connection(server)))
            await client.get(PODS, "ns", "a")
        await stack.enter_async_context(serving(rotation.new, int(server.rsplit(":", 1)[1])))
        yield client


async def test_a_new_authority_is_trusted_at_once(rotation: Rotation) -> None:
    async with rotated(rotation) as client:
        rotation.file.write_bytes(rotation.new.pem)

        answers = await asyncio.gather(*(client.create(PODS, "ns", b"{}") for _ in range(5)))

    assert answers == [b'{"client": []}'] * 5


async def test_a_stream_trusts_a_new_authority_with_its_next_try(rotation: Rotation) -> None:
    async with rotated(rotation) as client:
        rotation.file.write_bytes(rotation.new.pem)

        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            async with client.stream("/x", {}):
                pytest.fail("there is no stream")
        async with client.stream("/x", {}) as stream:
            assert await stream.read() == b'{"client": []}'


async def test_an_authority_that_is_not_mounted_is_not_trusted(rotation: Rotation) -> None:
    async with rotated(rotation) as client:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await client.get(PODS, "ns", "a")


async def test_an_authority_that_is_gone_is_not_trusted_any_more(rotation: Rotation) -> None:
    async with serving(rotation.old) as server:
        connection = rotation.connection(server)
        async with Client(connection) as client:
            await client.get(PODS, "ns", "a")
            rotation.file.write_bytes(rotation.new.pem)
            assert connection.renew is not None
            await connection.renew()

            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await client.get(PODS, "ns", "a")


async def test_live_connections_outlast_a_new_authority(rotation: Rotation) -> None:
    async with serving(rotation.old) as server:
        connection = rotation.connection(server)
        async with Client(connection) as client, client.stream("/slow", {}) as stream:
            rotation.file.write_bytes(rotation.new.pem)
            assert connection.renew is not None
            await connection.renew()

            assert await stream.read() == b'{"client": []}'


async def test_a_kubeconfig_with_a_new_authority(tmp_path: Path, rotation: Rotation) -> None:
    async with serving(rotation.new) as server:
        cluster = {"server": server, "certificate-authority": str(rotation.file)}
        async with Client(await from_kubeconfig(kubeconfig(tmp_path / "config", cluster, {}))) as client:
            rotation.file.write_bytes(rotation.new.pem)

            assert await client.get(PODS, "ns", "a") == b'{"client": []}'


async def headers_for(user: dict[str, Any], path: Path) -> list[tuple[str, str]]:
    """The headers about the user that a server gets from this user's client, in a call and a stream."""
    received = list[tuple[str, str]]()

    async def handle(request: web.Request) -> web.Response:
        received.extend(
            (name, value)
            for name, value in request.headers.items()
            if name.startswith(("Impersonate", "Authorization"))
        )
        return web.json_response({})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    cluster = {"server": f"http://127.0.0.1:{runner.addresses[0][1]}"}
    try:
        async with Client(await from_kubeconfig(kubeconfig(path, cluster, user))) as client:
            await client.create(PODS, "ns", b"{}")
            async with client.stream("/x", {}) as stream:
                await stream.read()
    finally:
        await runner.cleanup()
    return received


@pytest.mark.parametrize(
    ("user", "headers"),
    [
        pytest.param({"token": "t"}, {("Authorization", "Bearer t")}, id="a token"),
        pytest.param(
            {"token": "t", "as": "jane", "as-groups": ["a", "b"]},
            {
                ("Authorization", "Bearer t"),
                ("Impersonate-User", "jane"),
                ("Impersonate-Group", "a"),
                ("Impersonate-Group", "b"),
            },
            id="another user",
        ),
        pytest.param(
            {"username": "me", "password": "sesame"},
            {("Authorization", "Basic bWU6c2VzYW1l")},
            id="a user name and a password",
        ),
    ],
)
async def test_each_request_says_who_the_user_is(
    tmp_path: Path, user: dict[str, Any], headers: set[tuple[str, str]]
) -> None:
    received = await headers_for(user, tmp_path / "config")

    assert sorted(received) == sorted([*headers, *headers])


@pytest.mark.parametrize(
    ("cluster", "user", "complaint"),
    [
        pytest.param({}, {"as-groups": ["a"]}, "need the field as", id="groups without a user"),
        pytest.param({"proxy-url": "socks5://p:1"}, {}, "only http:// and https://", id="a SOCKS proxy"),
    ],
)
async def test_what_cannot_be_sent_is_refused(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], complaint: str
) -> None:
    path = kubeconfig(tmp_path / "config", {"server": "https://a", **cluster}, {"token": "t", **user})

    with pytest.raises(NotConfigured, match=complaint):
        await from_kubeconfig(path)


async def test_the_proxy_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:1")
    monkeypatch.setenv("NO_PROXY", "10.0.0.0/8")
    far = kubeconfig(tmp_path / "far", {"server": "https://a"}, {})
    near = kubeconfig(tmp_path / "near", {"server": "https://10.1.2.3"}, {})

    assert ((await from_kubeconfig(far)).proxy, (await from_kubeconfig(near)).proxy) == ("http://proxy:1", "")


async def test_another_address_of_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    path = kubeconfig(tmp_path / "config", {"server": "https://a"}, {"token": "t"})
    named, bare = await connect(path, "http://b:1/"), await connect("", "http://b:1")

    assert (named.server, named.token(), named.tls()) == ("http://b:1", "t", None)
    assert (bare.server, bare.token(), bare.tls()) == ("http://b:1", "", None)


@pytest.mark.looptime(False)  # a tunnel of real bytes
async def test_a_proxy_cannot_read_the_traffic(tmp_path: Path, authority: Authority) -> None:
    async with serving(authority) as server, Tunnel() as proxy:
        cluster = {"server": server, "certificate-authority": str(authority.path), "proxy-url": proxy.url}
        path = kubeconfig(tmp_path / "config", cluster, {"token": "secret-token"})

        assert await ask(path) == b'{"client": []}'

    assert proxy.request.startswith(b"CONNECT " + server.removeprefix("https://").encode())
    assert b"secret" not in proxy.request


class Tunnel:
    """A proxy that connects two sides and records the request."""

    def __init__(self) -> None:
        self.request = b""
        self.url = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.request = await reader.readuntil(b"\r\n\r\n")
        host, port = self.request.split()[1].decode().split(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(_pour(reader, far_writer), _pour(far_reader, writer))


async def _pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


@pytest.mark.parametrize(
    ("flag", "environment", "server"),
    [
        pytest.param("flag", "", "http://flag:1", id="a file named by flag"),
        pytest.param("", "environment", "http://environment:1", id="a file named by $KUBECONFIG"),
        pytest.param("flag", "environment", "http://flag:1", id="the flag wins"),
        pytest.param("", "nowhere{}environment", "http://environment:1", id="a list of files"),
    ],
)
async def test_the_flag_the_environment_and_the_home_folder_name_the_kubeconfig(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flag: str, environment: str, server: str
) -> None:
    for name in ("flag", "environment"):
        kubeconfig(tmp_path / name, {"server": f"http://{name}:1"}, {})
    paths = [str(tmp_path / name) for name in environment.split("{}") if name]
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(paths))

    assert (await connect(str(tmp_path / flag) if flag else "")).server == server


async def test_no_file_and_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)

    with pytest.raises(NotConfigured, match="no cluster: no kubeconfig is given"):
        await connect()


async def test_no_secret_is_shown(tmp_path: Path, service_account: Path) -> None:
    cluster = {"server": "http://here:1", "proxy-url": "http://me:secret-password@proxy:1"}
    file = await from_kubeconfig(kubeconfig(tmp_path / "config", cluster, {"token": "secret-token"}))
    pod = in_cluster(service_account)
    by_hand = Connection("http://here", token=lambda: "secret-token")
    async with Client(file) as client:
        shown = [repr(value) + str(value) for value in (file, pod, by_hand, client, pod.token)]

    assert not [text for text in shown if "secret" in text]
    assert pod.token() == "secret-token"
