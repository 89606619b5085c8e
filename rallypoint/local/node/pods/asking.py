"""Connections and HTTP requests from the node to a pod, as the probes of a kubelet make them.

They go through the pods' network: the isolation gives the sockets.
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

MOST_BYTES = 10 * 1024
"""Of an answer's body that are read."""
MOST_REDIRECTS = 10
AGENT = "kube-probe/1.36"
"""What programs know probes by, to leave them out of their logs."""
REDIRECTS = (301, 302, 303, 307, 308)


class Silence(Exception):
    """Nobody answers, or not in HTTP. The text is what a kubelet says."""


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


async def connect(isolation: Isolation, target: Target, timeout_seconds: float | None) -> None:
    """Open a connection and close it.

    Raises:
        Silence: nobody takes it in time.
    """
    place = f"{target.host}:{target.port}"
    try:
        async with asyncio.timeout(timeout_seconds):
            address = await _resolve(target.host)
            with await isolation.socket() as own:
                await asyncio.get_running_loop().sock_connect(own, (address, target.port))
    except TimeoutError as error:
        raise Silence(f"dial tcp {place}: i/o timeout") from error
    except OSError as error:
        raise Silence(_dialled(place, error)) from error


async def get(isolation: Isolation, target: Target, timeout_seconds: float | None) -> Reply:
    """Ask; redirects on the same host are followed, one to elsewhere is the answer.

    Raises:
        Silence: there is no answer in time.
    """
    try:
        async with asyncio.timeout(timeout_seconds):
            for _ in range(MOST_REDIRECTS):
                reply = await _ask(isolation, target)
                onward = urljoin(target.url, reply.location)
                if reply.status not in REDIRECTS or not reply.location or _host(onward) != target.host:
                    return reply
                target = _redirected(target, onward)
    except TimeoutError as error:
        reason = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        raise Silence(f'Get "{target.url}": {reason}') from error
    except aiohttp.ClientConnectorError as error:
        raise Silence(f'Get "{target.url}": {_dialled(f"{target.host}:{target.port}", error)}') from error
    except aiohttp.ServerDisconnectedError as error:
        raise Silence(f'Get "{target.url}": EOF') from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise Silence(f'Get "{target.url}": {error}') from error
    raise Silence(f'Get "{target.url}": stopped after {MOST_REDIRECTS} redirects')


async def _ask(isolation: Isolation, target: Target) -> Reply:
    address = await _resolve(target.host)
    headers = list(target.headers)
    given = {name.lower() for name, _ in headers}
    usual = (("Host", f"{target.host}:{target.port}"), ("User-Agent", AGENT), ("Accept", "*/*"))
    headers += [(name, value) for name, value in usual if name.lower() not in given]
    async with _session(isolation) as session:
        url = URL(replace(target, host=address).url, encoded=True)
        async with session.get(url, headers=headers, allow_redirects=False, ssl=False) as response:
            body = await response.content.read(MOST_BYTES)
            return Reply(response.status, body.decode(errors="replace"), response.headers.get("Location", ""))


@asynccontextmanager
async def _session(isolation: Isolation) -> AsyncGenerator[aiohttp.ClientSession]:
    """A session for one request, over a socket of the pods' network."""
    own = await isolation.socket()
    unused = [own]

    def give(_: object) -> socket.socket:
        if not unused:  # A second try, which aiohttp makes of itself when the server hangs up.
            raise aiohttp.ServerDisconnectedError
        return unused.pop()

    connector = aiohttp.TCPConnector(force_close=True, socket_factory=give)
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
    OSError: the machine does not know the name.
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


def _dialled(place: str, error: OSError) -> str:
    reason = os.strerror(error.errno).lower() if error.errno else str(error)
    return f"dial tcp {place}: connect: {reason}"
