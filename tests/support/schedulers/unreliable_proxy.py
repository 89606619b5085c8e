"""The operator behind a proxy that breaks one in twenty of its calls."""

import random
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from aiohttp import web
from typing_extensions import override

from controller.kube.connect import Connection
from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.controlplane.access import kubeconfig, write_private
from rallypoint.testing.controlplane.process import Process
from rallypoint.testing.service import OPERATOR_NAMESPACE
from tests.support.breakpoint_proxy import BreakpointProxy
from tests.support.schedulers.operator import Operator
from tests.support.scripted import ReceivedRequest

FAILING = 0.05


class UnreliableProxy(BreakpointProxy):
    """Breaks the connection of one in twenty calls, before or after the server has handled it."""

    def __init__(self, connection: Connection, chance: random.Random) -> None:
        super().__init__(connection)
        self._chance = chance
        self.broken = 0
        self.passed = 0

    @override
    async def _pass_on(self, request: web.Request, received: ReceivedRequest) -> web.StreamResponse:
        fails = "watch" not in received.query and self._chance.random() < FAILING
        after = self._chance.random() < 0.5
        self.passed += not fails
        self.broken += fails
        if fails and after:
            await super()._pass_on(request, received)
        if not fails:
            return await super()._pass_on(request, received)
        if request.transport is not None:
            request.transport.abort()
        return web.Response(status=499)


@contextmanager
def behind_proxy(
    operator: Operator, plane: ControlPlane, url: str, flags: Sequence[str]
) -> Generator[Process]:
    """Run the operator, unless it is absent, with the rights of its ServiceAccount and behind the proxy at ``url``; yield its process."""
    token = (plane.service_account_folder(OPERATOR_NAMESPACE, "training-operator") / "token").read_text()
    file = write_private(
        plane.directory / "kubeconfigs" / "operator.yaml",
        kubeconfig(url, plane.authority.pem, token, user="training-operator"),
    )
    common = (
        f"--kubeconfig={file}",
        "--leader-elect=false",
        "--metrics-bind-address=0",
        "--health-probe-bind-address=0",
        "--pytorch-init-container=off",
        "--mpi-ssh-check=false",
        "--events=compact",
    )
    log = Path(plane.directory / "logs" / "operator.log")
    process = Process("operator", [sys.executable, "-m", "controller", *common, *flags], log)
    if not operator.is_absent:
        process.start()
    try:
        yield process
    finally:
        process.stop()
