"""Traces of reconciles, as a receiver of OTLP gets them."""

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import aiohttp
import pytest
import structlog
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1 import trace_pb2
from structlog.testing import capture_logs

from api.meta import PODS, SERVICES
from api.v1.pytorchjob import RESOURCE
from controller import app
from controller.app import NoTracing
from controller.domain import Key
from controller.kube.client import Client
from controller.kube.connect import Connection
from controller.kube.errors import describe
from controller.kube.transport import UNOBSERVED
from controller.runtime.workers import ReconcileResult, Terminal
from controller.telemetry import tracing
from controller.telemetry.tracing import SENT, Tracing
from tests.support.faults import Refuse, Rule
from tests.support.harness import TEST_SETTINGS, Harness, running_controller, start_harness
from tests.support.scripted import (
    Answer,
    ReceivedRequest,
    ScriptedServer,
    answer_json,
    fine,
    saying,
    status_object,
)

pytestmark = pytest.mark.looptime(False)
"""A thread exports."""

KEY = Key("team", "train")
JOB = {"kind": "PyTorchJob", "namespace": "team", "name": "train", "uid": "u-1"}
CANARY = "canary-5f1d0f7e"


@dataclass(frozen=True)
class Received:
    """A span as the collector received it."""

    proto: trace_pb2.Span
    attributes: Mapping[str, Any]
    resource: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.proto.name

    @property
    def is_failed(self) -> bool:
        return self.proto.status.code == trace_pb2.Status.STATUS_CODE_ERROR

    def is_below(self, other: "Received") -> bool:
        return (self.proto.trace_id, self.proto.parent_span_id) == (other.proto.trace_id, other.proto.span_id)

    def events(self) -> list[tuple[str, Mapping[str, Any]]]:
        return [(event.name, _values(event.attributes)) for event in self.proto.events]


def _values(attributes: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in attributes}


