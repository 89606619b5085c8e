"""Traces of the operator and of a real kube-apiserver."""

from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import grpc
import pytest
import yaml
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.service import in_cluster_service, install
from tests.support.jobs import Jobs, job


class Collector:
    """A receiver of OTLP over gRPC, the only form that kube-apiserver exports."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=1))
        export = grpc.unary_unary_rpc_method_handler(
            self._export,
            request_deserializer=ExportTraceServiceRequest.FromString,
            response_serializer=ExportTraceServiceResponse.SerializeToString,
        )
        service = "opentelemetry.proto.collector.trace.v1.TraceService"
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(service, {"Export": export}),)
        )
        self.port: int = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    def stop(self) -> None:
        self._server.stop(grace=None).wait()

    def _export(self, request: ExportTraceServiceRequest, context: object) -> ExportTraceServiceResponse:
        for resource in request.resource_spans:
            self.spans += [span for scope in resource.scope_spans for span in scope.spans]
        return ExportTraceServiceResponse()


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.stop()


@pytest.mark.full
def test_the_api_server_links_its_spans_to_those_of_calls(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ignores a header of another form, such as the one that the SDK's propagator sends."""
    configuration = tmp_path / "tracing.yaml"
    configuration.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "apiserver.config.k8s.io/v1beta1",
                "kind": "TracingConfiguration",
                "endpoint": f"127.0.0.1:{collector.port}",
                "samplingRatePerMillion": 1_000_000,
            }
        )
    )
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    with ControlPlane(nodes=1, api_server_flags=[f"--tracing-config-file={configuration}"]) as plane:
        install(plane)
        with in_cluster_service(plane, ["--tracing"]) as running:
            jobs = Jobs(plane, "default")
            jobs.create("digits", job(workers=1))
            jobs.wait_for("digits", "Running")
            traces = {line["trace_id"] for line in running.log() if "trace_id" in line}

            def are_linked() -> bool:
                return any(link.trace_id.hex() in traces for span in collector.spans for link in span.links)

            assert traces
            plane.wait("linked spans", are_linked)
