"""The scheduler of local mode and the real kube-scheduler: the same outcomes for the same pods on one node.

Messages about preemption are removed: the local cluster has none.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import orjson
import pytest

from api.meta import EVENTS, PODS
from controller.kube.client import Client
from controller.kube.connect import Connection, connect
from controller.kube.errors import NotFound
from controller.runtime import clock
from controller.runtime.informer import Informer
from rallypoint.local.apiserver.server import ApiServer
from rallypoint.local.manifest import Manifest, Row, decode
from rallypoint.local.node.scheduler.scheduler import NODES, PRIORITY_CLASSES, Scheduler
from rallypoint.testing.controlplane import ControlPlane

T = TypeVar("T")

CAPACITY = {"cpu": "2", "memory": "1Gi", "ephemeral-storage": "1Gi", "pods": "3"}
PREEMPTION = re.compile(r" (no new claims to deallocate, )?preemption: .*")
TIMEOUT_SECONDS = 60.0
BETWEEN_LOOKS_SECONDS = 0.05
BACKOFF_SECONDS = 2.0
"""Longer than kube-scheduler's backoff of a pod after its first try: of two pods, one in backoff goes last."""


def asks(**amounts: str) -> dict[str, Any]:
    return {"containers": [{"name": "c", "image": "none", "resources": {"requests": amounts}}]}


def chooses(*expressions: dict[str, Any], fields: bool = False) -> dict[str, Any]:
    """A node affinity of one term."""
    term = {"matchFields" if fields else "matchExpressions": list(expressions)}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"affinity": {"nodeAffinity": required}}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


GPU = {"containers": [{"name": "c", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}
INIT = {"name": "i", "image": "none", "resources": {"requests": {"cpu": "3"}}}
SIDECAR = {**INIT, "resources": {"requests": {"cpu": "1500m"}}, "restartPolicy": "Always"}

ALONE: dict[str, dict[str, Any]] = {
    "fits": asks(cpu="2", memory="1Gi"),
    "cpu": asks(cpu="3"),
    "memory": asks(memory="2Gi"),
    "storage": asks(**{"ephemeral-storage": "2Gi"}),
    "gpu": GPU,
    "several": asks(cpu="3", memory="2Gi", **{"ephemeral-storage": "2Gi"}),
    "init-container": {**asks(cpu="1"), "initContainers": [INIT]},
    "sidecar": {**asks(cpu="1"), "initContainers": [SIDECAR]},
    "whole-pod": {**asks(cpu="100m"), "resources": {"requests": {"cpu": "3"}}},
    "whole-pod-limit": {**asks(cpu="100m"), "resources": {"limits": {"cpu": "3"}}},
    "selector": {**asks(cpu="3"), "nodeSelector": {"pool": "b"}},
    "selected": {**asks(), "nodeSelector": {"pool": "a"}},
    "affinity": {**asks(), **chooses(expression("pool", "In", "b", "c"))},
    "affine": {**asks(), **chooses(expression("pool", "NotIn", "b"), expression("size", "Gt", "3"))},
    "too-small": {**asks(), **chooses(expression("size", "Gt", "4"))},
    "elsewhere": {**asks(), **chooses(expression("metadata.name", "In", "other"), fields=True)},
    "gated": {**asks(), "schedulingGates": [{"name": "example.com/gate"}]},
}
"""Pods that have the node for themselves."""


async def soon(read: Callable[[], Awaitable[T]], holds: Callable[[T], Any]) -> T:
    """Read repeatedly; return the first result that holds."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not holds(result := await read()):  # noqa: ASYNC110 - it happens elsewhere
            await asyncio.sleep(BETWEEN_LOOKS_SECONDS)
    return result


class Play:
    """One cluster, in which these pods come one after the other; ``outcomes`` is what comes of each."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.outcomes: dict[str, object] = {}

    async def run(self) -> None:
        await self._node()
        for name, spec in ALONE.items():
            await self._create(name, spec)
            self.outcomes[name] = await self._outcome(name)
            await self._delete(name)
        await self._crowded()
        await self._cordoned()
        await self._ordered()

    async def _node(self) -> None:
        metadata = {"name": "local", "labels": {"pool": "a", "size": "4"}}
        status = {"capacity": CAPACITY, "allocatable": CAPACITY}
        manifest = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}
        await self._client.create(NODES, "", orjson.dumps(manifest))
        await self._change_node(taints=None)  # A new node is not ready, by admission.

    async def _change_node(self, **spec: Any) -> None:
        await self._client.patch(NODES, "", "local", orjson.dumps({"spec": spec}))

    async def _crowded(self) -> None:
        for name in ("a", "b", "c"):
            await self._create(name, asks(cpu="500m"))
            await self._outcome(name)
        for name, spec in {"one-too-many": asks(), "and-too-large": asks(cpu="1")}.items():
            await self._create(name, spec)
            self.outcomes[name] = await self._outcome(name)
        for name in ("one-too-many", "and-too-large", "a", "b", "c"):
            await self._delete(name)

    async def _cordoned(self) -> None:
        taint = {"key": "k", "value": "v", "effect": "NoSchedule"}
        for name, cordon, taints in (("unschedulable", True, None), ("taint", None, [taint])):
            await self._change_node(unschedulable=cordon, taints=taints)
            await self._create(name, asks(cpu="3"))
            self.outcomes[name] = await self._outcome(name, about=name)
            await self._delete(name)
        await self._change_node(taints=None)

    async def _ordered(self) -> None:
        """The more urgent pod goes first, though it is younger; who waits for another scheduler is left alone."""
        urgent = {"metadata": {"name": "urgent"}, "value": 1000, "preemptionPolicy": "Never"}
        body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", **urgent}
        await self._client.create(PRIORITY_CLASSES, "", orjson.dumps(body))
        await self._create("full", asks(cpu="2"))
        await self._outcome("full")
        await self._create("unowned", {**asks(), "schedulerName": "nobody"})
        await self._create("old", asks(cpu="2"))
        await self._outcome("old")
        await self._create("new", {**asks(cpu="2"), "priorityClassName": "urgent"})
        await self._outcome("new")
        await asyncio.sleep(BACKOFF_SECONDS)
        await self._delete("full")
        await self._until("new", lambda pod: pod["spec"].get("nodeName"))
        self.outcomes["old"] = await self._outcome("old")
        self.outcomes["new"] = await self._outcome("new")
        self.outcomes["unowned"] = (await self._get("unowned"))["status"].get("conditions")

    async def _create(self, name: str, spec: dict[str, Any]) -> None:
        metadata = {"name": name}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {"serviceAccountName": "default", **spec},
        }
        await self._client.create(PODS, "default", orjson.dumps(body))

    async def _get(self, name: str) -> Manifest:
        found: Manifest = orjson.loads(await self._client.get(PODS, "default", name))
        return found

    async def _until(self, name: str, holds: Callable[[Manifest], Any]) -> Manifest:
        return await soon(lambda: self._get(name), holds)

    async def _outcome(self, name: str, about: str = "") -> dict[str, Any]:
        """Where a pod is, what its condition says once it is ``about`` that, and whether there is an event that says so."""
        pod = await self._until(name, partial(_says, about))
        (condition,) = pod["status"]["conditions"]
        said = {key: condition[key] for key in ("type", "status", "reason", "message") if key in condition}
        words = said.get("message") or f"Successfully assigned default/{name} to local"
        is_gated = said.get("reason") == "SchedulingGated"
        return {
            "node": pod["spec"].get("nodeName"),
            "phase": pod["status"]["phase"],
            "priority": pod["spec"]["priority"],
            "condition": {key: PREEMPTION.sub("", text) for key, text in said.items()},
            "events": [] if is_gated else await soon(lambda: self._events_of(name, words), bool),
        }

    async def _events_of(self, name: str, words: str) -> set[tuple[str, str, str]]:
        listed = orjson.loads(await self._client.list(EVENTS, "default"))["items"]
        about = [
            event for event in listed if event["involvedObject"]["name"] == name and event["message"] == words
        ]
        return {(event["type"], event["reason"], PREEMPTION.sub("", words)) for event in about}

    async def _delete(self, name: str) -> None:
        await self._client.delete(PODS, "default", name, grace_period_seconds=0)
        await soon(lambda: self._is_there(name), lambda there: not there)

    async def _is_there(self, name: str) -> bool:
        try:
            await self._get(name)
        except NotFound:
            return False
        return True


