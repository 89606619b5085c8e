"""A stand-in for metrics-server: the resource metrics API, aggregated into a control plane, with the CPU usage that a test sets.

metrics-server reads kubelets, which simulated nodes do not have.

Source: Kubernetes, k8s.io/metrics/pkg/apis/metrics/v1beta1/types.go.
"""

import base64
import json
import ssl
import threading
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import urlsplit

from typing_extensions import override

from rallypoint.testing.controlplane import ControlPlane

GROUP: Final = "metrics.k8s.io"
VERSION: Final = "v1beta1"
_BASE: Final = f"/apis/{GROUP}/{VERSION}"
_SERVICE: Final = "metrics-server"
_NAMESPACE: Final = "kube-system"
_WINDOW: Final = "1s"


class PodMetrics:
    """The usage of every running pod, in thousandths of a CPU; ``usage`` can be set at any time."""

    def __init__(self, plane: ControlPlane, usage: int) -> None:
        self.usage = usage
        self._plane = plane

    def items(self, namespace: str, query: str) -> list[dict[str, Any]]:
        """Return the metrics of the pods that a query selects, as the API server itself selects them."""
        found = self._plane.request("GET", f"/api/v1/namespaces/{namespace}/pods?{query}")["items"]
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return [
            {
                "metadata": {
                    key: pod["metadata"][key]
                    for key in ("name", "namespace", "labels")
                    if key in pod["metadata"]
                },
                "timestamp": now,
                "window": _WINDOW,
                "containers": [
                    {"name": container["name"], "usage": {"cpu": f"{self.usage}m", "memory": "1Mi"}}
                    for container in pod["spec"]["containers"]
                ],
            }
            for pod in found
            if pod["status"].get("phase") == "Running"
        ]

    def answer(self, path: str) -> dict[str, Any] | None:
        """Return the answer to a GET; None if nothing is there."""
        url = urlsplit(path)
        if url.path == _BASE:
            pods = {"name": "pods", "singularName": "", "namespaced": True, "kind": "PodMetrics"}
            listed = [{**pods, "verbs": ["get", "list"]}]
            return {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": f"{GROUP}/{VERSION}",
                "resources": listed,
            }
        match url.path.removeprefix(f"{_BASE}/").split("/"):
            case ["namespaces", namespace, "pods"]:
                items = self.items(namespace, url.query)
                kind = {"kind": "PodMetricsList", "apiVersion": f"{GROUP}/{VERSION}"}
                return {**kind, "metadata": {}, "items": items}
            case _:
                return None


@contextmanager
def pod_metrics(plane: ControlPlane, usage: int) -> Generator[PodMetrics]:
    """Serve the API until the end of the block, which begins when the control plane's API server proxies it.

    The API server finds it by a Service of the type ExternalName, because no Service has an endpoint on this machine.
    """
    metrics = PodMetrics(plane, usage)
    pair = plane.authority.issue("pod-metrics", names=[f"{_SERVICE}.{_NAMESPACE}.svc"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(metrics))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        plane.apply(*_registration(server.server_port, plane.authority.pem))
        plane.wait(f"{GROUP} served", lambda: plane.has(_BASE))
        yield metrics
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _registration(port: int, authority: bytes) -> list[dict[str, Any]]:
    """Return the Service and the APIService."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": _SERVICE, "namespace": _NAMESPACE},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"{VERSION}.{GROUP}"},
            "spec": {
                "group": GROUP,
                "version": VERSION,
                "service": {"name": _SERVICE, "namespace": _NAMESPACE, "port": port},
                "caBundle": base64.b64encode(authority).decode(),
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
            },
        },
    ]


def _handler(metrics: PodMetrics) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            found = metrics.answer(self.path)
            body = json.dumps(found or {"kind": "Status", "apiVersion": "v1", "code": 404}).encode()
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        @override
        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler
