"""What the workers of pods use: volumes, processes, status and events."""

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import structlog

from api.meta import PODS
from controller.kube.client import Client
from controller.kube.errors import Conflict, NotFound, ServerError, TooManyRequests
from rallypoint.local.manifest import Manifest
from rallypoint.local.node.containers import environment
from rallypoint.local.node.containers.environment import Variable, service_links
from rallypoint.local.node.containers.images import Images
from rallypoint.local.node.containers.launch import (
    BaseEnvironment,
    exec_launch,
    image_environment,
    launch,
    rejection,
)
from rallypoint.local.node.containers.process import CapturedProcess, Launch, Process, Streams
from rallypoint.local.node.containers.program import CannotStart, is_about_folder
from rallypoint.local.node.event_recorder import EventRecorder
from rallypoint.local.node.gpus import DeviceManager
from rallypoint.local.node.pods import dns_wait, termination_message
from rallypoint.local.node.pods.container_state import Container
from rallypoint.local.node.pods.dns_wait import DNSWait
from rallypoint.local.node.remote.target import is_equipped
from rallypoint.local.node.remote.tools import Tools
from rallypoint.local.node.resources import Amounts
from rallypoint.local.node.sandbox.isolation import Isolation
from rallypoint.local.node.streams.logs import Logs
from rallypoint.local.node.volumes import service_account
from rallypoint.local.node.volumes.downward_api import Placement
from rallypoint.local.node.volumes.manager import RESOURCES, VolumeManager
from rallypoint.local.node.volumes.references import CannotCreateContainer, Contents, Reference, decoded
from rallypoint.local.node.volumes.service_account import ApiServerAccess
from rallypoint.local.node.volumes.setup import Mount
from rallypoint.local.storage.storage import Storage

STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
RETRY_SECONDS = 1.0
"""The interval between retries of a write."""

log = structlog.get_logger()