def _says(about: str, pod: Manifest) -> bool:
    conditions = pod["status"].get("conditions")
    return bool(conditions) and about in str(conditions)


@asynccontextmanager
async def ours() -> AsyncIterator[Client]:
    """The embedded API server with the scheduler of local mode, and no kubelet."""
    server = ApiServer(auto_namespaces=True)
    await server.start()
    async with Client(Connection(server=server.url, token=lambda: server.token)) as client:
        pods: dict[str, Manifest] = {}

        async def report(pod: Manifest, status: dict[str, Any]) -> None:
            body = orjson.dumps({"status": status})
            await client.patch(PODS, "default", pod["metadata"]["name"], body, subresource="status")

        def on_change(before: Row | None, after: Row | None) -> None:
            if after is not None:
                pods[after.name] = after.manifest
            elif before is not None:
                del pods[before.name]
                scheduler.discard(before.uid)
            scheduler.wake()

        scheduler = Scheduler(client, "local", pods, report, gang_scheduler="", now=clock.now)
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(component.run())
                for component in (scheduler, Informer(client, PODS, decode, on_change))
            ]
            yield client
            for task in running:
                task.cancel()
    await server.stop()


@pytest.mark.full
@pytest.mark.newest
async def test_pods_get_the_same_outcomes_as_with_kube_scheduler() -> None:
    with ControlPlane(scheduler=True) as plane:
        async with Client(await connect(str(plane.kubeconfig()))) as client:
            theirs = Play(client)
            await theirs.run()
    async with ours() as client:
        embedded = Play(client)
        await embedded.run()

    for name, outcome in theirs.outcomes.items():
        assert embedded.outcomes[name] == outcome, name
