"""The stage: a control plane with simulated nodes, our definitions and roles in it, and the controller beside it."""

import asyncio
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import orjson

from api.meta import PODS, SERVICES
from bench.controlplane.audit import POLICY, AuditLog
from bench.controlplane.observer import Observer
from bench.controlplane.scenario import RESOURCE
from bench.record import ROOT
from controller.crds import all_crds
from controller.kube.client import Client
from controller.kube.connect import from_kubeconfig
from controller.testing.controlplane import ControlPlane, User
from controller.testing.controlplane.process import Process
from controller.testing.manifests import build

USER = "rallypoint"
NAMESPACE = "bench"
MANIFESTS = ROOT / "manifests"
NODES = ("node-0", "node-1")
IN_FLIGHT = 32
"""Requests that whoever submits jobs, and the floor's loader, have in flight at most."""
READY_SECONDS = 60.0
GOODBYE_SECONDS = 0.1
"""A closed TLS connection is gone some turns of the loop later; a loop that ends at once would leave it open."""


@dataclass(frozen=True, slots=True)
class Rig:
    """What runs are made with."""

    client: Client
    """An administrator's."""
    observer: Observer
    audit: AuditLog
    server_pid: int


@contextmanager
def control_plane() -> Generator[ControlPlane]:
    """A control plane that has our definitions, and a user who may do what the shipped role allows."""
    plane = ControlPlane(
        users=[User(USER)],
        controllers=(),
        service_account_admission=False,
        audit_policy=POLICY.format(user=USER),
        nodes=len(NODES),
    )
    with plane:
        plane.apply(
            *all_crds(), *_roles(), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        )
        yield plane


@asynccontextmanager
async def rig(plane: ControlPlane) -> AsyncGenerator[Rig]:
    connection = await from_kubeconfig(str(plane.kubeconfig()))
    assert plane.audit_log is not None
    async with (
        Client(connection, in_flight=IN_FLIGHT, user_agent="rallypoint-bench") as client,
        Observer(client, NAMESPACE) as observer,
    ):
        yield Rig(client, observer, AuditLog(plane.audit_log), plane.processes["kube-apiserver"].pid)
    await asyncio.sleep(GOODBYE_SECONDS)


async def clear(rig: Rig) -> None:
    """Remove all jobs, pods and Services; return when they are gone."""
    options = orjson.dumps({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})
    for resource in (RESOURCE, PODS, SERVICES):
        await rig.client.request("DELETE", resource.path(NAMESPACE), resource=resource.plural, body=options)
    await rig.observer.until(rig.observer.is_empty)
    await rig.audit.quiet()
    rig.observer.forget()


@contextmanager
def controller(plane: ControlPlane, flags: Sequence[str]) -> Generator[Process]:
    """The controller as a process of its own, once it is ready. ProcessFailed: it does not become so."""
    port = _free_port()
    command = [
        *(sys.executable, "-m", "controller"),
        *("--kubeconfig", str(plane.kubeconfig(USER))),
        "--leader-elect=false",
        f"--health-probe-bind-address=127.0.0.1:{port}",
        f"--metrics-bind-address=127.0.0.1:{_free_port()}",
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


def _roles() -> list[dict[str, Any]]:
    """The shipped role, bound to our user instead of the ServiceAccount."""
    documents = build(MANIFESTS / "base" / "rbac")
    binding = next(document for document in documents if document["kind"] == "ClusterRoleBinding")
    binding["subjects"] = [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": USER}]
    return [document for document in documents if document["kind"] != "ServiceAccount"]


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=1) as response:
            return bool(response.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
