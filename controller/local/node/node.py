"""The local node: a kubelet and a scheduler in one, for one machine.

It sees pods and Services through informers, binds the pods that fit, runs each bound pod as a task (``pod``) and ends
the deletion of those that are to go. Everything goes through the API server, as in a cluster.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import aiohttp
import orjson
import structlog

from api.meta import PODS, SERVICES, Resource
from controller.kube.client import Client
from controller.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from controller.local.manifest import Manifest, Row, decode
from controller.local.node import machine, scheduling
from controller.local.node.capacity import Amounts
from controller.local.node.environment import Unresolved
from controller.local.node.events import Events
from controller.local.node.isolation import Isolation
from controller.local.node.launch import of_person
from controller.local.node.logs import Logs
from controller.local.node.pace import Pace
from controller.local.node.pod import PodTask
from controller.local.node.podexec import NotRunning
from controller.local.node.process import Process, Streams
from controller.local.node.program import CannotStart
from controller.local.node.workplace import RETRY_SECONDS, Workplace
from controller.runtime import clock
from controller.runtime.informer import Informer

NODES = Resource("", "v1", "Node", "nodes", namespaced=False)
STOP_GRACE_SECONDS = 5.0
"""How long processes have to end by themselves when the node stops; a job's own grace period may be shorter."""

log = structlog.get_logger()


