"""The controller of claims: binds each to a volume, makes folders for them, and removes these with the claim.

A claim is a folder of this machine. It outlives the pods that use it, and as long as they do nobody takes it away.
Which volume it gets is decided by ``binding``; pods are told by the node, which sees them anyway.
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
from rallypoint.local.storage import binding, using
from rallypoint.local.storage.using import CLAIMS, Key

VOLUMES = Resource("", "v1", "PersistentVolume", "persistentvolumes", namespaced=False)
CLASSES = Resource("storage.k8s.io", "v1", "StorageClass", "storageclasses", namespaced=False)
MADE_OF = ("hostPath", "local")
"""What volumes that people make may be, here."""
NO_CLASS = "no persistent volumes available for this claim and no storage class is set"


class Storage:
    """Runs the claims of one server while ``run`` runs."""

    def __init__(
        self,
        client: Client,
        folder: Path,
        *,
        changed: Callable[[], None],
        now: Callable[[], datetime],
    ) -> None:
        """``folder`` holds the folders of volumes; ``changed`` is told when a claim has, so that pods may go on."""
        self._client = client
        self._folder = folder
        self._changed = changed
        self._now = now
        self._queue: Queue[tuple[Resource, Key]] = Queue(group=lambda key: key[1][0])
        self._events = EventRecorder(client, "persistentvolume-controller", "", now)
        self._claims = Informer(client, CLAIMS, decode, self._claim_changed)
        self._volumes = Informer(client, VOLUMES, decode, self._volume_changed)
        self._users: dict[Key, dict[str, Manifest]] = {}
        """Claim → the pods that name it, by uid."""

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
        """A pod has appeared, changed or gone."""
        if before is not None and (after is None or before["metadata"]["uid"] != after["metadata"]["uid"]):
            for key in _keys(before):
                self._users.get(key, {}).pop(before["metadata"]["uid"], None)
                self._queue.add((CLAIMS, key))
        for key in () if after is None else _keys(after):
            assert after is not None
            self._users.setdefault(key, {})[after["metadata"]["uid"]] = after
            self._queue.add((CLAIMS, key))

    def volume_conflict(self, pod: Manifest) -> str:
        """Why the pod cannot be placed yet, in kube-scheduler's words; empty when it can."""
        names = [name for _, name in using.claims(pod)]
        return using.volume_conflict(pod, self._known(pod["metadata"]["namespace"], names)) if names else ""

    def volumes(self, pod: Manifest) -> dict[str, Volume]:
        """Where the volumes of claims are, made if they are missing.

        Raises:
            Unresolved: a claim is not bound, or is bound to something that local mode does not provide.
        """
        return {
            volume["name"]: self._volume(pod["metadata"]["namespace"], name, volume)
            for volume, name in using.claims(pod)
        }

    def _volume(self, namespace: str, name: str, volume: Manifest) -> Volume:
        claim = self._known(namespace, [name]).get((namespace, name))
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
        for kind in MADE_OF:
            if (given := volume["spec"].get(kind)) is not None:
                return host_path(volume["metadata"]["name"], given)
        raise Unresolved(
            f'persistentvolume "{volume["metadata"]["name"]}" is none of '
            f"{' and '.join(MADE_OF)}, which is all that local mode provides"
        )

    def _known(self, namespace: str, names: Iterable[str]) -> dict[Key, Manifest]:
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

    async def _reconcile(self, what: tuple[Resource, Key]) -> ReconcileResult:
        """One pass over a claim or a volume, read anew, so that a pass sees what the one before it did."""
        resource, key = what
        found = await self._read(resource, key)
        if resource is VOLUMES:
            if found is not None:
                await self._reconcile_volume(found)
        elif found is None:
            await self._make_ephemeral(key)
        elif found["metadata"].get("deletionTimestamp"):
            if not any(using.is_in_use(pod) for pod in self._users.get(key, {}).values()):
                await self._unprotect(CLAIMS, found, CLAIM_FINALIZER)
        elif not binding.is_bound(found):
            await self._bind(found)
        return ReconcileResult()

    async def _make_ephemeral(self, key: Key) -> None:
        for pod in list(self._users.get(key, {}).values()):
            for volume, name in using.claims(pod):
                if (
                    name == key[1]
                    and volume.get("ephemeral")
                    and not pod["metadata"].get("deletionTimestamp")
                ):
                    body = orjson.dumps(using.ephemeral_claim(pod, volume, name))
                    with suppress(AlreadyExists):
                        await self._client.create(CLAIMS, key[0], body)

    async def _bind(self, claim: Manifest) -> None:
        if "storageClassName" not in claim["spec"]:
            await self._patch(CLAIMS, claim, {"spec": {"storageClassName": binding.DEFAULT_CLASS}})
            return  # Its change brings it back.
        volume = binding.find_volume(claim, [row.manifest for row in self._volumes.store])
        if volume is None and claim["spec"].get("volumeName"):
            return
        if volume is None and not claim["spec"]["storageClassName"]:
            self._events.record(_about(claim), "FailedBinding", NO_CLASS)
            return
        if volume is None:
            volume = await self._provision(claim)
        elif not (volume["spec"].get("claimRef") or {}).get("uid"):
            held = {"spec": {"claimRef": binding.reference(claim)}}
            await self._patch(VOLUMES, volume, held)
        await self._patch(VOLUMES, volume, {"status": binding.volume_status("Bound", self._now())}, "status")
        await self._patch(CLAIMS, claim, binding.bound_claim(claim, volume))
        await self._patch(CLAIMS, claim, {"status": binding.bound_status(volume)}, "status")

    async def _provision(self, claim: Manifest) -> Manifest:
        """Make a volume; one that is there already was made by a pass that did not come to its end."""
        name = binding.volume_name(claim)
        body = orjson.dumps(binding.provisioned_volume(claim, self._folder / name))
        try:
            made: Manifest = orjson.loads(await self._client.create(VOLUMES, "", body))
        except AlreadyExists:
            made = orjson.loads(await self._client.get(VOLUMES, "", name))
        else:
            text = f"Successfully provisioned volume {name}"
            self._events.record(_about(claim), "ProvisioningSucceeded", text)
        return made

    async def _reconcile_volume(self, volume: Manifest) -> None:
        held = volume["spec"].get("claimRef") or {}
        claim = await self._read(CLAIMS, (held["namespace"], held["name"])) if held else None
        is_bound = claim is not None and claim["metadata"]["uid"] == held.get("uid", claim["metadata"]["uid"])
        phase = "Bound" if is_bound and held.get("uid") else "Released" if held.get("uid") else "Available"
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
        """The folder first: what is left when this is cut off is removed by the next pass."""
        if binding.is_provisioned(volume):
            await asyncio.to_thread(remove_tree, self._folder / volume["metadata"]["name"])
        await self._unprotect(VOLUMES, volume, VOLUME_FINALIZER)
        name, uid = volume["metadata"]["name"], volume["metadata"]["uid"]
        with suppress(NotFound, Conflict):
            await self._client.delete(VOLUMES, "", name, uid=uid)

    async def _unprotect(self, resource: Resource, obj: Manifest, finalizer: str) -> None:
        left = [name for name in obj["metadata"].get("finalizers") or () if name != finalizer]
        await self._patch(resource, obj, {"metadata": {"finalizers": left}})

    async def _patch(
        self, resource: Resource, obj: Manifest, changes: dict[str, Any], subresource: str = ""
    ) -> None:
        """Change this very object; that it is gone is told by another event."""
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
    return [(pod["metadata"]["namespace"], name) for _, name in using.claims(pod)]


def _about(claim: Manifest) -> Manifest:
    """A claim as events name it."""
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **claim}
