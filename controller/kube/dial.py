"""Opens connections to an API server: TCP, a tunnel through an HTTP proxy, TLS."""

import asyncio
import base64
import socket
import ssl
from http import HTTPStatus
from typing import Any, NamedTuple, cast

import aiohappyeyeballs
import aiohttp
from aiohttp.client_reqrep import ConnectionKey
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from controller.kube.http1 import HttpConnection, Request
from controller.kube.tls import client_context

NEXT_ADDRESS_SECONDS = 0.25
"""The delay after which the next address of a name is tried beside those before it. Source: RFC 8305."""

_PROBES = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}
"""With these TCP options the kernel closes a connection within 30 s after the peer disappeared; otherwise each idle connection in the
pool would cost one more call. Options that the system lacks are skipped. The last one is in milliseconds.
"""


def probing(address: tuple[Any, ...]) -> socket.socket:
    """Return a socket for an address whose connection the kernel probes."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _PROBES.items():
        if option := getattr(socket, name, None):
            made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made


def basic(url: URL) -> str:
    """Return the value of the header for the user name and the password in a URL; empty if it has none."""
    if not url.user:
        return ""
    return "Basic " + base64.b64encode(f"{url.user}:{url.password or ''}".encode()).decode()


class Dialer:
    """Opens connections to one server, through ``proxy`` if there is one.

    ``tls_name`` is the host name in the server's certificate, if it differs from the one in its address.
    """

    def __init__(self, server: URL, *, proxy: URL | None = None, tls_name: str = "") -> None:
        self._server = server
        self._proxy = proxy
        self._tls_name = tls_name or _host(server)
        self._default_tls: ssl.SSLContext | None = None

    async def dial(self, tls: ssl.SSLContext | None) -> HttpConnection:
        """Open a connection. Without ``tls``, servers of ``https`` must have a certificate that the system trusts.

        Raises:
            aiohttp.ClientConnectorError: there is no connection; its subclasses tell names, proxies, TLS and certificates apart.
            aiohttp.ClientHttpProxyError: the proxy refuses to connect to the server.
        """
        is_tls, proxy = self._server.scheme == "https", self._proxy
        if tls is None and (is_tls or (proxy and proxy.scheme == "https")):
            tls = self._default_tls = self._default_tls or await asyncio.to_thread(client_context)
        if proxy is None:
            return await _open(_Peer(self._server, tls if is_tls else None, self._tls_name))
        connection = await _open(
            _Peer(proxy, tls if proxy.scheme == "https" else None, _host(proxy), is_proxy=True)
        )
        if not is_tls:
            return connection
        try:
            await self._connect(connection, proxy)
            return await _start_tls(connection, _Peer(self._server, tls, self._tls_name))
        except BaseException:
            connection.abort()
            raise

    async def _connect(self, connection: HttpConnection, proxy: URL) -> None:
        target = f"{self._server.host_subcomponent}:{self._server.port}"
        lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
        if authorization := basic(proxy):
            lines.append(f"Proxy-Authorization: {authorization}")
        head = "\r\n".join([*lines, "", ""]).encode()
        status, _, _ = await connection.send(Request(head, is_connect=True))
        if not 200 <= status < 300:
            # Without the headers of the request, which contain the password.
            info = aiohttp.RequestInfo(
                self._server, "CONNECT", CIMultiDictProxy(CIMultiDict[str]()), self._server
            )
            raise aiohttp.ClientHttpProxyError(info, (), status=status, message=_phrase(status))


class _Peer(NamedTuple):
    """The other side of a TCP connection."""

    url: URL
    tls: ssl.SSLContext | None
    tls_name: str
    is_proxy: bool = False

    def error(self, cause: OSError) -> aiohttp.ClientConnectorError:
        key = ConnectionKey(
            self.url.raw_host or "", self.url.port, self.tls is not None, self.tls or False, None, None, None
        )
        if isinstance(cause, ssl.SSLCertVerificationError):
            return aiohttp.ClientConnectorCertificateError(key, cause)
        if isinstance(cause, ssl.SSLError):
            return aiohttp.ClientConnectorSSLError(key, cause)
        if self.is_proxy:
            return aiohttp.ClientProxyConnectionError(key, cause)
        if isinstance(cause, socket.gaierror):
            return aiohttp.ClientConnectorDNSError(key, cause)
        return aiohttp.ClientConnectorError(key, cause)


def _host(url: URL) -> str:
    """Return the host of a URL as certificates name it."""
    return (url.raw_host or "").rstrip(".")


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


async def _open(peer: _Peer) -> HttpConnection:
    loop = asyncio.get_running_loop()
    try:
        addresses = await resolve(peer.url.raw_host or "", peer.url.port or 0)
        connected = await aiohappyeyeballs.start_connection(
            addresses, happy_eyeballs_delay=NEXT_ADDRESS_SECONDS, socket_factory=probing
        )
        _, connection = await loop.create_connection(
            HttpConnection,
            sock=connected,
            ssl=peer.tls,
            server_hostname=peer.tls_name if peer.tls else None,
        )
    except OSError as error:
        raise peer.error(error) from error
    return connection


async def _start_tls(tunnel: HttpConnection, peer: _Peer) -> HttpConnection:
    """Return the connection to the server at the other end of a tunnel."""
    connection = HttpConnection()
    try:
        if not (tunnel.is_usable and tunnel.transport and peer.tls):
            raise ConnectionResetError("the proxy closed the tunnel")
        transport = await asyncio.get_running_loop().start_tls(
            tunnel.transport, connection, peer.tls, server_hostname=peer.tls_name
        )
    except OSError as error:
        raise peer.error(error) from error
    assert transport is not None
    connection.connection_made(transport)
    return connection


async def resolve(host: str, port: int) -> list[Any]:
    """Return what ``getaddrinfo`` returns; for an IP address without the detour through a thread."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return [(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]
    return cast(
        list[Any],
        await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_ADDRCONFIG
        ),
    )
