"""The controller as a process of its own beside a control plane, as a user who may do what the shipped role allows."""

import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from controller.testing.controlplane import ControlPlane
from controller.testing.controlplane.process import Process
from controller.testing.manifests import build

RBAC = Path(__file__).parents[2] / "manifests" / "base" / "rbac"
READY_SECONDS = 60.0


def granted(user: str) -> list[dict[str, Any]]:
    """The shipped role, bound to a user instead of the ServiceAccount."""
    documents = build(RBAC)
    binding = next(document for document in documents if document["kind"] == "ClusterRoleBinding")
    binding["subjects"] = [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}]
    return [document for document in documents if document["kind"] != "ServiceAccount"]


@contextmanager
def service(plane: ControlPlane, user: str, flags: Sequence[str] = ()) -> Generator[Process]:
    """The controller, once it is ready and until the end.

    Raises:
        ProcessFailed: it ends before it is ready, or does not become so.
    """
    port = _free_port()
    command = [
        *(sys.executable, "-m", "controller"),
        f"--kubeconfig={plane.kubeconfig(user)}",
        "--leader-elect=false",
        f"--health-probe-bind-address=127.0.0.1:{port}",
        "--metrics-bind-address=0",
        *flags,
    ]
    process = Process("controller", command, plane.directory / "logs" / "controller.log")
    process.start()
    try:
        plane.processes[process.name] = process  # so that waiting ends when it does
        plane.wait("controller ready", lambda: _is_ready(port), seconds=READY_SECONDS)
        yield process
    finally:
        del plane.processes[process.name]
        process.stop()


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=1) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