class PodRuntime:
    """Runs the pods of one node."""

    def __init__(
        self,
        client: Client,
        *,
        name: str,
        isolation: Isolation,
        images: Images,
        tools: Tools,
        storage: Storage,
        access: ApiServerAccess,
        logs: Logs,
        events: EventRecorder,
        allocatable: Amounts,
        gpus: DeviceManager,
        user_env: Mapping[str, str],
        now: Callable[[], datetime],
    ) -> None:
        self.isolation = isolation
        self.logs = logs
        self.now = now
        self._client = client
        self._name = name
        self._tools = tools
        self._images = images
        self._access = access
        self._volumes = VolumeManager(
            client,
            isolation=isolation,
            storage=storage,
            access=access,
            fetch=self._contents,
            placement=self._placement,
            record_failure=lambda pod, why: self.record_event(pod, "FailedMount", why, warning=True),
        )
        self._events = events
        self._allocatable = allocatable
        self._gpus = gpus
        self._machine = BaseEnvironment(user_env, str(Path.cwd()))
        self._launches: dict[tuple[str, str], Launch] = {}
        """The launch of each started container; ``enter`` reuses its environment."""
        self._is_reporting_stopped = False

    def stop_reporting(self) -> None:
        """Write no status and no events any more, because the node is shutting down."""
        self._is_reporting_stopped = True

    async def run(self) -> None:
        """Update mounted volumes until cancelled."""
        await self._volumes.run()

    def handle_pod(self, pod: Manifest) -> None:
        self._volumes.handle_pod(pod)

    def rejection(self, pod: Manifest) -> str:
        """Return why the pod can never run here; empty if it can."""
        return rejection(pod, self._images.get) or self.isolation.rejection(pod)

    async def prepare(self, pod: Manifest) -> None:
        """Set up the pod's volumes.

        Raises:
            Unresolved: a required object does not exist.
        """
        self._tools.install(pod)
        await self._volumes.prepare(self._latest(pod))
        self._tools.protect(pod, self._volumes.folder(pod))

    async def start(self, pod: Manifest, container: Container, output: Callable[[bytes], None]) -> Process:
        """Start a container.

        Raises:
            Unresolved: a required object does not exist.
            CannotStart: the container can never start.
        """
        wait = dns_wait.of(container.spec) if container.is_init else None
        if wait is not None:
            namespace, network = pod["metadata"]["namespace"], self.isolation.network
            return DNSWait(wait, lambda name: bool(network.resolve(namespace, name)), output)
        termination_message.clear(container.spec, self._volumes.folder(pod))
        launch = await self._launch(pod, self._tools.replacement(pod, container.spec))
        self._launches[pod["metadata"]["uid"], container.name] = launch
        try:
            return await CapturedProcess.start(
                lambda streams: self.isolation.start(pod, container.name, launch, streams), output
            )
        except CannotStart as error:
            if is_about_folder(error):
                raise CannotCreateContainer(str(error)) from error
            raise

    async def enter(
        self,
        pod: Manifest,
        container: Manifest,
        command: Sequence[str],
        streams: Streams,
        *,
        verbatim: bool = False,
    ) -> Process:
        """Run ``command`` in a running container, with its environment.

        ``verbatim``: do not rewrite names and paths, because the command comes from a program in another pod, which
        sees them as they are here.

        Raises:
            CannotStart: the command cannot start.
        """
        started = self._launches.get((pod["metadata"]["uid"], container["name"]))
        if started is None:
            raise CannotStart(f"container {container['name']} has no process: the node itself does its work")
        launch = exec_launch(pod, started, command, self.isolation)
        if verbatim:
            launch = replace(launch, argv=list(command))
        return await self.isolation.enter(pod, container["name"], launch, streams)

    def read_termination_message(self, pod: Manifest, container: Manifest) -> str:
        """Return what a terminated container wrote to its termination log."""
        return termination_message.read(container, self._volumes.folder(pod))

    async def report(self, pod: Manifest, pod_status: dict[str, Any]) -> None:
        """Patch the fields of the pod's status that a kubelet owns. A deleted pod is no error."""
        if self._is_reporting_stopped:
            return
        meta = pod["metadata"]
        # A strategic merge patch keeps conditions of other writers.
        conditions = [
            {"reason": None, "message": None, **condition} for condition in pod_status.get("conditions") or ()
        ]
        status = {**pod_status, "conditions": conditions}
        body = orjson.dumps({"metadata": {"uid": meta["uid"]}, "status": status})
        await self._retry_until_answered(
            lambda: self._client.patch(
                PODS,
                meta["namespace"],
                meta["name"],
                body,
                content_type=STRATEGIC_MERGE_PATCH,
                subresource="status",
            )
        )

    async def finish_deletion(self, pod: Manifest) -> None:
        """Delete the object of a pod that no longer runs."""
        meta = pod["metadata"]
        await self._retry_until_answered(
            lambda: self._client.delete(
                PODS, meta["namespace"], meta["name"], uid=meta["uid"], grace_period_seconds=0
            )
        )

    def record_event(self, pod: Manifest, reason: str, message: str, *, warning: bool = False) -> None:
        if not self._is_reporting_stopped:
            self._events.record(pod, reason, message, warning=warning)

    def discard(self, pod: Manifest) -> None:
        """Release everything of a finished pod."""
        uid = pod["metadata"]["uid"]
        for key in [key for key in self._launches if key[0] == uid]:
            del self._launches[key]
        self.isolation.release(pod)
        self._tools.release(pod)
        self._volumes.discard(pod)

    async def _retry_until_answered(self, call: Callable[[], Any]) -> None:
        """Retry a call until the API server answers; NotFound and Conflict are answers."""
        while True:
            try:
                await call()
            except (NotFound, Conflict):
                return
            except (aiohttp.ClientError, TimeoutError, ServerError, TooManyRequests) as error:
                log.warning("write to the API server failed; retrying", error=str(error))
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    async def _launch(self, pod: Manifest, container: Manifest) -> Launch:
        latest = self._latest(pod)
        contents = await self._contents(pod, environment.references(container))
        sources = {reference: _texts(files) for reference, files in contents.items()}
        for message in environment.skipped(pod, container, sources):
            self.record_event(pod, "InvalidEnvironmentVariableNames", message, warning=True)
        links = service_links(pod, self.isolation.network.services.values()) | self._access.variables()
        found = environment.variables(latest, container, self._placement(pod), sources, links)
        launch_with_tools = launch(
            pod,
            container,
            found,
            self._mounts(pod, container, found),
            base=self._base(container),
            gpus=self._gpus.of(pod, container["name"]),
            isolation=self.isolation,
        )
        return replace(launch_with_tools, env=self._tools.on_path(pod, launch_with_tools.env))

    def _base(self, container: Manifest) -> BaseEnvironment:
        image = self._images.get(container.get("image", ""))
        return self._machine if image is None else image_environment(image, os.geteuid(), self._machine)

    def _mounts(self, pod: Manifest, container: Manifest, found: Mapping[str, Variable]) -> list[Mount]:
        mounts = [*self._volumes.mounts(pod, container, found), *self._tools.mounts(pod)]
        image = self._images.get(container.get("image", ""))
        if is_equipped(pod) and image is not None and image.folder is not None:
            mounts.append(Mount("", str(self._tools.folder), self._tools.folder))
        return mounts

    def _placement(self, pod: Manifest) -> Placement:
        address = self.isolation.pod_address(pod)
        return Placement(self._name, self.isolation.node_address, address, self._allocatable)

    def _latest(self, pod: Manifest) -> Manifest:
        """Return the latest version of the pod, whose labels and annotations may have changed."""
        meta = pod["metadata"]
        now = self.isolation.network.pods.get((meta["namespace"], meta["name"]))
        return now if now is not None and now["metadata"]["uid"] == meta["uid"] else pod

    async def _contents(self, pod: Manifest, references: Iterable[Reference]) -> Contents:
        namespace = pod["metadata"]["namespace"]
        return {reference: await self._files(namespace, reference) for reference in set(references)}

    async def _files(self, namespace: str, reference: Reference) -> dict[str, bytes] | None:
        try:
            found = await self._client.get(RESOURCES[reference.kind], namespace, reference.name)
        except NotFound:
            return {"ca.crt": self._access.authority} if reference == service_account.ROOT_CA else None
        return decoded(reference, orjson.loads(found))


def _texts(files: Mapping[str, bytes] | None) -> dict[str, str] | None:
    return None if files is None else {name: data.decode(errors="replace") for name, data in files.items()}