class Node:
    """Runs pods on this machine while ``run`` runs. ``stop`` ends them; cancelling ``run`` kills what is left."""

    def __init__(
        self,
        client: Client,
        folder: Path,
        *,
        isolation: Isolation,
        name: str = "local",
        capacity: Amounts | None = None,
        now: Callable[[], datetime] = clock.now,
    ) -> None:
        self.name = name
        self.logs = Logs(folder / "logs")
        self.isolation = isolation
        self.network = self.isolation.network
        self._client = client
        self._capacity = capacity or machine.capacity()
        self._now = now
        self._kubelet = Events(client, "kubelet", name, now)
        self._scheduler = Events(client, "default-scheduler", name, now)
        self._running: dict[str, tuple[PodTask, asyncio.Task[None]]] = {}
        self._seen: set[str] = set()
        self._bound: set[str] = set()
        self._refused: dict[str, str] = {}
        self._pace = Pace()
        self._unplaced = asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None
        self._workplace: Workplace | None = None
        self._stopping = False
        self.ready = asyncio.Event()
        """Set once the node is registered and watches."""

    async def run(self) -> None:
        """Run pods until cancelled or stopped. When this returns, no process of any pod is left."""
        self._workplace = self._make_workplace()
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            await self._register()
            pods = Informer(self._client, PODS, decode, self.see_pod)
            services = Informer(self._client, SERVICES, decode, self.see_service)
            tasks.create_task(services.run())
            await services.synced.wait()
            tasks.create_task(pods.run())
            tasks.create_task(self._schedule())
            tasks.create_task(self._kubelet.run())
            tasks.create_task(self._scheduler.run())
            self.ready.set()

    async def stop(self, grace_seconds: float = STOP_GRACE_SECONDS, *, silently: bool = False) -> None:
        """Stop all pods as if they were deleted, and take no new ones. ``run`` goes on until it is cancelled.

        ``silently``: nobody is told, as when a machine goes down; the node that comes up next takes the pods up.
        """
        self._stopping = True
        if silently and self._workplace is not None:
            self._workplace.fall_silent()
        deadline = self._now() + timedelta(seconds=grace_seconds)
        running = list(self._running.values())
        for pod, _ in running:
            pod.delete(deadline)
        await asyncio.gather(*(task for _, task in running), return_exceptions=True)

    async def enter(self, pod: Manifest, container: str, command: Sequence[str], streams: Streams) -> Process:
        """Start a command in a container of a pod.

        Raises:
            NotRunning: the container does not run.
            CannotStart: the command does not begin.
        """
        task, _ = self._running.get(_uid(pod), (None, None))
        if task is None or not task.runs(container) or self._workplace is None:
            raise NotRunning
        specs = [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]
        spec = next(one for one in specs if one["name"] == container)
        try:
            return await self._workplace.enter(pod, spec, command, streams)
        except Unresolved as error:
            raise CannotStart(str(error)) from error

    def kill(self) -> None:
        """Stop all pods without any grace."""
        for pod, _ in self._running.values():
            pod.delete(self._now())

    def see_pod(self, before: Row | None, after: Row | None) -> None:
        """A pod has appeared, changed or gone."""
        if before is not None and (after is None or after.uid != before.uid):
            self.network.drop_pod((before.namespace, before.name))
            self._gone(before.manifest)
        if after is not None:
            self.network.put_pod(after.manifest)
            self._present(after.manifest)
        self._unplaced.set()

    def see_service(self, before: Row | None, after: Row | None) -> None:
        if after is not None:
            self.network.put_service(after.manifest)
        elif before is not None:
            self.network.drop_service((before.namespace, before.name))

    def _gone(self, pod: Manifest) -> None:
        """The object is gone, so its processes have no more time."""
        uid = pod["metadata"]["uid"]
        if uid in self._running:
            self._running[uid][1].cancel()
        self._seen.discard(uid)
        self._bound.discard(uid)
        self._refused.pop(uid, None)
        self.logs.forget(pod)
        self.isolation.forget(pod)

    def _present(self, pod: Manifest) -> None:
        meta = pod["metadata"]
        uid = meta["uid"]
        if pod["spec"].get("nodeName") != self.name or self._tasks is None:
            return
        if meta.get("deletionTimestamp"):
            if uid in self._running:
                grace = timedelta(seconds=meta.get("deletionGracePeriodSeconds") or 0)
                self._running[uid][0].delete(self._now() + grace)
            else:
                self._tasks.create_task(self._finish_deletion(pod))
        elif uid not in self._seen and scheduling.takes_room(pod) and not self._stopping:
            self._seen.add(uid)
            assert self._workplace is not None
            task = PodTask(pod, self._workplace)
            self._running[uid] = task, self._tasks.create_task(self._run_pod(task, pod))

    async def _run_pod(self, task: PodTask, pod: Manifest) -> None:
        meta = pod["metadata"]
        key = meta["namespace"], meta["name"]
        try:
            await asyncio.sleep(self._pace.pause_seconds(*key, self._now()))
            await task.run()
        finally:
            self._running.pop(meta["uid"], None)
            self._unplaced.set()
        latest = self.network.pods.get(key)
        if latest is not None and _uid(latest) == meta["uid"] and latest["metadata"].get("deletionTimestamp"):
            await self._finish_deletion(pod)

    async def _schedule(self) -> None:
        while True:
            await self._unplaced.wait()
            self._unplaced.clear()
            pods = list(self.network.pods.values())
            waiting = [pod for pod in pods if scheduling.is_waiting(pod) and _uid(pod) not in self._bound]
            taken = [pod for pod in pods if self._is_ours(pod) and scheduling.takes_room(pod)]
            if waiting and not self._stopping:
                plan = scheduling.schedule(waiting, self._capacity, taken)
                for pod in plan.bind:
                    await self._bind(pod)
                for pod, message in plan.refused:
                    await self._refuse(pod, message)

    def _is_ours(self, pod: Manifest) -> bool:
        """Whether the pod is bound to this node, or will be once our binding has come back to us."""
        return pod["spec"].get("nodeName") == self.name or _uid(pod) in self._bound

    async def _bind(self, pod: Manifest) -> None:
        meta = pod["metadata"]
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": meta["name"], "uid": meta["uid"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": self.name},
        }
        self._bound.add(meta["uid"])
        try:
            await self._client.create(
                PODS, meta["namespace"], orjson.dumps(binding), name=meta["name"], subresource="binding"
            )
        except (NotFound, Conflict):
            self._bound.discard(meta["uid"])  # It is gone or placed; its own event follows.
        except (ApiError, aiohttp.ClientError, TimeoutError) as error:
            self._bound.discard(meta["uid"])
            log.warning("a pod could not be bound", name=meta["name"], error=str(error))
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self._unplaced.set)
        else:
            self._refused.pop(meta["uid"], None)
            text = f"Successfully assigned {meta['namespace']}/{meta['name']} to {self.name}"
            self._scheduler.tell(pod, "Scheduled", text)

    async def _refuse(self, pod: Manifest, message: str) -> None:
        if self._refused.get(_uid(pod)) == message:
            return
        self._refused[_uid(pod)] = message
        self._scheduler.tell(pod, "FailedScheduling", message, warning=True)
        condition = scheduling.unschedulable(pod, message, self._now())
        assert self._workplace is not None
        await self._workplace.report(pod, {"phase": "Pending", "conditions": [condition]})

    async def _register(self) -> None:
        manifest = machine.node(self.name, self.isolation.node_address, self._capacity, self._now())
        with contextlib.suppress(AlreadyExists):
            await self._client.create(NODES, "", orjson.dumps(manifest))
        status_alone = orjson.dumps({"status": manifest["status"]})
        await self._client.patch(NODES, "", self.name, status_alone, subresource="status")

    def _make_workplace(self) -> Workplace:
        return Workplace(
            self._client,
            name=self.name,
            folder=self.isolation.folder,
            isolation=self.isolation,
            logs=self.logs,
            events=self._kubelet,
            allocatable=self._capacity,
            person=of_person(os.environ, sys.executable),
            now=self._now,
        )

    async def _finish_deletion(self, pod: Manifest) -> None:
        assert self._workplace is not None
        await self._workplace.finish_deletion(pod)


def _uid(pod: Manifest) -> str:
    return str(pod["metadata"]["uid"])
