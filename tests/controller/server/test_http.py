"""The responses for Prometheus and the kubelet."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import aiohttp
import orjson
import psutil
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from typing_extensions import override

from controller.server.certificate import CertificateFiles, SelfSigned, ServingCertificate
from controller.server.http import (
    MAX_CONNECTIONS,
    SAMPLES_AT_ONCE,
    BadAddress,
    Security,
    check_address,
    parse_address,
    serving,
)
from controller.server.reviews import Reviewer
from tests.support.scripted import ReceivedRequest, answer_json, calling


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listening() -> set[int]:
    """The ports that this process serves on."""
    connections = psutil.Process().net_connections("tcp")
    return {connection.laddr.port for connection in connections if connection.status == psutil.CONN_LISTEN}


def fine() -> str:
    return ""


@asynccontextmanager
async def served(
    alive: Callable[[], str] = fine,
    ready: Callable[[], str] = fine,
    same_port: bool = False,
    registry: CollectorRegistry | None = None,
) -> AsyncIterator[Callable[[str], "Answer"]]:
    registry = registry or CollectorRegistry()
    Counter("things", "Things", registry=registry).inc(3)
    metrics = f"127.0.0.1:{free_port()}"
    probes = metrics if same_port else f"127.0.0.1:{free_port()}"
    async with serving(metrics, probes, registry, alive, ready), aiohttp.ClientSession() as session:
        yield lambda path: Answer(session, f"http://{metrics if path == '/metrics' else probes}{path}")


class Answer:
    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def read(self, **headers: str) -> tuple[int, str, str]:
        """Status, content type, text."""
        async with self._session.get(self._url, headers=headers) as response:
            return response.status, response.headers["Content-Type"], await response.text()


@pytest.mark.parametrize("same_port", [True, False], ids=["on one port", "on two ports"])
async def test_metrics_and_probes(same_port: bool) -> None:
    async with served(same_port=same_port) as get:
        status, kind, text = await get("/metrics").read()
        assert (status, "things_total 3.0" in text) == (200, True)
        assert kind.startswith("text/plain; version=")
        for path in ("/healthz", "/readyz"):
            assert (await get(path).read())[::2] == (200, "ok\n")


async def test_metrics_have_the_requested_format() -> None:
    async with served() as get:
        _, kind, text = await get("/metrics").read(Accept="application/openmetrics-text; version=1.0.0")

        assert kind.startswith("application/openmetrics-text")
        assert text.endswith("# EOF\n")
        assert text.count("# EOF") == 1
        (family,) = text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
        assert [sample.value for sample in family.samples if sample.name == "things_total"] == [3]


class Slow(Collector):
    """Many families that take long to collect."""

    def __init__(self, order: list[str]) -> None:
        self._order = order

    @override
    def collect(self) -> Iterator[Metric]:
        for number in range(5):
            self._order.append("family")
            yield GaugeMetricFamily(f"slow_{number}", "Slow", value=number)


async def test_collecting_metrics_yields_to_other_tasks_between_families() -> None:
    order: list[str] = []
    registry = CollectorRegistry()
    registry.register(Slow(order))

    async def other() -> None:
        while True:
            order.append("other")
            await asyncio.sleep(0)

    async with served(registry=registry) as get:
        task = asyncio.create_task(other())
        text = (await get("/metrics").read())[2]
        task.cancel()

    assert all(f"slow_{number} {number}.0" in text for number in range(5))
    first = order.index("family")
    assert order[first : first + 9 : 2] == ["family"] * 5
    assert order[first + 1 : first + 9 : 2] == ["other"] * 4


class Samples(list[Sample]):
    """Samples that record when a part of them is read."""

    def __init__(self, order: list[str]) -> None:
        names = (str(number) for number in range(3 * SAMPLES_AT_ONCE + 1))
        super().__init__(Sample("large_total", {"name": name}, 1.0) for name in names)
        self._order = order

    @override
    def __getitem__(self, part: Any) -> Any:
        self._order.append("part")
        return super().__getitem__(part)


class Large(Collector):
    """A family with many samples."""

    def __init__(self, order: list[str]) -> None:
        self._order = order

    @override
    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily("large", "Large", labels=["name"])
        family.samples = Samples(self._order)
        yield family


@pytest.mark.parametrize("accept", ["text/plain", "application/openmetrics-text; version=1.0.0"])
async def test_encoding_a_large_family_yields_to_other_tasks(accept: str) -> None:
    """The text is the same as if it were encoded at once."""
    order: list[str] = []
    registry = CollectorRegistry()
    registry.register(Large(order))

    async def other() -> None:
        while True:
            order.append("other")
            await asyncio.sleep(0)

    async with served(registry=registry) as get:
        task = asyncio.create_task(other())
        text = (await get("/metrics").read(Accept=accept))[2]
        task.cancel()

    first = order.index("part")
    assert order[first : first + 7] == ["part", "other", "part", "other", "part", "other", "part"]
    assert text == choose_encoder(accept)[0](registry).decode()


async def test_a_failed_probe_says_what_is_wrong() -> None:
    wrong = "caches are being filled: pods"
    async with served(ready=lambda: wrong) as get:
        assert (await get("/readyz").read())[::2] == (500, f"{wrong}\n")
        assert (await get("/healthz").read())[0] == 200
        wrong = ""
        assert (await get("/readyz").read())[0] == 200


async def test_probes_are_answered_despite_clients_that_complete_no_request() -> None:
    port = free_port()
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(serving("0", f"127.0.0.1:{port}", CollectorRegistry(), fine, fine))
        for _ in range(2 * MAX_CONNECTIONS):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            stack.callback(writer.close)
            writer.write(b"GET /healthz HTTP/1.1\r\n")
        session = await stack.enter_async_context(aiohttp.ClientSession())

        assert (await Answer(session, f"http://127.0.0.1:{port}/healthz").read())[0] == 200


class Unobserved:
    """Observes nothing."""

    def reviewed(self, review: str, result: str) -> None: ...
    def certificate_read(self, expires_at: datetime) -> None: ...
    def certificate_failed(self) -> None: ...


async def review(request: web.Request, received: ReceivedRequest) -> web.StreamResponse:
    """Accept the token ``good``, whose user may get the metrics."""
    spec = orjson.loads(received.body)["spec"]
    user = {"username": "prometheus"}
    return answer_json(
        {"status": {"authenticated": spec.get("token") == "good", "user": user, "allowed": True}}
    )


@asynccontextmanager
async def secured(certificate: ServingCertificate) -> AsyncIterator[tuple[str, str]]:
    """Yield the addresses of metrics and probes."""
    metrics, probes = (f"127.0.0.1:{free_port()}" for _ in range(2))
    registry = CollectorRegistry()
    Counter("things", "Things", registry=registry).inc(3)
    async with calling(review) as (client, _):
        security = Security(certificate, Reviewer(client, Unobserved()))
        async with serving(metrics, probes, registry, fine, fine, security=security):
            yield metrics, probes


@pytest.mark.parametrize(
    ("authorization", "status", "text"),
    [
        ("Bearer good", 200, "things_total 3.0"),
        ("Bearer bad", 401, "Unauthorized"),
        ("", 401, "Unauthorized"),
    ],
)
async def test_protected_metrics_need_a_token_and_probes_do_not(
    authorization: str, status: int, text: str
) -> None:
    certificate = ServingCertificate(SelfSigned("pod-0"), Unobserved())
    await certificate.refresh()
    async with secured(certificate) as (metrics, probes), aiohttp.ClientSession() as session:
        headers = {"Authorization": authorization} if authorization else {}
        async with session.get(f"https://{metrics}/metrics", headers=headers, ssl=False) as answer:
            assert (answer.status, text in await answer.text()) == (status, True)
            assert answer.version == aiohttp.HttpVersion11
        for path in ("/healthz", "/readyz"):
            async with session.get(f"http://{probes}{path}") as answer:
                assert answer.status == 200
        with pytest.raises(aiohttp.ClientError):
            await session.get(f"http://{metrics}/metrics", headers=headers)


async def test_protected_metrics_are_not_served_without_a_certificate() -> None:
    certificate = ServingCertificate(CertificateFiles("/nonexistent", "tls.crt", "tls.key"), Unobserved())
    await certificate.refresh()
    async with secured(certificate) as (metrics, probes), aiohttp.ClientSession() as session:
        for scheme in ("http", "https"):
            with pytest.raises(aiohttp.ClientError):
                await session.get(f"{scheme}://{metrics}/metrics", ssl=False)
        async with session.get(f"http://{probes}/readyz") as answer:
            assert answer.status == 200


async def test_nothing_else_is_served() -> None:
    async with served() as get:
        assert (await get("/debug/pprof").read())[0] == 404


async def test_a_disabled_address_is_not_served() -> None:
    check_address("0")
    before = listening()
    async with serving("0", "0", CollectorRegistry(), fine, fine):
        assert listening() == before
    async with serving("0", f"127.0.0.1:{free_port()}", CollectorRegistry(), fine, fine):
        assert len(listening()) == len(before) + 1


async def test_a_taken_port_is_an_error_and_leaves_nothing_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port, free = taken.getsockname()[1], free_port()
        with pytest.raises(OSError, match=str(port)):
            async with serving(f"127.0.0.1:{free}", f"127.0.0.1:{port}", CollectorRegistry(), fine, fine):
                pytest.fail("the port is taken")
        with socket.create_server(("127.0.0.1", free)) as again:
            assert again.getsockname()[1] == free


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        (":8080", None, 8080),
        ("127.0.0.1:8080", "127.0.0.1", 8080),
        ("[::1]:8080", "::1", 8080),
        ("localhost:0", "localhost", 0),
    ],
)
def test_addresses(text: str, host: str | None, port: int) -> None:
    assert parse_address(text) == (host, port)


@pytest.mark.parametrize("text", ["", "8080", "host", "host:", ":http", ":65536", ":-1", "http://host"])
def test_an_invalid_address_is_an_error(text: str) -> None:
    with pytest.raises(BadAddress, match="is not host:port"):
        check_address(text)
