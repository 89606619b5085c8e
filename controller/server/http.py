"""HTTP for Prometheus and the kubelet: ``/metrics``, perhaps over TLS and with authorization, ``/healthz`` and ``/readyz``."""

import asyncio
import ipaddress
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from controller.bounded_server import TLS, BoundedServer, Handler
from controller.server.certificate import ServingCertificate
from controller.server.reviews import Refusal, Reviewer

MAX_CONNECTIONS = 64
"""Connections per address: far more than a kubelet and a few Prometheus servers need."""
IDLE_SECONDS = 30.0
SAMPLES_AT_ONCE = 1000
"""Samples that are encoded before other tasks get their turn, which takes about 7 ms."""

Check = Callable[[], str]
"""Returns the problem, empty if there is none."""

NOWHERE = "0"
_END = b"# EOF\n"
"""The last line of the OpenMetrics format; the other format has none."""


class BadAddress(ValueError):
    """A bind address that is not ``host:port``."""


@dataclass(frozen=True, slots=True)
class Security:
    """What protects the metrics endpoint."""

    certificate: ServingCertificate
    reviewer: Reviewer


@asynccontextmanager
async def serving(
    metrics_address: str,
    probe_address: str,
    registry: CollectorRegistry,
    alive: Check,
    ready: Check,
    remark: Check = lambda: "",
    security: Security | None = None,
) -> AsyncGenerator[None]:
    """Serve until the block ends. ``/readyz`` appends the text of ``remark`` to its ok.

    With ``security`` the addresses must differ: only the metrics get TLS and authorization.

    Raises:
        BadAddress: an address is invalid.
        OSError: an address is in use.
    """
    exposition = _metrics(registry)
    metrics = [web.get("/metrics", _authorized(exposition, security.reviewer) if security else exposition)]
    probes = [web.get("/healthz", _probe(alive)), web.get("/readyz", _probe(ready, remark))]
    sites: dict[tuple[str, TLS | None], list[web.RouteDef]] = {}
    tls = security.certificate.context if security else None
    for site, routes in (((metrics_address, tls), metrics), ((probe_address, None), probes)):
        sites.setdefault(site, []).extend(routes)
    async with AsyncExitStack() as stack:
        for (address, tls_), routes in sites.items():
            if address != NOWHERE:
                await stack.enter_async_context(_listener(address, routes, tls_))
        yield


def check_address(text: str) -> None:
    """Check that ``serving`` accepts an address.

    Raises:
        BadAddress: it does not.
    """
    if text != NOWHERE:
        parse_address(text)


def check_loopback(flag: str, text: str) -> None:
    """Check that an address is empty, ``0`` or on loopback.

    Raises:
        BadAddress: it is not; the message names the flag.
    """
    if text in {"", NOWHERE}:
        return
    try:
        host, port = parse_address(text)
    except BadAddress as error:
        raise BadAddress(f"{flag}: {error}") from None
    if host is None or not is_loopback(host):
        raise BadAddress(f"{flag}: {text!r} is not on loopback; use 127.0.0.1:{port}")


def is_loopback(host: str) -> bool:
    """Return whether a host is ``localhost`` or an IP address of loopback."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def parse_address(text: str) -> tuple[str | None, int]:
    """Parse ``:8080``, ``127.0.0.1:8080`` or ``[::1]:8080`` into (host or None for all, port).

    Raises:
        BadAddress: the text has another form.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise BadAddress(f"bind address {text!r} is not host:port")
    return host.strip("[]") or None, int(port)


@asynccontextmanager
async def _listener(address: str, routes: list[web.RouteDef], tls: TLS | None) -> AsyncGenerator[None]:
    host, port = parse_address(address)
    app = web.Application()
    app.add_routes(routes)
    server = BoundedServer(app, max_connections=MAX_CONNECTIONS, idle_seconds=IDLE_SECONDS)
    await server.start()
    try:
        await server.listen(host, port, tls=tls)
        yield
    finally:
        await server.stop()


def _authorized(handle: Handler, reviewer: Reviewer) -> Handler:
    async def review(request: web.Request) -> web.StreamResponse:
        authorization = request.headers.get("Authorization", "")
        try:
            await reviewer.check(authorization, request.remote or "", request.method.lower(), request.path)
        except Refusal as refusal:
            return web.Response(text=f"{refusal.text}\n", status=refusal.status, headers=refusal.headers)
        return await handle(request)

    return review


def _metrics(registry: CollectorRegistry) -> Handler:
    async def handle(request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        body = await _exposition(registry, encode)
        return web.Response(body=body, headers={"Content-Type": content_type})

    return handle


class _FamilySlice(Collector):
    """Some samples of one family, in the form that the encoders require."""

    def __init__(self, family: Metric, start: int) -> None:
        self._part = Metric(family.name, family.documentation, family.type, family.unit)
        self._part.samples = family.samples[start : start + SAMPLES_AT_ONCE]

    @override
    def collect(self) -> Iterator[Metric]:
        yield self._part


async def _exposition(registry: CollectorRegistry, encode: Callable[[Collector], bytes]) -> bytes:
    """Collect all families, and yield to other tasks after some samples of each: with thousands of namespaces it takes long."""
    parts: list[bytes] = []
    for family in registry.collect():
        for start in range(0, max(len(family.samples), 1), SAMPLES_AT_ONCE):
            text = encode(_FamilySlice(family, start)).removesuffix(_END)
            parts.append(_without_head(text) if start else text)
            await asyncio.sleep(0)
    return b"".join(parts) + encode(CollectorRegistry())


def _without_head(text: bytes) -> bytes:
    """Remove the lines that describe the family."""
    while text.startswith(b"# "):
        text = text.partition(b"\n")[2]
    return text


def _probe(check: Check, remark: Check = lambda: "") -> Handler:
    async def handle(request: web.Request) -> web.Response:
        wrong = check()
        text = wrong or "\n".join(filter(None, ("ok", remark())))
        return web.Response(text=f"{text}\n", status=500 if wrong else 200)

    return handle
