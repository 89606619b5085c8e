"""The client trusts the same servers as a Go client, on each Python."""

import base64
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from api.meta import PODS
from controller.kube.client import Client
from controller.kube.connect import Connection, from_kubeconfig, in_cluster
from controller.kube.static_kubeconfig import static_kubeconfig
from rallypoint.testing.controlplane.certificates import Authority

Connect = Callable[[Path, str, Authority], Awaitable[Connection]]


@pytest.fixture(autouse=True, params=["as this Python does", "as Python 3.13 does"])
def defaults(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Python's own contexts verify."""
    if request.param == "as this Python does":
        return
    make = ssl.create_default_context

    def make_strict(*args: Any, **kwargs: Any) -> ssl.SSLContext:
        context = make(*args, **kwargs)
        context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
        return context

    monkeypatch.setattr(ssl, "create_default_context", make_strict)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """One without key identifiers, such as those of some managed clusters."""
    return new_authority(tmp_path, "pki")


def new_authority(folder: Path, name: str) -> Authority:
    (folder / name).mkdir()
    return Authority(folder / name, key_identifiers=False)


@asynccontextmanager
async def serving(authority: Authority) -> AsyncGenerator[str]:
    """An API server with a certificate for ``localhost`` and 127.0.0.1. Its address."""
    pair = authority.issue("server")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pair.certificate, pair.key)

    async def handle(_: web.Request) -> web.Response:
        return web.json_response({})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    try:
        yield f"https://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def as_a_pod(folder: Path, server: str, trusted: Authority) -> Connection:
    host, port = server.removeprefix("https://").split(":")
    (folder / "token").write_text("secret-token")
    (folder / "ca.crt").write_bytes(trusted.pem)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("KUBERNETES_SERVICE_HOST", host)
        environment.setenv("KUBERNETES_SERVICE_PORT", port)
        return in_cluster(folder)


def kubeconfig(folder: Path, cluster: dict[str, Any]) -> str:
    path = folder / "config"
    config = {
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": "secret-token"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(config))
    return str(path)


async def by_authority_file(folder: Path, server: str, trusted: Authority) -> Connection:
    cluster = {"server": server, "certificate-authority": str(trusted.path)}
    return await from_kubeconfig(kubeconfig(folder, cluster))


def inline(folder: Path, server: str, trusted: Authority) -> str:
    encoded = base64.b64encode(trusted.pem).decode()
    return kubeconfig(folder, {"server": server, "certificate-authority-data": encoded})


async def by_authority_data(folder: Path, server: str, trusted: Authority) -> Connection:
    return await from_kubeconfig(inline(folder, server, trusted))


async def by_static_kubeconfig(folder: Path, server: str, trusted: Authority) -> Connection:
    connection = static_kubeconfig(inline(folder, server, trusted))
    assert connection is not None
    return connection


WAYS = pytest.mark.parametrize(
    "connect_to",
    [
        pytest.param(as_a_pod, id="as a pod"),
        pytest.param(by_authority_file, id="by a kubeconfig with an authority file"),
        pytest.param(by_authority_data, id="by a kubeconfig with an authority inline"),
        pytest.param(by_static_kubeconfig, id="by a static kubeconfig"),
    ],
)


async def ask(connection: Connection) -> bytes:
    async with Client(connection) as client:
        return await client.get(PODS, "ns", "a")


@WAYS
async def test_an_authority_without_key_identifiers_is_trusted(
    tmp_path: Path, authority: Authority, connect_to: Connect
) -> None:
    async with serving(authority) as server:
        assert await ask(await connect_to(tmp_path, server, authority)) == b"{}"


@WAYS
async def test_another_authority_is_refused(
    tmp_path: Path, authority: Authority, connect_to: Connect
) -> None:
    async with serving(authority) as server:
        connection = await connect_to(tmp_path, server, new_authority(tmp_path, "other"))

        with pytest.raises(aiohttp.ClientConnectorCertificateError, match="verify failed"):
            await ask(connection)


@WAYS
async def test_a_certificate_for_another_host_is_refused(
    tmp_path: Path, authority: Authority, connect_to: Connect
) -> None:
    async with serving(authority) as server:
        connection = await connect_to(tmp_path, server, authority)

        with pytest.raises(aiohttp.ClientConnectorCertificateError, match="Hostname mismatch"):
            await ask(replace(connection, tls_name="elsewhere.example"))


async def test_an_authority_that_another_has_signed_is_trusted_alone(
    tmp_path: Path, authority: Authority
) -> None:
    """As in a file that holds an intermediate authority and not its root."""
    async with serving(authority) as server:
        authority.pem = signed_by_another(authority.pem)

        assert await ask(await as_a_pod(tmp_path, server, authority)) == b"{}"


def signed_by_another(pem: bytes) -> bytes:
    """The same authority with a certificate that is not signed by itself."""
    own = x509.load_pem_x509_certificate(pem)
    certificate = x509.CertificateBuilder(
        issuer_name=x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "root")]),
        subject_name=own.subject,
        public_key=own.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=own.not_valid_before_utc,
        not_valid_after=own.not_valid_after_utc,
        extensions=list(own.extensions),
    ).sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    return certificate.public_bytes(serialization.Encoding.PEM)
