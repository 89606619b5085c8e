"""TCP connections and HTTP requests of probes and lifecycle hooks.

They use sockets of the pod network, which the isolation provides.
"""

import asyncio
import ipaddress
import os
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from urllib.parse import urljoin, urlsplit

import aiohttp
from yarl import URL

from rallypoint.local.node.sandbox.isolation import Isolation

MAX_BODY_BYTES = 10 * 1024
"""The part of a response body that is read."""
MAX_REDIRECTS = 10
USER_AGENT = "kube-probe/1.36"
"""Programs filter their logs by it."""
REDIRECTS = (301, 302, 303, 307, 308)


class ProbeError(Exception):
    """The probe got no valid response. The text is the kubelet's message."""


@dataclass(frozen=True, slots=True)
class Target:
    host: str
    port: int
    scheme: str = "http"
    path: str = "/"
    headers: Sequence[tuple[str, str]] = ()

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}/{self.path.removeprefix('/')}"


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    body: str
    location: str = ""


async def dial_tcp(isolation: Isolation, target: Target, timeout_seconds: float | None) -> None:
    """Open a connection and close it.

    Raises:
        ProbeError: the connection fails or times out.
    """
    endpoint = f"{target.host}:{target.port}"
    try:
        async with asyncio.timeout(timeout_seconds):
            address = await _resolve(target.host)
            with await isolation.socket() as own:
                await asyncio.get_running_loop().sock_connect(own, (address, target.port))
    except TimeoutError as error:
        raise ProbeError(f"dial tcp {endpoint}: i/o timeout") from error
    except OSError as error:
        raise ProbeError(_dial_error(endpoint, error)) from error


async def http_get(isolation: Isolation, target: Target, timeout_seconds: float | None) -> Reply:
    """Send a GET request; follow redirects to the same host, return a redirect to another host as the response.

    Raises:
        ProbeError: no valid response arrives in time.
    """
    try:
        async with asyncio.timeout(timeout_seconds):
            for _ in range(MAX_REDIRECTS):
                reply = await _request(isolation, target)
                location = urljoin(target.url, reply.location)
                if reply.status not in REDIRECTS or not reply.location or _host(location) != target.host:
                    return reply
                target = _redirected(target, location)
    except TimeoutError as error:
        reason = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        raise ProbeError(f'Get "{target.url}": {reason}') from error
    except aiohttp.ClientConnectorError as error:
        raise ProbeError(
            f'Get "{target.url}": {_dial_error(f"{target.host}:{target.port}", error)}'
        ) from error
    except aiohttp.ServerDisconnectedError as error:
        raise ProbeError(f'Get "{target.url}": EOF') from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise ProbeError(f'Get "{target.url}": {error}') from error
    raise ProbeError(f'Get "{target.url}": stopped after {MAX_REDIRECTS} redirects')


async def _request(isolation: Isolation, target: Target) -> Reply:
    address = await _resolve(target.host)
    headers = list(target.headers)
    names = {name.lower() for name, _ in headers}
    defaults = (("Host", f"{target.host}:{target.port}"), ("User-Agent", USER_AGENT), ("Accept", "*/*"))
    headers += [(name, value) for name, value in defaults if name.lower() not in names]
    async with _session(isolation) as session:
        url = URL(replace(target, host=address).url, encoded=True)
        async with session.get(url, headers=headers, allow_redirects=False, ssl=False) as response:
            body = await response.content.read(MAX_BODY_BYTES)
            return Reply(response.status, body.decode(errors="replace"), response.headers.get("Location", ""))


@asynccontextmanager
async def _session(isolation: Isolation) -> AsyncGenerator[aiohttp.ClientSession]:
    """Open a session for one request, over a socket of the pod network."""
    own = await isolation.socket()
    unused = [own]

    def take(_: object) -> socket.socket:
        if not unused:  # aiohttp retries when the server closes the connection.
            raise aiohttp.ServerDisconnectedError
        return unused.pop()

    connector = aiohttp.TCPConnector(force_close=True, socket_factory=take)
    try:
        async with aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("Accept-Encoding",),
            auto_decompress=False,
        ) as session:
            yield session
    finally:
        own.close()


async def _resolve(host: str) -> str:
    """Raises:
    OSError: the name does not resolve on this machine.
    """
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, family=socket.AF_INET)
        return str(found[0][4][0])


def _host(url: str) -> str:
    return urlsplit(url).hostname or ""


def _redirected(target: Target, url: str) -> Target:
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    return replace(target, port=port, scheme=parts.scheme, path=path)


def _dial_error(endpoint: str, error: OSError) -> str:
    reason = os.strerror(error.errno).lower() if error.errno else str(error)
    return f"dial tcp {endpoint}: connect: {reason}"
