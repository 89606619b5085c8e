"""The controller as a process of its own beside a control plane, as a user who may do what the shipped role allows."""

import json
import socket
import sys
import urllib.request
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controller.testing.controlplane import ControlPlane
from controller.testing.controlplane.process import Process
from controller.testing.manifests import build

RBAC = Path(__file__).parents[2] / "manifests" / "base" / "rbac"
READY_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Service:
    """A running controller, and where its probes and metrics are."""

    process: Process
    address: str

    def is_ready(self) -> bool:
        try:
            return self._read("/readyz") != ""
        except OSError:  # urllib's errors are among them
            return False

    def metric(self, series: str) -> float:
        """The value of one series of ``/metrics``, written as there; 0 if it is not there."""
        lines = self._read("/metrics").splitlines()
        return next((float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(series)), 0.0)

    def log(self) -> list[dict[str, Any]]:
        """Its log lines so far."""
        return [
            json.loads(line) for line in self.process.log.read_text().splitlines() if line.startswith("{")
        ]

    def _read(self, path: str) -> str:
        with urllib.request.urlopen(f"http://{self.address}{path}", timeout=5) as answer:
            return str(answer.read().decode())


def granted(user: str) -> list[dict[str, Any]]:
    """The shipped role, bound to a user instead of the ServiceAccount."""
    documents = build(RBAC)
    binding = next(document for document in documents if document["kind"] == "ClusterRoleBinding")
    binding["subjects"] = [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}]
    return [document for document in documents if document["kind"] != "ServiceAccount"]


@contextmanager
def service(plane: ControlPlane, kubeconfig: Path, flags: Sequence[str] = ()) -> Generator[Service]:
    """The controller, once it is ready and until the end.

    Raises:
        ProcessFailed: it ends before it is ready, or does not become so.
    """
    address = f"127.0.0.1:{_free_port()}"
    command = [
        *(sys.executable, "-m", "controller"),
        f"--kubeconfig={kubeconfig}",
        "--leader-elect=false",
        f"--health-probe-bind-address={address}",
        f"--metrics-bind-address={address}",
        *flags,
    ]
    process = Process("controller", command, plane.directory / "logs" / f"controller-{address}.log")
    running = Service(process, address)
    process.start()
    try:
        plane.processes[process.name] = process  # so that waiting ends when it does
        plane.wait("controller ready", running.is_ready, seconds=READY_SECONDS)
        yield running
    finally:
        del plane.processes[process.name]
        process.stop()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
