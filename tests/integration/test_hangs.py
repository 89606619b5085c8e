"""Jobs that hang, on a real API server with the shipped rights: logs of a kubelet that is the test, and annotations."""

import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.manifests import build
from rallypoint.testing.service import MANIFESTS, OPERATOR_NAMESPACE, Service, in_cluster_service, install
from rallypoint.testing.webhook_certificates import webhook_certificates
from tests.support.jobs import Jobs, job

NODE, NAMESPACE, DEADLINE = "machine", "default", 10
STEP = "example.com/step"


class Kubelet:
    """Serves the logs of pods on a port of its own. A pod that ``writes`` has a new last line in each second."""

    def __init__(self, folder: Path) -> None:
        self.writes: set[str] = set()
        self.queries: list[str] = []
        kubelet = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path, _, query = self.path.partition("?")
                kubelet.queries.append(query)
                pod = path.split("/")[3]
                at = datetime.now(UTC) if pod in kubelet.writes else datetime(2026, 1, 1, tzinfo=UTC)
                body = f"{at:%Y-%m-%dT%H:%M:%SZ} step\n".encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            @override
            def log_message(self, format: str, *args: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        pem = folder / "kubelet.pem"
        certificates = webhook_certificates("kubelet", "kubelet-ca")
        pem.write_bytes(certificates["tls.key"] + certificates["tls.crt"])
        context.load_cert_chain(pem)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)

    @contextmanager
    def serving(self) -> Iterator["Kubelet"]:
        thread = threading.Thread(target=self.server.serve_forever)
        thread.start()
        try:
            yield self
        finally:
            self.server.shutdown()
            thread.join()
            self.server.server_close()


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with ControlPlane() as plane:
        install(plane)
        yield plane


@pytest.fixture(scope="module")
def kubelet(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubelet]:
    """The kubelet of a node on which the test's pods run."""
    with Kubelet(tmp_path_factory.mktemp("kubelet")).serving() as kubelet:
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet.server.server_address[1]}},
        }
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
        plane.request("POST", "/api/v1/nodes", node)
        plane.request("PATCH", f"/api/v1/nodes/{NODE}/status", {"status": status})
        yield kubelet


@pytest.fixture(scope="module")
def operator(plane: ControlPlane) -> Iterator[Service]:
    with in_cluster_service(plane) as running:
        yield running


@contextmanager
def granted(plane: ControlPlane, component: str) -> Iterator[None]:
    """Grant the rights of a component, as an installation with it does."""
    documents = json.loads(json.dumps(build(MANIFESTS / "components" / component)))
    for document in documents:
        for subject in document.get("subjects", ()):
            subject["namespace"] = OPERATOR_NAMESPACE
    plane.apply(*documents)
    try:
        yield
    finally:
        for document in documents:
            plural = f"{document['kind'].lower()}s"
            path = f"/apis/rbac.authorization.k8s.io/v1/{plural}/{document['metadata']['name']}"
            plane.request("DELETE", path)


def start(plane: ControlPlane, jobs: Jobs, name: str, **run_policy: Any) -> None:
    """Run a job with one worker."""
    template = {"spec": {"nodeName": NODE, "containers": [{"name": "pytorch", "image": "x"}]}}
    roles = {role: {"template": template} for role in ("Master", "Worker")}
    policy = {"progressDeadlineSeconds": DEADLINE, **run_policy}
    jobs.create(name, job(workers=1, roles=roles, runPolicy=policy))
    jobs.wait_for(name, "Created")
    run(plane, jobs, name)
    jobs.wait_for(name, "Running")


def run(plane: ControlPlane, jobs: Jobs, name: str) -> None:
    """Report the job's pods as running, as a kubelet does."""
    plane.wait("pods", lambda: len(jobs.pods(name)) == 2)
    started = {"running": {"startedAt": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"}}
    container = {
        "name": "pytorch",
        "image": "x",
        "imageID": "",
        "ready": True,
        "restartCount": 0,
        "state": started,
    }
    for pod in jobs.pods(name):
        jobs.patch_pod_status(pod, {"phase": "Running", "containerStatuses": [container]})


def remove(plane: ControlPlane, jobs: Jobs, name: str) -> None:
    plane.request("DELETE", jobs.path(name))


def test_without_the_component_the_job_says_what_is_missing(
    plane: ControlPlane, operator: Service, kubelet: Kubelet
) -> None:
    jobs = Jobs(plane, NAMESPACE)
    start(plane, jobs, "blind")

    plane.wait("the event", lambda: "PyTorchJobProgressUnknown" in jobs.event_reasons("blind"), seconds=30)

    assert ("Running", "True") in jobs.conditions("blind")
    remove(plane, jobs, "blind")


def test_silent_logs_restart_the_job_and_others_do_not(
    plane: ControlPlane, operator: Service, kubelet: Kubelet
) -> None:
    jobs = Jobs(plane, NAMESPACE)
    rules = [{"action": "RestartJob", "onReasons": ["NoProgress"]}]
    kubelet.writes = {"well-master-0"}
    with granted(plane, "progress"):
        start(plane, jobs, "well")
        start(plane, jobs, "silent", failurePolicy={"rules": rules})
        plane.wait("a restart", lambda: status_of(plane, jobs, "silent").get("restarts") == 1, seconds=60)

    (attempt,) = status_of(plane, jobs, "silent")["attempts"]
    assert attempt["reason"] == "NoProgress"
    assert attempt["message"].endswith("no stacks: pods/exec is forbidden in namespace default")
    assert ("Running", "True") in jobs.conditions("well")
    assert all("tailLines=1" in query and "limitBytes=64" in query for query in kubelet.queries)
    for name in ("well", "silent"):
        remove(plane, jobs, name)


def test_an_annotation_that_stays_fails_the_job(
    plane: ControlPlane, operator: Service, kubelet: Kubelet
) -> None:
    jobs = Jobs(plane, NAMESPACE)
    start(plane, jobs, "annotated", progress={"annotation": STEP})
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/annotated-worker-0"
    until = time.monotonic() + 1.5 * DEADLINE
    while time.monotonic() < until:
        plane.request("PATCH", path, {"metadata": {"annotations": {STEP: str(time.monotonic())}}})
        assert ("Running", "True") in jobs.conditions("annotated")

    jobs.wait_for("annotated", "Failed")

    assert jobs.condition("annotated", "Failed")["reason"] == "PyTorchJobNoProgress"
    plane.wait(
        "the deletion of all pods",
        lambda: all("deletionTimestamp" in pod["metadata"] for pod in jobs.pod_objects("annotated")),
    )


def status_of(plane: ControlPlane, jobs: Jobs, name: str) -> Any:
    return plane.request("GET", jobs.path(name)).get("status", {})
