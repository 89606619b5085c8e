"""The local node: a kubelet and a scheduler in one, for one machine.

It watches pods and Services, binds pods (``scheduler``), runs each bound pod in a worker (``pods.worker``) and completes
the deletion of pods. It communicates through the API server only, as in a cluster.
"""

import asyncio
import os
import socket
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import orjson

from api.meta import PODS, SERVICES
from controller.kube.client import Client
from controller.kube.errors import AlreadyExists
from controller.runtime import clock
from controller.runtime.informer import Informer
from rallypoint.local.manifest import Manifest, Row, containers, decode
from rallypoint.local.node.containers.images import NO_IMAGES, Images
from rallypoint.local.node.containers.launch import user_environment
from rallypoint.local.node.containers.process import Process, Streams
from rallypoint.local.node.containers.program import CannotStart
from rallypoint.local.node.event_recorder import EventRecorder
from rallypoint.local.node.gpus import DeviceManager
from rallypoint.local.node.machine import Machine, node
from rallypoint.local.node.pods.runtime import PodRuntime
from rallypoint.local.node.pods.worker import PodWorker
from rallypoint.local.node.remote.exec_server import ExecServer
from rallypoint.local.node.remote.tools import Tools
from rallypoint.local.node.resources import Rejection, rejection
from rallypoint.local.node.sandbox.isolation import Isolation
from rallypoint.local.node.scheduler.fit import is_active
from rallypoint.local.node.scheduler.scheduler import NODES, Scheduler
from rallypoint.local.node.streams.exec_endpoint import NotRunning
from rallypoint.local.node.streams.logs import Logs
from rallypoint.local.node.volumes.references import Unresolved
from rallypoint.local.node.volumes.service_account import ApiServerAccess
from rallypoint.local.storage.storage import Storage

STOP_GRACE_SECONDS = 5.0
"""The grace period of processes when the node stops."""

FREE_STARTS = 2
LONGEST_SECONDS = 30.0
RESET_SECONDS = 60.0
"""A name without a start for this long has no back-off."""


