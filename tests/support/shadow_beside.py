"""A shadow as a pod of the shipped overlay, beside whatever operator works on the control plane."""

import json
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from rallypoint.cli import main
from rallypoint.cli.shadow import PATH
from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.controlplane.process import free_port
from rallypoint.testing.service import SHADOW, Service, in_cluster_service

ACCOUNT = "system:serviceaccount:rallypoint-shadow:rallypoint-shadow"
COMPARED_SECONDS = 300.0


class Shadow:
    """A running shadow."""

    def __init__(self, plane: ControlPlane, service: Service, port: int) -> None:
        self.service = service
        self._plane = plane
        self._address = f"http://127.0.0.1:{port}"

    def report(self) -> dict[str, Any]:
        """Return the report once everything has been compared."""
        self._plane.wait("a whole report", lambda: not self.read()["unread"], seconds=COMPARED_SECONDS)
        return self.read()

    def read(self) -> dict[str, Any]:
        """Return the report as it is."""
        with urllib.request.urlopen(self._address + PATH, timeout=30) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def exit_status(self) -> int:
        """Return the exit status of ``rallypoint shadow report``."""
        return main(["shadow", "report", "--address", self._address])


@contextmanager
def shadow(plane: ControlPlane, *flags: str) -> Generator[Shadow]:
    """A shadow with the rights of the overlay, which is applied."""
    port = free_port()
    address = f"--pprof-bind-address=127.0.0.1:{port}"
    with in_cluster_service(plane, [address, *flags], replica="shadow-0", overlay=SHADOW) as service:
        yield Shadow(plane, service, port)


def undeclared(report: dict[str, Any]) -> list[str]:
    """Return the undeclared differences of a report."""
    return [
        f"{entry['kind']} {entry['name']} {entry['rule']}: {entry['subject']} {entry['field']}: "
        f"ours {entry['ours']}, theirs {entry['theirs']}"
        for entry in report["differences"]
        if not entry["page"]
    ]
