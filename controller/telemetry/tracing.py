"""Traces with OpenTelemetry: a span for each reconcile, and one below it for each of its calls to the API server.

``app`` imports this module only with ``--tracing``, because it needs the extra ``tracing``. Spans end in the event loop, which only queues
them; a thread of the SDK exports them in batches. A full queue drops spans.

Source of the attributes ``http.*``, ``server.*``, ``url.*``, ``error.type`` and ``k8s.*``: OpenTelemetry's semantic conventions for HTTP
clients and Kubernetes. They have none for reconciles and for verbs of the Kubernetes API: those begin with ``rallypoint.``.
"""

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Protocol, Self, TypeVar
from urllib.parse import urlsplit

import structlog
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Span, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanContext, SpanKind, StatusCode, TraceFlags

from controller.telemetry import logs

SERVICE = "rallypoint-operator"
"""The attribute ``service.name`` of all spans, unless $OTEL_SERVICE_NAME or $OTEL_RESOURCE_ATTRIBUTES set it."""
FLUSH_SECONDS = 5.0
"""How long the end of the process waits for the export of the last spans."""
PROTOCOL = "http/protobuf"
"""The only form of OTLP that the extra installs."""
PROTOCOL_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
RESENDS = "http.request.resend_count"
SENT = "request sent"
"""The event of a call's span for each request, at the time when it left the queue of requests."""
_JOB_FIELDS = ("kind", "name", "uid")
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}

log = structlog.get_logger()

K = TypeVar("K")


class ReconcileResult(Protocol):
    """What a span shows of ``runtime.workers.ReconcileResult``."""

    @property
    def requeue_after_seconds(self) -> float | None: ...
    @property
    def failure(self) -> Exception | None: ...


R = TypeVar("R", bound=ReconcileResult)


class RequestObserver(Protocol):
    """``kube.transport.Observer``, which this package cannot import."""

    def answered(
        self, method: str, resource: str, code: str, seconds: float, sent_bytes: int, received_bytes: int
    ) -> None: ...
    def retried(self, method: str, code: str) -> None: ...
    def limited(self, method: str, seconds: float) -> None: ...