class Collector(ScriptedServer):
    """A receiver of OTLP over HTTP."""

    def spans(self) -> list[Received]:
        assert {request.path for request in self.requests} <= {"/v1/traces"}
        exports = [ExportTraceServiceRequest.FromString(request.body) for request in self.requests]
        return [
            Received(span, _values(span.attributes), _values(resource.resource.attributes))
            for export in exports
            for resource in export.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def one(self, name: str) -> Received:
        (span,) = (span for span in self.spans() if span.name == name)
        return span


@pytest.fixture
async def collector(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Collector]:
    """A collector that the environment names, and an export only at the end."""
    async with Collector(fine) as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")
        yield collector


Work = Callable[[Client], Awaitable[ReconcileResult]]


async def reconcile(work: Work, answer: Answer = fine, url: str = "") -> list[ReceivedRequest]:
    """Run a traced reconcile, export its spans, and return the requests that the API server got. ``url`` is used instead of its address."""
    async with ScriptedServer(answer) as server, Tracing(server.url, "1.2.3", describe) as traces:
        observer = traces.requests(UNOBSERVED)
        async with Client(Connection(url or server.url), observer=observer, tracer=traces) as client:

            async def reconcile(key: Key) -> ReconcileResult:
                structlog.contextvars.bind_contextvars(**JOB)
                return await work(client)

            await traces.reconciles("PyTorchJob", reconcile)(KEY)
    return server.requests


async def nothing(client: Client) -> ReconcileResult:
    return ReconcileResult()


async def test_the_span_of_a_reconcile_names_the_job_and_the_result(collector: Collector) -> None:
    await reconcile(nothing)

    span = collector.one("reconcile PyTorchJob")
    assert span.attributes == {
        "k8s.namespace.name": "team",
        "rallypoint.job.kind": "PyTorchJob",
        "rallypoint.job.name": "train",
        "rallypoint.job.uid": "u-1",
        "rallypoint.reconcile.result": "success",
    }
    assert not span.is_failed
    assert not span.proto.parent_span_id
    assert span.resource["service.name"] == "rallypoint-operator"
    assert span.resource["service.version"] == "1.2.3"


async def test_log_lines_of_a_reconcile_have_its_trace_id(collector: Collector) -> None:
    ids: list[str] = []

    async def work(client: Client) -> ReconcileResult:
        ids.append(structlog.contextvars.get_contextvars()["trace_id"])
        return ReconcileResult()

    await reconcile(work)

    assert ids == [collector.one("reconcile PyTorchJob").proto.trace_id.hex()]


async def test_a_reconcile_that_is_due_again_says_when(collector: Collector) -> None:
    async def work(client: Client) -> ReconcileResult:
        return ReconcileResult(2.5)

    await reconcile(work)

    attributes = collector.one("reconcile PyTorchJob").attributes
    assert attributes["rallypoint.reconcile.result"] == "requeue_after"
    assert attributes["rallypoint.reconcile.requeue_after_seconds"] == 2.5


async def test_a_reported_failure_is_an_error_of_the_span(collector: Collector) -> None:
    async def work(client: Client) -> ReconcileResult:
        return ReconcileResult(failure=Terminal("no such field"))

    await reconcile(work)

    span = collector.one("reconcile PyTorchJob")
    assert (span.is_failed, span.proto.status.message) == (True, "no such field")
    assert span.attributes["error.type"] == "Terminal"
    assert span.attributes["rallypoint.reconcile.result"] == "error"


@pytest.mark.parametrize(
    ("call", "name", "attributes"),
    [
        pytest.param(
            lambda c: c.create(PODS, "team", b"{}"),
            "create pods",
            {"verb": "create", "resource": "pods"},
            id="create",
        ),
        pytest.param(
            lambda c: c.patch(RESOURCE, "team", "train", b"{}", subresource="status"),
            "patch pytorchjobs/status",
            {"verb": "patch", "resource": "pytorchjobs/status", "name": "train"},
            id="patch of a subresource",
        ),
        pytest.param(
            lambda c: c.get(PODS, "team", "a"),
            "get pods",
            {"verb": "get", "resource": "pods", "name": "a"},
            id="get",
        ),
        pytest.param(
            lambda c: c.list(SERVICES, "team", label_selector="a=b"),
            "list services",
            {"verb": "list", "resource": "services"},
            id="list",
        ),
        pytest.param(
            lambda c: c.delete(PODS, "team", "a"),
            "delete pods",
            {"verb": "delete", "resource": "pods", "name": "a"},
            id="delete",
        ),
        pytest.param(
            lambda c: c.get(PODS, "namespaces", "pods"),
            "get pods",
            {"verb": "get", "resource": "pods", "name": "pods"},
            id="names that are words of the path",
        ),
    ],
)
async def test_a_call_has_a_span_below_that_of_its_reconcile(
    collector: Collector,
    call: Callable[[Client], Awaitable[bytes]],
    name: str,
    attributes: dict[str, str],
) -> None:
    async def work(client: Client) -> ReconcileResult:
        await asyncio.gather(call(client))
        return ReconcileResult()

    (request,) = await reconcile(work)

    span = collector.one(name)
    assert span.is_below(collector.one("reconcile PyTorchJob"))
    assert span.proto.kind == trace_pb2.Span.SPAN_KIND_CLIENT
    assert {
        key.removeprefix("rallypoint.request."): value
        for key, value in span.attributes.items()
        if key.startswith("rallypoint.request.")
    } == attributes
    assert span.attributes["http.request.method"] == request.method
    assert span.attributes["http.response.status_code"] == 200
    assert span.attributes["server.address"] == "127.0.0.1"
    assert span.attributes["url.full"].endswith(f":{span.attributes['server.port']}{request.path}")
    assert span.attributes["k8s.namespace.name"] in {"team", "namespaces"}
    assert "http.request.resend_count" not in span.attributes


def traceparent(request: ReceivedRequest) -> tuple[str, str, bool]:
    """Return trace, span, and whether the trace is sampled. kube-apiserver ignores a header with other flags."""
    match = re.fullmatch(r"00-([0-9a-f]{32})-([0-9a-f]{16})-0([01])", request.headers["traceparent"])
    assert match
    return match[1], match[2], match[3] == "1"


async def create_a_pod(client: Client) -> ReconcileResult:
    await client.create(PODS, "team", b"{}")
    return ReconcileResult()


async def test_the_server_gets_the_context_of_the_calls_span(collector: Collector) -> None:
    (request,) = await reconcile(create_a_pod)

    span = collector.one("create pods").proto
    assert traceparent(request) == (span.trace_id.hex(), span.span_id.hex(), True)


async def test_all_requests_of_a_call_are_events_of_one_span(collector: Collector) -> None:
    busy = answer_json(status_object(429, "TooManyRequests"), 429, Retry_After="1")
    requests = await reconcile(create_a_pod, saying(busy))

    span = collector.one("create pods")
    assert len(requests) == 2
    assert span.events() == [
        (SENT, {"http.response.status_code": 429}),
        (SENT, {"http.response.status_code": 200}),
    ]
    assert all(span.proto.start_time_unix_nano <= event.time_unix_nano for event in span.proto.events)
    assert span.attributes["http.request.resend_count"] == 1
    assert span.attributes["http.response.status_code"] == 200
    assert not span.is_failed


async def test_a_refused_call_is_an_error_of_its_span_and_of_the_reconcile(collector: Collector) -> None:
    refusal = answer_json(status_object(403, "Forbidden", "exceeded quota"), 403)
    with pytest.raises(Exception, match="exceeded quota"):
        await reconcile(create_a_pod, saying(refusal))

    for span in (collector.one("create pods"), collector.one("reconcile PyTorchJob")):
        assert (span.is_failed, span.proto.status.message) == (True, "exceeded quota")
        assert span.attributes["error.type"] == "403"
    assert collector.one("reconcile PyTorchJob").attributes["rallypoint.reconcile.result"] == "error"


async def test_a_call_without_an_answer_has_no_status(collector: Collector) -> None:
    async def disconnect(request: web.Request, received: ReceivedRequest) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    with pytest.raises(Exception, match="disconnected"):
        await reconcile(create_a_pod, disconnect)

    span = collector.one("create pods")
    assert span.attributes["error.type"] == "ServerDisconnectedError"
    assert span.events() == [(SENT, {})]
    assert "http.response.status_code" not in span.attributes


async def test_a_refused_tls_connection_is_described_without_python_objects(collector: Collector) -> None:
    with pytest.raises(aiohttp.ClientConnectorError):
        await reconcile(create_a_pod, url="https://127.0.0.1:1")

    for span in (collector.one("create pods"), collector.one("reconcile PyTorchJob")):
        assert span.proto.status.message == "cannot connect to 127.0.0.1:1: Connection refused"


async def test_a_call_outside_of_reconciles_has_no_span_and_no_header(collector: Collector) -> None:
    async with ScriptedServer(fine) as server, Tracing(server.url, "1.2.3", describe) as traces:
        observer = traces.requests(UNOBSERVED)
        async with Client(Connection(server.url), observer=observer, tracer=traces) as client:
            await client.get(PODS, "team", "a")

    assert collector.spans() == []
    assert "traceparent" not in server.requests[0].headers


async def test_a_trace_that_is_not_sampled_is_not_exported_and_says_so_to_the_server(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0")

    (request,) = await reconcile(create_a_pod)

    assert collector.spans() == []
    assert traceparent(request)[2] is False


async def test_opentelemetry_can_be_disabled_by_its_own_variable(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")

    async def work(client: Client) -> ReconcileResult:
        assert "trace_id" not in structlog.contextvars.get_contextvars()
        return await create_a_pod(client)

    (request,) = await reconcile(work)

    assert collector.spans() == []
    assert "traceparent" not in request.headers


async def test_the_environment_names_the_service(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "ours")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.cluster.name=east")
    monkeypatch.setenv("MY_POD_NAME", "training-operator-0")

    await reconcile(nothing)

    resource = collector.one("reconcile PyTorchJob").resource
    assert resource["service.name"] == "ours"
    assert resource["k8s.cluster.name"] == "east"
    assert resource["k8s.pod.name"] == "training-operator-0"


async def test_a_collector_that_does_not_answer_delays_nothing_but_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    release, reached, lag = asyncio.Event(), asyncio.Event(), list[float]()

    async def hang(request: web.Request, received: ReceivedRequest) -> web.StreamResponse:
        reached.set()
        await release.wait()
        return web.Response()

    async def measure_lag() -> None:
        while True:
            since = time.monotonic()
            await asyncio.sleep(0.01)
            lag.append(time.monotonic() - since)

    monkeypatch.setattr(tracing, "FLUSH_SECONDS", 0.3)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
    async with Collector(hang) as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        measuring = asyncio.create_task(measure_lag())
        with capture_logs() as logs:
            await reconcile(nothing)
            await reached.wait()
        measuring.cancel()
        release.set()

    assert "spans dropped after the shutdown timeout" in [line["event"] for line in logs]
    assert max(lag) < 0.25


@pytest.mark.parametrize("variable", tracing.PROTOCOL_VARIABLES)
async def test_another_form_of_otlp_is_refused(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "grpc")
    with pytest.raises(NoTracing, match=rf"--tracing: \${variable} must be http/protobuf, not 'grpc'"):
        await app.run(replace(TEST_SETTINGS, tracing=True), Connection("http://127.0.0.1:9"))


async def test_the_flag_without_the_extra_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "controller.telemetry.tracing")
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(NoTracing, match=r"install rallypoint-operator\[tracing\]"):
        await app.run(replace(TEST_SETTINGS, tracing=True), Connection("http://127.0.0.1:9"))


async def run_a_job(harness: Harness, until: Callable[[], Awaitable[bool]], **spec: Any) -> None:
    """Submit a job, run the traced controller until something holds, and stop it."""
    stop = asyncio.Event()
    async with running_controller(harness, replace(TEST_SETTINGS, tracing=True), stop=stop) as task:
        await harness.submit(**spec)
        for _ in range(1000):
            if await until():
                break
            await asyncio.sleep(0.02)
        stop.set()
        await task


async def test_the_whole_controller_exports_the_life_of_a_job(collector: Collector) -> None:
    async with start_harness() as harness:

        async def is_created() -> bool:
            return await harness.conditions() == "Created T"

        await run_a_job(harness, is_created)
        job = await harness.job()

    spans = collector.spans()
    (creating,) = (
        span
        for span in spans
        if span.name == "reconcile PyTorchJob"
        and any(child.is_below(span) and child.name == "create pods" for child in spans)
    )
    below = sorted(span.name for span in spans if span.is_below(creating))
    assert below == [*["create pods"] * 2, *["create services"] * 2]
    (written,) = (span for span in spans if span.name == "patch pytorchjobs/status")
    assert any(written.is_below(span) for span in spans if span.name == "reconcile PyTorchJob")
    assert creating.attributes["rallypoint.job.uid"] == job["metadata"]["uid"]
    assert {span.name for span in spans if not span.proto.parent_span_id} == {"reconcile PyTorchJob"}


async def test_no_secret_gets_into_a_span(collector: Collector) -> None:
    """Neither the service's token, nor what a template holds, nor the tokens in errors."""
    env = [{"name": "PASSWORD", "value": CANARY}]
    template = {"spec": {"containers": [{"name": "pytorch", "image": "img", "env": env}]}}
    refusal = Refuse(403, "Forbidden", f"denied: Authorization: Bearer {CANARY}, https://user:{CANARY}@host/")
    async with start_harness(
        Rule(refusal, plural="services", verb="create", times=2), token=CANARY
    ) as harness:

        async def has_service() -> bool:
            return bool(await harness.names(SERVICES))

        await run_a_job(harness, has_service, pytorchReplicaSpecs={"Master": {"template": template}})

    assert any("denied: " in span.proto.status.message for span in collector.spans())
    assert all(CANARY.encode() not in request.body for request in collector.requests)


OFF = """
import asyncio, sys
from dataclasses import replace
from controller.kube.connect import Connection
from controller.kube.errors import describe
from tests.support.harness import TEST_SETTINGS, running_controller, start_harness

async def main():
    async with start_harness() as harness, running_controller(harness):
        await harness.submit()
        while await harness.conditions() != "Created T":
            await asyncio.sleep(0.02)

asyncio.run(main())
print("\\n", sorted({name.partition(".")[0] for name in sys.modules} & {"opentelemetry", "requests", "google", "controller"}))
"""


def test_without_the_flag_nothing_of_opentelemetry_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")

    done = subprocess.run([sys.executable, "-c", OFF], capture_output=True, text=True, timeout=60)

    assert done.stdout.endswith("\n ['controller']\n"), done
