"""The environment of the runs: a control plane with simulated nodes, the shipped manifests, and the controller in-cluster."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TypeVar

import orjson

from api.batch import BATCH_JOBS
from api.meta import EVENTS, PODS, SERVICES, Resource
from bench.controlplane.audit import AuditLog
from bench.controlplane.job_kinds import RESOURCES
from bench.controlplane.observer import Observer
from bench.controlplane.scenario import NODES
from controller.kube.client import Client
from controller.kube.connect import from_kubeconfig
from rallypoint.testing.audit import policy
from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.controlplane.access import administrator
from rallypoint.testing.controlplane.plane import ADMIN
from rallypoint.testing.service import ACCOUNT, IN_CLUSTER, Service, in_cluster_service, install

NAMESPACE = "bench"
FOREIGN_NAMESPACE = "elsewhere"
"""The namespace of the pods of others."""
IN_FLIGHT = 32
"""Concurrent requests of the submitter and of the baseline."""
OPERATOR_USER = "operator"
"""An administrator whose calls the audit log holds, too: operators that run by a kubeconfig."""
EXTRA_RESOURCES = (
    Resource("", "v1", "ConfigMap", "configmaps"),
    Resource("", "v1", "Secret", "secrets"),
    BATCH_JOBS,
)
"""Objects of jobs besides pods and Services."""
CLEAR_SECONDS = 300.0
CLOSE_SECONDS = 0.1
"""A closed TLS connection disappears some iterations later; a loop that stops at once would leak it."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Testbed:
    """What runs need."""

    plane: ControlPlane
    client: Client
    """Has an administrator's credentials."""
    observer: Observer
    audit: AuditLog

    @property
    def server_pid(self) -> int:
        return self.plane.processes["kube-apiserver"].pid


@contextmanager
def control_plane(
    *,
    batch: bool = False,
    install: Callable[[ControlPlane], None] = install,
    users: Sequence[str] = (OPERATOR_USER,),
    nodes: int = len(NODES),
) -> Generator[ControlPlane]:
    """Start a control plane with the shipped manifests; its audit log holds the calls of the controller and of ``users`` alone.

    Args:
        batch: whether kube-controller-manager runs the controller of batch Jobs, and no other.
        install: applies other manifests.
        users: administrators besides ``admin``, whose calls are logged only if it is one of them.
        nodes: simulated nodes; without them no pod runs.
    """
    plane = ControlPlane(
        users=[administrator(user) for user in users if user != ADMIN],
        controllers=("job-controller",) if batch else (),
        service_account_admission=False,
        audit_policy=policy([ACCOUNT, *users], leases=False),
        nodes=nodes,
    )
    with plane:
        install(plane)
        for name in (NAMESPACE, FOREIGN_NAMESPACE):
            plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        yield plane


@asynccontextmanager
async def open_testbed(plane: ControlPlane) -> AsyncGenerator[Testbed]:
    connection = await from_kubeconfig(str(plane.kubeconfig()))
    assert plane.audit_log is not None
    async with (
        Client(connection, in_flight=IN_FLIGHT, user_agent="rallypoint-bench") as client,
        Observer(client, NAMESPACE) as observer,
    ):
        yield Testbed(plane, client, observer, AuditLog(plane.audit_log))
    await asyncio.sleep(CLOSE_SECONDS)


@asynccontextmanager
async def controller(
    testbed: Testbed, flags: Sequence[str], *, launcher: Sequence[str] = IN_CLUSTER
) -> AsyncGenerator[Service]:
    """Start the controller and wait until it is ready, in a thread so that the observer continues.

    Raises:
        ProcessFailed: it ends, or does not become ready.
    """
    async with entered(in_cluster_service(testbed.plane, flags, launcher=launcher)) as running:
        yield running


@asynccontextmanager
async def entered(context: AbstractContextManager[_T]) -> AsyncGenerator[_T]:
    """Enter and exit a context manager that blocks, in a thread so that the observer continues."""
    value = await asyncio.to_thread(context.__enter__)
    try:
        yield value
    finally:
        await asyncio.to_thread(context.__exit__, None, None, None)


async def count(client: Client, resource: Resource, namespace: str = "") -> int:
    """Return the number of objects that the API server has."""
    answer = orjson.loads(await client.list(resource, namespace, params={"limit": "1"}))
    return len(answer["items"]) + int(answer["metadata"].get("remainingItemCount") or 0)


async def clear(testbed: Testbed) -> None:
    """Delete all jobs, pods, Services and events and wait until they are gone.

    Jobs must have ended if a controller runs: it could replace a pod before it sees that the job is gone.

    Raises:
        TimeoutError: objects remain.
    """
    how = {
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Background",
    }  # the deletion of a batch Job would wait to orphan its pods
    options = orjson.dumps({"kind": "DeleteOptions", "apiVersion": "v1", **how})
    for resource in (*RESOURCES, *EXTRA_RESOURCES, PODS, SERVICES, EVENTS):
        await testbed.client.request(
            "DELETE", resource.path(NAMESPACE), resource=resource.plural, body=options
        )
    async with asyncio.timeout(CLEAR_SECONDS):
        await testbed.observer.wait_until(testbed.observer.is_empty)
    testbed.observer.reset()