class Node:
    """Runs pods on this machine while ``run`` runs. ``stop`` ends them; cancelling ``run`` kills what is left."""

    def __init__(
        self,
        client: Client,
        folder: Path,
        *,
        isolation: Isolation,
        images: Images = NO_IMAGES,
        access: ApiServerAccess,
        claims: Path | None = None,
        machine: Machine,
        gang_scheduler: str = "",
        real_ssh: bool = False,
        name: str = "local",
        now: Callable[[], datetime] = clock.now,
    ) -> None:
        """``claims`` is the folder for the data of claims; without it the data is removed when the node stops."""
        self.name = name
        self.logs = Logs(folder / "logs")
        self.isolation = isolation
        self.network = isolation.network
        self.machine = machine
        self._client = client
        self._now = now
        self._gpus = DeviceManager(machine.gpus, hides=machine.hides_gpus)
        self._events = EventRecorder(client, "kubelet", name, now)
        self._storage = Storage(
            client, claims or isolation.folder / ".claims", changed=lambda: self._scheduler.wake(), now=now
        )
        self._tools = Tools(isolation.folder / ".remote", real_ssh=real_ssh)
        self._runtime = PodRuntime(
            client,
            name=name,
            isolation=isolation,
            images=images,
            tools=self._tools,
            storage=self._storage,
            access=access,
            logs=self.logs,
            events=self._events,
            allocatable=machine.capacity,
            gpus=self._gpus,
            user_env=user_environment(os.environ, sys.executable, is_root=os.geteuid() == 0),
            now=now,
        )
        self._scheduler = Scheduler(
            client,
            name,
            self.network.pods,
            self._runtime.report,
            volume_conflict=self._storage.volume_conflict,
            gang_scheduler=gang_scheduler,
            now=now,
        )
        self._running: dict[str, tuple[PodWorker, asyncio.Task[None]]] = {}
        self._accepted: set[str] = set()
        self._start_backoff = StartBackoff()
        self._tasks: asyncio.TaskGroup | None = None
        self._stopping = False
        self.ready = asyncio.Event()
        """Set once the node is registered and watches."""

    async def run(self) -> None:
        """Run pods until cancelled. When this returns, no process of any pod is left."""
        remote = ExecServer(self._tools.folder, self.network, partial(self.enter, verbatim=True))
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            await self._register()
            pods = Informer(self._client, PODS, decode, self.handle_pod)
            services = Informer(self._client, SERVICES, decode, self.handle_service)
            tasks.create_task(services.run())
            tasks.create_task(self._storage.run())
            await services.synced.wait()
            await self._storage.synced()
            tasks.create_task(self._runtime.run())
            tasks.create_task(pods.run())
            tasks.create_task(remote.run())
            tasks.create_task(self._scheduler.run())
            tasks.create_task(self._events.run())
            self.ready.set()

    async def stop(self, grace_seconds: float = STOP_GRACE_SECONDS, *, silently: bool = False) -> None:
        """Stop all pods as if they were deleted, and start no new ones. ``run`` continues until it is cancelled.

        ``silently``: write no status, as in a power failure; the next node process continues the pods.
        """
        self._stopping = True
        self._scheduler.stop()
        if silently:
            self._runtime.stop_reporting()
        deadline = self._now() + timedelta(seconds=grace_seconds)
        running = list(self._running.values())
        for pod, _ in running:
            pod.delete(deadline)
        await asyncio.gather(*(task for _, task in running), return_exceptions=True)

    async def enter(
        self,
        pod: Manifest,
        container: str,
        command: Sequence[str],
        streams: Streams,
        *,
        verbatim: bool = False,
    ) -> Process:
        """Start a command in a container of a pod; ``verbatim`` as in ``PodRuntime.enter``.

        Raises:
            NotRunning: the container does not run.
            CannotStart: the command cannot start.
        """
        task, _ = self._running.get(_uid(pod), (None, None))
        if task is None or not task.runs(container):
            raise NotRunning
        spec = next(spec for spec in containers(pod) if spec["name"] == container)
        try:
            return await self._runtime.enter(pod, spec, command, streams, verbatim=verbatim)
        except Unresolved as error:
            raise CannotStart(str(error)) from error

    def gpus_of_running_pods(self) -> dict[str, tuple[str, ...]]:
        """Return the UUIDs of the GPUs of each running pod, by the pod's UID; pods without GPUs too."""
        return {uid: self._gpus.allocated(uid) for uid in self._running}

    async def connect(self, pod: Manifest, port: int) -> socket.socket:
        """Connect to a port of a pod, as in ``Isolation.connect``.

        Raises:
            NotRunning: the pod does not run.
            OSError: the connection failed.
        """
        if _uid(pod) not in self._running:
            raise NotRunning
        return await self.isolation.connect(pod, port)

    def kill(self) -> None:
        """Stop all pods without any grace."""
        for pod, _ in self._running.values():
            pod.delete(self._now())

    def handle_pod(self, before: Row | None, after: Row | None) -> None:
        self._storage.handle_pod(*(None if row is None else row.manifest for row in (before, after)))
        if before is not None and (after is None or after.uid != before.uid):
            self.network.drop_pod((before.namespace, before.name))
            self._gone(before.manifest)
        if after is not None:
            self.network.put_pod(after.manifest)
            self._runtime.handle_pod(after.manifest)
            self._present(after.manifest)
        self._scheduler.wake()

    def handle_service(self, before: Row | None, after: Row | None) -> None:
        if after is not None:
            self.network.put_service(after.manifest)
        elif before is not None:
            self.network.drop_service((before.namespace, before.name))

    def _gone(self, pod: Manifest) -> None:
        """Kill the processes of a pod whose object is deleted."""
        uid = pod["metadata"]["uid"]
        if uid in self._running:
            self._running[uid][1].cancel()
        self._accepted.discard(uid)
        self._scheduler.discard(uid)
        self.logs.discard(pod)
        self.logs.record_deletion(pod)
        self.isolation.discard(pod)

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
                self._tasks.create_task(self._runtime.finish_deletion(pod))
        elif uid in self._running:
            self._running[uid][0].update(pod)
        elif uid not in self._accepted and is_active(pod) and not self._stopping:
            refused = None if self._scheduler.has_bound(pod) else self._rejection(pod)
            self._accepted.add(uid)
            if refused is not None:
                self._tasks.create_task(self._reject(pod, refused))
                return
            task = PodWorker(pod, self._runtime)
            self._running[uid] = task, self._tasks.create_task(self._run_pod(task, pod))

    async def _run_pod(self, task: PodWorker, pod: Manifest) -> None:
        meta = pod["metadata"]
        key = meta["namespace"], meta["name"]
        try:
            await task.wait_to_start(self._start_backoff.next_delay_seconds(*key, self._now()))
            await self._gpus.allocate(pod)
            await task.run()
        finally:
            self._gpus.release(pod)
            self._running.pop(meta["uid"], None)
            self._scheduler.wake()
        latest = self.network.pods.get(key)
        if latest is not None and _uid(latest) == meta["uid"] and latest["metadata"].get("deletionTimestamp"):
            await self._runtime.finish_deletion(pod)

    def _rejection(self, pod: Manifest) -> Rejection | None:
        others = [
            other
            for other in self.network.pods.values()
            if _uid(other) in self._accepted and is_active(other)
        ]
        return rejection(pod, others, self.machine.capacity)

    async def _reject(self, pod: Manifest, refused: Rejection) -> None:
        self._events.record(pod, refused.reason, refused.message, warning=True)
        await self._runtime.report(pod, refused.status)

    async def _register(self) -> None:
        manifest = node(self.name, self.isolation.node_address, self.machine, self._now())
        try:
            await self._client.create(NODES, "", orjson.dumps(manifest))
        except AlreadyExists:
            labels = orjson.dumps({"metadata": {"labels": manifest["metadata"]["labels"]}})
            await self._client.patch(NODES, "", self.name, labels)
        status_alone = orjson.dumps({"status": manifest["status"]})
        await self._client.patch(NODES, "", self.name, status_alone, subresource="status")


def _uid(pod: Manifest) -> str:
    return str(pod["metadata"]["uid"])


class StartBackoff:
    """The back-off between pods of the same name.

    In a cluster a new pod takes seconds to start, which slows down an operator that replaces failed pods. A local
    process starts in milliseconds, and a job that fails at once would fill the disk with logs.
    """

    def __init__(self) -> None:
        self._starts: dict[tuple[str, str], tuple[int, datetime]] = {}

    def next_delay_seconds(self, namespace: str, name: str, now: datetime) -> float:
        """Record a start of this name and return its delay in seconds."""
        count, last = self._starts.get((namespace, name), (0, now))
        if now - last > timedelta(seconds=RESET_SECONDS):
            count = 0
        pause = 0.0 if count < FREE_STARTS else min(2.0 ** (count - FREE_STARTS), LONGEST_SECONDS)
        self._starts[namespace, name] = count + 1, now + timedelta(seconds=pause)
        return pause
