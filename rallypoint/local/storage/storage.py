"""The persistent volume controller: binds claims to volumes, provisions volumes and removes them with their claims.

A provisioned volume is a folder on this machine. It outlives the pods that use it, and it is not removed while a pod
uses it. ``binding`` chooses the volume of a claim. The node reports pods with ``handle_pod``.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from api.meta import Resource
from controller.kube.client import Client
from controller.kube.errors import AlreadyExists, Conflict, NotFound
from controller.runtime.informer import Informer
from controller.runtime.queue import Queue
from controller.runtime.workers import ReconcileResult, Workers
from rallypoint.local import private
from rallypoint.local.apiserver.resources.persistentvolumes import CLAIM_FINALIZER, VOLUME_FINALIZER
from rallypoint.local.manifest import Manifest, Row, decode
from rallypoint.local.node.event_recorder import EventRecorder
from rallypoint.local.node.volumes.references import Unresolved
from rallypoint.local.node.volumes.setup import Volume, host_path, remove_tree
from rallypoint.local.storage import binding
from rallypoint.local.storage.binding import CLAIMS, Key

VOLUMES = Resource("", "v1", "PersistentVolume", "persistentvolumes", namespaced=False)
CLASSES = Resource("storage.k8s.io", "v1", "StorageClass", "storageclasses", namespaced=False)
SUPPORTED_SOURCES = ("hostPath", "local")
"""The volume sources that local mode supports in volumes of users."""
NO_CLASS = "no persistent volumes available for this claim and no storage class is set"


class Storage:
    """Controls the claims and volumes of one server while ``run`` runs."""

    def __init__(
        self,
        client: Client,
        folder: Path,
        *,
        changed: Callable[[], None],
        now: Callable[[], datetime],
    ) -> None:
        """``folder`` contains the folders of provisioned volumes; ``changed`` is called after a claim has changed."""
        self._client = client
        self._folder = folder
        self._changed = changed
        self._now = now
        self._queue: Queue[tuple[Resource, Key]] = Queue(group=lambda key: key[1][0])
        self._events = EventRecorder(client, "persistentvolume-controller", "", now)
        self._claims = Informer(client, CLAIMS, decode, self._claim_changed)
        self._volumes = Informer(client, VOLUMES, decode, self._volume_changed)
        self._users: dict[Key, dict[str, Manifest]] = {}
        """The pods that use a claim, by their UID."""

    async def run(self) -> None:
        with suppress(AlreadyExists):
            await self._client.create(CLASSES, "", orjson.dumps(dict(binding.CLASS)))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._volumes.run())
            tasks.create_task(self._claims.run())
            tasks.create_task(self._events.run())
            tasks.create_task(Workers(self._queue, self._reconcile, count=1, name="storage").run())

    async def synced(self) -> None:
        await self._volumes.synced.wait()
        await self._claims.synced.wait()

    def handle_pod(self, before: Manifest | None, after: Manifest | None) -> None:
        """Handle a pod that was added, changed or deleted."""
        if before is not None and (after is None or before["metadata"]["uid"] != after["metadata"]["uid"]):
            for key in _keys(before):
                self._users.get(key, {}).pop(before["metadata"]["uid"], None)
                self._queue.add((CLAIMS, key))
        if after is None:
            return
        for key in _keys(after):
            self._users.setdefault(key, {})[after["metadata"]["uid"]] = after
            self._queue.add((CLAIMS, key))

    def volume_conflict(self, pod: Manifest) -> str:
        """Return why the pod cannot be scheduled, in kube-scheduler's words; empty if it can."""
        names = [name for _, name in binding.claims(pod)]
        return (
            binding.volume_conflict(pod, self._find_claims(pod["metadata"]["namespace"], names))
            if names
            else ""
        )

    def volumes(self, pod: Manifest) -> dict[str, Volume]:
        """Return the volumes of the pod that claims back, by name. Creates missing folders.

        Raises:
            Unresolved: a claim is not bound, or local mode does not support the source of its volume.
        """
        return {
            volume["name"]: self._volume(pod["metadata"]["namespace"], name, volume)
            for volume, name in binding.claims(pod)
        }

    def _volume(self, namespace: str, name: str, volume: Manifest) -> Volume:
        claim = self._find_claims(namespace, [name]).get((namespace, name))
        if claim is None or not binding.is_bound(claim):
            raise Unresolved(f'persistentvolumeclaim "{name}" {"is not bound" if claim else "not found"}')
        row = self._volumes.store.get("", claim["spec"]["volumeName"])
        if row is None:
            raise Unresolved(f'persistentvolume "{claim["spec"]["volumeName"]}" not found')
        read_only = bool((volume.get("persistentVolumeClaim") or {}).get("readOnly"))
        return Volume(self._path(row.manifest), read_only)

    def _path(self, volume: Manifest) -> Path:
        if binding.is_provisioned(volume):
            path = private.folder(self._folder) / str(volume["metadata"]["name"])
            path.mkdir(exist_ok=True)
            return path
        for kind in SUPPORTED_SOURCES:
            if (source := volume["spec"].get(kind)) is not None:
                return host_path(volume["metadata"]["name"], source)
        raise Unresolved(
            f'persistentvolume "{volume["metadata"]["name"]}": '
            f"local mode supports only the volume sources {' and '.join(SUPPORTED_SOURCES)}"
        )

    def _find_claims(self, namespace: str, names: Iterable[str]) -> dict[Key, Manifest]:
        rows = ((name, self._claims.store.get(namespace, name)) for name in names)
        return {(namespace, name): row.manifest for name, row in rows if row is not None}

    def _claim_changed(self, before: Row | None, after: Row | None) -> None:
        row = after or before
        if row is None:
            return
        self._queue.add((CLAIMS, (row.namespace, row.name)))
        if after is None and (volume := row.manifest["spec"].get("volumeName")):
            self._queue.add((VOLUMES, ("", volume)))
        self._changed()

    def _volume_changed(self, before: Row | None, after: Row | None) -> None:
        row = after or before
        if row is None:
            return
        self._queue.add((VOLUMES, ("", row.name)))
        for claim in self._claims.store:
            if not binding.is_bound(claim.manifest):
                self._queue.add((CLAIMS, (claim.namespace, claim.name)))

    async def _reconcile(self, item: tuple[Resource, Key]) -> ReconcileResult:
        """Reconcile a claim or a volume. Read it from the server to see the writes of the previous reconcile."""
        resource, key = item
        found = await self._read(resource, key)
        if resource is VOLUMES:
            if found is not None:
                await self._reconcile_volume(found)
        elif found is None:
            await self._create_ephemeral_claims(key)
        elif found["metadata"].get("deletionTimestamp"):
            if not any(binding.is_in_use(pod) for pod in self._users.get(key, {}).values()):
                await self._remove_finalizer(CLAIMS, found, CLAIM_FINALIZER)
        elif not binding.is_bound(found):
            await self._bind(found)
        return ReconcileResult()

    async def _create_ephemeral_claims(self, key: Key) -> None:
        for pod in list(self._users.get(key, {}).values()):
            for volume, name in binding.claims(pod):
                if (
                    name == key[1]
                    and volume.get("ephemeral")
                    and not pod["metadata"].get("deletionTimestamp")
                ):
                    body = orjson.dumps(binding.ephemeral_claim(pod, volume, name))
                    with suppress(AlreadyExists):
                        await self._client.create(CLAIMS, key[0], body)

    async def _bind(self, claim: Manifest) -> None:
        if "storageClassName" not in claim["spec"]:
            await self._patch(CLAIMS, claim, {"spec": {"storageClassName": binding.DEFAULT_CLASS}})
            return  # The change triggers another reconcile.
        volume = binding.find_volume(claim, [row.manifest for row in self._volumes.store])
        if volume is None and claim["spec"].get("volumeName"):
            return
        if volume is None and not claim["spec"]["storageClassName"]:
            self._events.record(_about(claim), "FailedBinding", NO_CLASS)
            return
        if volume is None:
            volume = await self._provision(claim)
        elif not (volume["spec"].get("claimRef") or {}).get("uid"):
            await self._patch(VOLUMES, volume, {"spec": {"claimRef": binding.reference(claim)}})
        await self._patch(VOLUMES, volume, {"status": binding.volume_status("Bound", self._now())}, "status")
        await self._patch(CLAIMS, claim, binding.bound_claim(claim, volume))
        await self._patch(CLAIMS, claim, {"status": binding.bound_status(volume)}, "status")

    async def _provision(self, claim: Manifest) -> Manifest:
        """Create the volume of a claim, or read the one that an interrupted reconcile has created."""
        name = binding.volume_name(claim)
        body = orjson.dumps(binding.provisioned_volume(claim, self._folder / name))
        try:
            volume: Manifest = orjson.loads(await self._client.create(VOLUMES, "", body))
        except AlreadyExists:
            volume = orjson.loads(await self._client.get(VOLUMES, "", name))
        else:
            text = f"Successfully provisioned volume {name}"
            self._events.record(_about(claim), "ProvisioningSucceeded", text)
        return volume

    async def _reconcile_volume(self, volume: Manifest) -> None:
        claim_ref = volume["spec"].get("claimRef") or {}
        claim = await self._read(CLAIMS, (claim_ref["namespace"], claim_ref["name"])) if claim_ref else None
        phase = "Available"
        if uid := claim_ref.get("uid"):
            phase = "Bound" if claim is not None and claim["metadata"]["uid"] == uid else "Released"
        is_deleted = bool(volume["metadata"].get("deletionTimestamp"))
        if phase == "Released" and volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete":
            is_deleted = is_deleted or binding.is_provisioned(volume)
        if is_deleted and phase != "Bound":
            await self._remove(volume)
        elif (volume.get("status") or {}).get("phase") != phase:
            await self._patch(
                VOLUMES, volume, {"status": binding.volume_status(phase, self._now())}, "status"
            )

    async def _remove(self, volume: Manifest) -> None:
        """Remove a volume, its folder first, so that an interrupted removal is repeated."""
        if binding.is_provisioned(volume):
            await asyncio.to_thread(remove_tree, self._folder / volume["metadata"]["name"])
        await self._remove_finalizer(VOLUMES, volume, VOLUME_FINALIZER)
        name, uid = volume["metadata"]["name"], volume["metadata"]["uid"]
        with suppress(NotFound, Conflict):
            await self._client.delete(VOLUMES, "", name, uid=uid)

    async def _remove_finalizer(self, resource: Resource, obj: Manifest, finalizer: str) -> None:
        left = [name for name in obj["metadata"].get("finalizers") or () if name != finalizer]
        await self._patch(resource, obj, {"metadata": {"finalizers": left}})

    async def _patch(
        self, resource: Resource, obj: Manifest, changes: dict[str, Any], subresource: str = ""
    ) -> None:
        """Patch an object unless it was deleted or replaced; a watch event reports that."""
        meta = obj["metadata"]
        body = {**changes, "metadata": {**changes.get("metadata", {}), "uid": meta["uid"]}}
        namespace, name = meta.get("namespace", ""), meta["name"]
        with suppress(NotFound, Conflict):
            await self._client.patch(resource, namespace, name, orjson.dumps(body), subresource=subresource)

    async def _read(self, resource: Resource, key: Key) -> Manifest | None:
        try:
            found: Manifest = orjson.loads(await self._client.get(resource, *key))
        except NotFound:
            return None
        return found


def _keys(pod: Manifest) -> list[Key]:
    return [(pod["metadata"]["namespace"], name) for _, name in binding.claims(pod)]


def _about(claim: Manifest) -> Manifest:
    """Return a claim with the type that events refer to; items of a list have none."""
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **claim}
