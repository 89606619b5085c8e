"""The volumes of a node's pods, from their making to their end, and what a container mounts of them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeAlias

from controller.kube.client import Client
from rallypoint.local.manifest import Manifest
from rallypoint.local.node.containers.environment import Variable
from rallypoint.local.node.containers.program import CannotStart
from rallypoint.local.node.pods import termination_message
from rallypoint.local.node.sandbox.isolation import Isolation
from rallypoint.local.node.volumes import access, subpath, volumes
from rallypoint.local.node.volumes.access import Access
from rallypoint.local.node.volumes.clearing import clear
from rallypoint.local.node.volumes.downward import Place
from rallypoint.local.node.volumes.following import Following
from rallypoint.local.node.volumes.objects import Contents, Reference, Unresolved
from rallypoint.local.node.volumes.payload import Given
from rallypoint.local.node.volumes.volumes import Mount, Volume
from rallypoint.local.storage.storage import Storage

PINNED = ".pinned"
"""Among a pod's volumes: parts of those that objects fill, as they were when a container began."""

Fetch: TypeAlias = Callable[[Manifest, Iterable[Reference]], Awaitable[Contents]]
"""What objects of a pod's namespace hold."""


class Provisions:
    def __init__(
        self,
        client: Client,
        folder: Path,
        *,
        isolation: Isolation,
        storage: Storage,
        access: Access,
        fetch: Fetch,
        place: Callable[[Manifest], Place],
        failed: Callable[[Manifest, str], None],
    ) -> None:
        """``folder`` holds those of the pods; ``failed`` is told why volumes could not be brought up to date."""
        self._folder = folder
        self._isolation = isolation
        self._storage = storage
        self._access = access
        self._fetch = fetch
        self._place = place
        self._failed = failed
        self._following = Following(client, self._refill)
        self._places: dict[str, dict[str, Volume]] = {}
        self._clearing: set[asyncio.Future[None]] = set()

    async def run(self) -> None:
        """Keep up to date what pods have mounted, until cancelled."""
        await self._following.run()

    def see_pod(self, pod: Manifest) -> None:
        """A pod has changed."""
        self._following.see_pod(pod)

    def folder(self, pod: Manifest) -> Path:
        return self._folder / str(pod["metadata"]["uid"])

    async def prepare(self, pod: Manifest) -> None:
        """Make a pod's volumes and what its containers share.

        Raises:
            Unresolved: something that they need does not exist, or they cannot be made.
        """
        admitted = self._admitted(pod)
        self._following.add(admitted)
        claimed, given = self._storage.places(pod), await self._given(admitted)
        places = volumes.make(admitted, self.folder(pod), given, claimed)
        try:
            await self._isolation.prepare(pod, {name: volume.path for name, volume in places.items()})
        except CannotStart as error:
            raise Unresolved(f"Failed to create pod sandbox: {error}") from error
        self._places[pod["metadata"]["uid"]] = places

    def mounts(self, pod: Manifest, container: Manifest, found: Mapping[str, Variable]) -> list[Mount]:
        """What a container with these variables mounts.

        Raises:
            Unresolved: a part of a volume cannot be had.
        """
        own, places = self.folder(pod), self._places[pod["metadata"]["uid"]]
        values = {name: variable.value for name, variable in found.items()}
        if self._access.is_given(pod):
            container = access.with_mount(container)
        mounts = subpath.mounts(container, places, values, own / PINNED / container["name"])
        return [*mounts, termination_message.mount(container, own)]

    def forget(self, pod: Manifest) -> None:
        """Nothing of the pod runs any more."""
        self._following.drop(self._admitted(pod))
        self._places.pop(pod["metadata"]["uid"], None)
        # Much may be in there. Nobody waits for it: what is left at the end goes with the folder of all volumes.
        clearing = asyncio.get_running_loop().run_in_executor(None, clear, self.folder(pod))
        self._clearing.add(clearing)
        clearing.add_done_callback(self._clearing.discard)

    async def _refill(self, pod: Manifest) -> bool:
        if pod["metadata"]["uid"] not in self._places:
            return False
        given = await self._given(pod)
        if (
            pod["metadata"]["uid"] not in self._places
        ):  # It has ended while we asked; its folder must not come back.
            return True
        try:
            volumes.refill(pod, self.folder(pod), given)
        except Unresolved as error:
            self._failed(pod, str(error))  # What is there stays.
        return True

    def _admitted(self, pod: Manifest) -> Manifest:
        return access.with_volume(pod) if self._access.is_given(pod) else pod

    async def _given(self, pod: Manifest) -> Given:
        """``pod`` is the one with all volumes."""
        return Given(
            pod=pod,
            place=self._place(pod),
            contents=await self._fetch(pod, volumes.references(pod)),
            token=partial(self._access.token, pod),
            rewrite=lambda text: self._isolation.rewrite(pod, text),
        )
