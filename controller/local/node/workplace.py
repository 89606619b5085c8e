"""What the node gives to each pod: volumes, processes, reports to the API server. The ``Surroundings`` of ``pod``."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import structlog

from api.meta import PODS, Resource
from controller.kube.client import Client
from controller.kube.errors import Conflict, NotFound, ServerError, TooManyRequests
from controller.local.manifest import Manifest
from controller.local.node import environment, volumes, waiting
from controller.local.node.capacity import Amounts
from controller.local.node.containers import Container
from controller.local.node.environment import Place, Reference, Unresolved
from controller.local.node.events import Events
from controller.local.node.isolation import Isolation
from controller.local.node.launch import launch, refusal
from controller.local.node.logs import Logs
from controller.local.node.process import Captured, Launch, Process, Streams
from controller.local.node.program import CannotStart
from controller.local.node.waiting import NameWait

CONFIG_MAPS = Resource("", "v1", "ConfigMap", "configmaps")
SECRETS = Resource("", "v1", "Secret", "secrets")
RETRY_SECONDS = 1.0
"""Between two tries of a write that must arrive."""

log = structlog.get_logger()


class Workplace:
    """One node's means, shared by its pods."""

    def __init__(
        self,
        client: Client,
        *,
        name: str,
        folder: Path,
        isolation: Isolation,
        logs: Logs,
        events: Events,
        allocatable: Amounts,
        person: Mapping[str, str],
        now: Callable[[], datetime],
    ) -> None:
        self.isolation = isolation
        self.logs = logs
        self.now = now
        self._client = client
        self._name = name
        self._folder = folder
        self._events = events
        self._allocatable = allocatable
        self._person = person
        self._places: dict[str, dict[str, Path]] = {}
        self._silent = False

    def fall_silent(self) -> None:
        """Report nothing of pods any more: they end because the node does."""
        self._silent = True

    def refusal(self, pod: Manifest) -> str:
        return refusal(pod) or self.isolation.refusal(pod)

    async def prepare(self, pod: Manifest) -> None:
        contents = await self._contents(pod, volumes.references(pod))
        places = volumes.make(
            pod, self._volumes(pod), contents, lambda text: self.isolation.rewrite(pod, text)
        )
        try:
            await self.isolation.prepare(pod, places)
        except CannotStart as error:
            raise Unresolved(f"Failed to create pod sandbox: {error}") from error
        self._places[pod["metadata"]["uid"]] = places

    async def start(self, pod: Manifest, container: Container, output: Callable[[bytes], None]) -> Process:
        wait = waiting.of(container.spec) if container.is_init else None
        if wait is not None:
            namespace, network = pod["metadata"]["namespace"], self.isolation.network
            return NameWait(wait, lambda name: bool(network.resolve(namespace, name)), output)
        launch = await self._launch(pod, container.spec)
        return await Captured.start(
            lambda streams: self.isolation.start(pod, container.name, launch, streams), output
        )

    async def enter(
        self, pod: Manifest, container: Manifest, command: Sequence[str], streams: Streams
    ) -> Process:
        """Run ``command`` in a container that runs, with its environment.

        Raises:
            CannotStart: it does not begin.
            Unresolved: something that the environment needs does not exist any more.
        """
        # Nothing of a command is expanded here; its first reader is the program itself.
        written = [part.replace("$", "$$") for part in command]
        launch = await self._launch(pod, {**container, "command": written, "args": []})
        return await self.isolation.enter(pod, container["name"], launch, streams)

    async def report(self, pod: Manifest, pod_status: dict[str, Any]) -> None:
        if self._silent:
            return
        meta = pod["metadata"]
        body = orjson.dumps({"metadata": {"uid": meta["uid"]}, "status": pod_status})
        await self._until_answered(
            lambda: self._client.patch(PODS, meta["namespace"], meta["name"], body, subresource="status")
        )

    async def finish_deletion(self, pod: Manifest) -> None:
        """The last step of a pod's deletion, the node's to take: nothing of it runs any more."""
        meta = pod["metadata"]
        await self._until_answered(
            lambda: self._client.delete(
                PODS, meta["namespace"], meta["name"], uid=meta["uid"], grace_period_seconds=0
            )
        )

    def tell(self, pod: Manifest, reason: str, message: str, *, warning: bool = False) -> None:
        if not self._silent:
            self._events.tell(pod, reason, message, warning=warning)

    def forget(self, pod: Manifest) -> None:
        self._places.pop(pod["metadata"]["uid"], None)
        self.isolation.release(pod)
        volumes.remove(self._volumes(pod))

    def _volumes(self, pod: Manifest) -> Path:
        return self._folder / str(pod["metadata"]["uid"])

    async def _until_answered(self, call: Callable[[], Any]) -> None:
        """Make a call until the API server has answered it; that the pod is gone or another one is an answer."""
        while True:
            try:
                await call()
            except (NotFound, Conflict):
                return
            except (aiohttp.ClientError, TimeoutError, ServerError, TooManyRequests) as error:
                log.warning("the API server did not take a write of the node", error=str(error))
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    async def _launch(self, pod: Manifest, container: Manifest) -> Launch:
        contents = await self._contents(pod, environment.references(container))
        address = self.isolation.pod_address(pod)
        return launch(
            pod,
            container,
            place=Place(self._name, self.isolation.node_address, address, self._allocatable),
            sources={reference: _texts(files) for reference, files in contents.items()},
            mounts=volumes.mounts(container, self._places[pod["metadata"]["uid"]]),
            person=self._person,
            isolation=self.isolation,
        )

    async def _contents(
        self, pod: Manifest, references: Iterable[Reference]
    ) -> dict[Reference, dict[str, bytes] | None]:
        namespace = pod["metadata"]["namespace"]
        return {reference: await self._files(namespace, reference) for reference in set(references)}

    async def _files(self, namespace: str, reference: Reference) -> dict[str, bytes] | None:
        resource = SECRETS if reference.kind == "secret" else CONFIG_MAPS
        try:
            found = await self._client.get(resource, namespace, reference.name)
        except NotFound:
            return None
        return volumes.decoded(reference, orjson.loads(found))


def _texts(files: Mapping[str, bytes] | None) -> dict[str, str] | None:
    return None if files is None else {name: data.decode(errors="replace") for name, data in files.items()}
