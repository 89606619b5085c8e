"""Sets up, updates and removes the volumes of pods, and resolves the mounts of containers."""

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
from rallypoint.local.node.volumes import container_mounts, service_account, setup
from rallypoint.local.node.volumes.downward_api import Placement
from rallypoint.local.node.volumes.projected import ProjectionSources
from rallypoint.local.node.volumes.references import Contents, Reference, Unresolved
from rallypoint.local.node.volumes.removal import remove_tree
from rallypoint.local.node.volumes.service_account import ApiServerAccess
from rallypoint.local.node.volumes.setup import Mount, Volume
from rallypoint.local.node.volumes.updater import VolumeUpdater
from rallypoint.local.storage.storage import Storage

SUBPATH_COPIES = ".pinned"
"""A folder beside a pod's volumes: copies of subpaths of projected volumes, taken when a container starts."""

Fetch: TypeAlias = Callable[[Manifest, Iterable[Reference]], Awaitable[Contents]]
"""Fetches the data of objects in a pod's namespace."""


class VolumeManager:
    def __init__(
        self,
        client: Client,
        folder: Path,
        *,
        isolation: Isolation,
        storage: Storage,
        access: ApiServerAccess,
        fetch: Fetch,
        placement: Callable[[Manifest], Placement],
        record_failure: Callable[[Manifest, str], None],
    ) -> None:
        """``folder`` is the parent of the pods' folders; ``record_failure`` records why an update failed."""
        self._folder = folder
        self._isolation = isolation
        self._storage = storage
        self._access = access
        self._fetch = fetch
        self._placement = placement
        self._record_failure = record_failure
        self._updater = VolumeUpdater(client, self._refresh)
        self._volumes_by_pod: dict[str, dict[str, Volume]] = {}
        self._removals: set[asyncio.Future[None]] = set()

    async def run(self) -> None:
        """Update projected volumes until cancelled."""
        await self._updater.run()

    def handle_pod(self, pod: Manifest) -> None:
        """Handle a changed pod."""
        self._updater.handle_pod(pod)

    def folder(self, pod: Manifest) -> Path:
        return self._folder / str(pod["metadata"]["uid"])

    async def prepare(self, pod: Manifest) -> None:
        """Set up a pod's volumes and its sandbox.

        Raises:
            Unresolved: a required object does not exist, or a volume or the sandbox cannot be created.
        """
        admitted = self._with_service_account(pod)
        self._updater.add(admitted)
        claims, sources = self._storage.volumes(pod), await self._projection_sources(admitted)
        volumes = setup.make(admitted, self.folder(pod), sources, claims)
        try:
            await self._isolation.prepare(pod, {name: volume.path for name, volume in volumes.items()})
        except CannotStart as error:
            raise Unresolved(f"Failed to create pod sandbox: {error}") from error
        self._volumes_by_pod[pod["metadata"]["uid"]] = volumes

    def mounts(self, pod: Manifest, container: Manifest, found: Mapping[str, Variable]) -> list[Mount]:
        """Return the mounts of a container with these variables.

        Raises:
            Unresolved: a subpath cannot be prepared.
        """
        own, volumes = self.folder(pod), self._volumes_by_pod[pod["metadata"]["uid"]]
        values = {name: variable.value for name, variable in found.items()}
        if self._access.is_given(pod):
            container = service_account.with_mount(container)
        mounts = container_mounts.mounts(container, volumes, values, own / SUBPATH_COPIES / container["name"])
        return [*mounts, termination_message.mount(container, own)]

    def discard(self, pod: Manifest) -> None:
        """Remove the volumes of a pod that no longer runs."""
        self._updater.drop(self._with_service_account(pod))
        self._volumes_by_pod.pop(pod["metadata"]["uid"], None)
        # Removal may be slow, so it runs in the background. The node removes what is left with its folder of volumes.
        removal = asyncio.get_running_loop().run_in_executor(None, remove_tree, self.folder(pod))
        self._removals.add(removal)
        removal.add_done_callback(self._removals.discard)

    async def _refresh(self, pod: Manifest) -> bool:
        if pod["metadata"]["uid"] not in self._volumes_by_pod:
            return False
        sources = await self._projection_sources(pod)
        if (
            pod["metadata"]["uid"] not in self._volumes_by_pod
        ):  # It ended meanwhile; do not recreate its folder.
            return True
        try:
            setup.refresh(pod, self.folder(pod), sources)
        except Unresolved as error:
            self._record_failure(pod, str(error))  # The volume keeps its files.
        return True

    def _with_service_account(self, pod: Manifest) -> Manifest:
        return service_account.with_volume(pod) if self._access.is_given(pod) else pod

    async def _projection_sources(self, pod: Manifest) -> ProjectionSources:
        """``pod`` includes the service account volume."""
        return ProjectionSources(
            pod=pod,
            placement=self._placement(pod),
            contents=await self._fetch(pod, setup.references(pod)),
            token=partial(self._access.token, pod),
            rewrite=lambda text: self._isolation.rewrite(pod, text),
        )
