"""The stage: a control plane with simulated nodes, our definitions and roles in it, and the controller beside it."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

import orjson

from api.meta import PODS, SERVICES
from bench.controlplane.audit import POLICY, AuditLog
from bench.controlplane.observer import Observer
from bench.controlplane.scenario import RESOURCE
from controller.crds import all_crds
from controller.kube.client import Client
from controller.kube.connect import from_kubeconfig
from controller.testing.controlplane import ControlPlane, User
from controller.testing.service import granted

USER = "rallypoint"
NAMESPACE = "bench"
NODES = ("node-0", "node-1")
IN_FLIGHT = 32
"""Requests that whoever submits jobs, and the floor's loader, have in flight at most."""
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
            *all_crds(),
            *granted(USER),
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
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