class Tracing:
    """Records and exports the spans of one process, as the standard variables OTEL_* configure. Use it as an async context manager."""

    def __init__(self, server: str, version: str, describe: Callable[[BaseException], str]) -> None:
        """``server`` is the URL of the API server, ``version`` that of the operator. ``describe`` returns the text of an error.

        Raises:
            ValueError: a variable has a value that is not supported.
            OSError: a certificate that a variable names cannot be read.
        """
        for name in PROTOCOL_VARIABLES:
            if os.environ.get(name, PROTOCOL) != PROTOCOL:
                raise ValueError(f"${name} must be {PROTOCOL}, not {os.environ[name]!r}")
        address = urlsplit(server)
        port = address.port or (80 if address.scheme == "http" else 443)
        host = address.hostname or ""
        self._url = f"{address.scheme}://{f'[{host}]' if ':' in host else host}:{port}"
        self._server = {"server.address": host, "server.port": port}
        self._describe = describe
        self._provider = TracerProvider(resource=_resource(version), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("controller", version)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Export the last spans. A collector that does not answer delays the end by ``FLUSH_SECONDS`` at most, and a cancellation not at all."""
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def shut_down() -> None:
            self._provider.shutdown()
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(done.set)

        # Not in the loop's executor, whose threads would delay the end of the process until the exporter's own timeout.
        threading.Thread(target=shut_down, name="last spans", daemon=True).start()
        if kind is asyncio.CancelledError:
            return
        try:
            async with asyncio.timeout(FLUSH_SECONDS):
                await done.wait()
        except TimeoutError:
            log.warning("spans dropped after the shutdown timeout")

    def reconciles(self, kind: str, work: Callable[[K], Awaitable[R]]) -> Callable[[K], Awaitable[R]]:
        """Return ``work`` with a span around each reconcile. Log lines of a sampled reconcile get the ``trace_id``."""

        async def traced(key: K) -> R:
            with self._tracer.start_as_current_span(
                f"reconcile {kind}", record_exception=False, set_status_on_exception=False
            ) as span:
                if span.is_recording():
                    trace_id = trace.format_trace_id(span.get_span_context().trace_id)
                    structlog.contextvars.bind_contextvars(trace_id=trace_id)
                try:
                    result = await work(key)
                except BaseException as error:
                    self._set_failed(span, error)
                    span.set_attribute("rallypoint.reconcile.result", "error")
                    raise
                finally:
                    _set_job(span)
                due = result.requeue_after_seconds
                span.set_attribute(
                    "rallypoint.reconcile.result", "success" if due is None else "requeue_after"
                )
                if due is not None:
                    span.set_attribute("rallypoint.reconcile.requeue_after_seconds", due)
                if result.failure is not None:
                    self._set_failed(span, result.failure)
                    span.set_attribute("rallypoint.reconcile.result", "error")
                return result

        return traced

    @contextmanager
    def call(self, method: str, path: str, headers: dict[str, str]) -> Generator[None]:
        """Record a call to the API server, with all of its requests. ``headers`` get the trace context, as W3C defines it.

        Only calls of reconciles have a span.
        """
        if not trace.get_current_span().get_span_context().is_valid:
            yield
            return
        namespace, resource, name = _target(path)
        verb = _VERBS.get(method) or ("get" if name else "list")
        attributes = {
            **self._server,
            "http.request.method": method,
            "url.full": self._url + path,
            "rallypoint.request.verb": verb,
            "rallypoint.request.resource": resource,
            **({"rallypoint.request.name": name} if name else {}),
            **({"k8s.namespace.name": namespace} if namespace else {}),
        }
        with self._tracer.start_as_current_span(
            f"{verb} {resource}",
            kind=SpanKind.CLIENT,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            headers["traceparent"] = _traceparent(span.get_span_context())
            try:
                yield
            except BaseException as error:
                self._set_failed(span, error)
                raise

    def requests(self, observer: RequestObserver) -> RequestObserver:
        """Return an observer that also adds each request to the span of its call."""
        return _TracedRequests(observer)

    def _set_failed(self, span: trace.Span, error: BaseException) -> None:
        """Report an error with its text as the log would have it: without credentials, and no traceback."""
        span.set_attribute("error.type", str(getattr(error, "code", "") or type(error).__qualname__))
        text = logs.without_secrets(self._describe(error) or repr(error))
        span.set_status(StatusCode.ERROR, text[: logs.LONGEST_VALUE])


class _TracedRequests:
    """Adds what it observes to the current span."""

    def __init__(self, observer: RequestObserver) -> None:
        self._observer = observer
        self.limited = observer.limited

    def answered(
        self, method: str, resource: str, code: str, seconds: float, sent_bytes: int, received_bytes: int
    ) -> None:
        self._observer.answered(method, resource, code, seconds, sent_bytes, received_bytes)
        span = trace.get_current_span()
        if span.is_recording():
            status = {"http.response.status_code": int(code)} if code.isdecimal() else {}
            span.set_attributes(status)
            span.add_event(SENT, status, timestamp=time.time_ns() - int(seconds * 1e9))

    def retried(self, method: str, code: str) -> None:
        self._observer.retried(method, code)
        span = trace.get_current_span()
        if isinstance(span, Span):
            resends = (span.attributes or {}).get(RESENDS, 0)
            span.set_attribute(RESENDS, resends + 1 if isinstance(resends, int) else 1)


def _resource(version: str) -> Resource:
    """Return the attributes of this process; those of the environment win."""
    pod = {"k8s.namespace.name": "MY_POD_NAMESPACE", "k8s.pod.name": "MY_POD_NAME"}
    own = {
        "service.name": SERVICE,
        "service.version": version,
        **{name: os.environ[variable] for name, variable in pod.items() if variable in os.environ},
    }
    given = dict(Resource.create().attributes)
    if str(given.get("service.name", "")).startswith("unknown_service"):
        del given["service.name"]
    return Resource({**own, **given})


def _set_job(span: trace.Span) -> None:
    """Add the fields of the reconcile's log lines, which name the job."""
    fields = structlog.contextvars.get_contextvars()
    span.set_attributes(
        {f"rallypoint.job.{name}": str(fields[name]) for name in _JOB_FIELDS if name in fields}
    )
    if "namespace" in fields:
        span.set_attribute("k8s.namespace.name", str(fields["namespace"]))


def _traceparent(context: SpanContext) -> str:
    """Return the header of W3C's Trace Context, level 1: of the flags only that of sampled traces.

    Differs: the SDK's propagator also sends the flag of random trace IDs (level 2). kube-apiserver 1.36 ignores a header with both.
    """
    sampled = context.trace_flags & TraceFlags.SAMPLED
    return (
        f"00-{trace.format_trace_id(context.trace_id)}-{trace.format_span_id(context.span_id)}-{sampled:02x}"
    )


def _target(path: str) -> tuple[str, str, str]:
    """Return the namespace, the plural with a subresource, and the name in the path of a resource; empty where it has none."""
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = ""
    if parts[:1] == ["namespaces"] and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    plural, name, subresource = (*parts, "", "", "")[:3]
    return namespace, f"{plural}/{subresource}" if subresource else plural, name
