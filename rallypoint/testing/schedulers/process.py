"""One program beside a control plane, on loopback, from when it is ready until the end."""

import socket
import urllib.request
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.controlplane.process import Process

HOST = "127.0.0.1"
_READY_SECONDS = 120.0


@contextmanager
def running(
    plane: ControlPlane, name: str, command: Sequence[str | Path], probe: str = ""
) -> Generator[Process]:
    """The program, once a GET of ``probe`` succeeds if there is one; it ends with the block.

    Raises:
        ProcessFailed: it ends before it is ready, or does not become so.
    """
    process = Process(name, command, plane.directory / "logs" / f"{name}.log")
    process.start()
    try:
        plane.processes[name] = process  # so that waiting ends when it does
        if probe:
            plane.wait(f"{name} ready", lambda: _answers(probe), seconds=_READY_SECONDS)
        yield process
    finally:
        plane.processes.pop(name, None)
        process.stop()


def open_nodes(plane: ControlPlane) -> None:
    """Lets schedulers use the simulated nodes: a new node has a taint by admission, and no controller here takes it away."""
    for node in plane.request("GET", "/api/v1/nodes")["items"]:
        plane.request("PATCH", f"/api/v1/nodes/{node['metadata']['name']}", {"spec": {"taints": None}})


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return int(listener.getsockname()[1])


def _answers(probe: str) -> bool:
    try:
        with urllib.request.urlopen(probe, timeout=5):
            return True
    except OSError:  # urllib's errors are among them
        return False
