"""Updates the projected volumes of running pods when a ConfigMap, a Secret or the pod's metadata changes.

One metadata watch of ConfigMaps and one of Secrets report changes; the updater then reads the objects that pods mount.
A kubelet does the same, mostly within a minute.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

from api.meta import Resource
from controller.kube.client import METADATA_ONLY, METADATA_ONLY_LIST, Client
from controller.runtime.informer import Informer
from controller.runtime.queue import Queue
from controller.runtime.workers import ReconcileResult, Workers
from rallypoint.local.manifest import Manifest, Row, decode
from rallypoint.local.node.volumes import projected, setup
from rallypoint.local.node.volumes.references import Reference

CONFIG_MAPS = Resource("", "v1", "ConfigMap", "configmaps")
SECRETS = Resource("", "v1", "Secret", "secrets")
RESOURCES = {"configmap": CONFIG_MAPS, "secret": SECRETS}
RETRY_SECONDS = 0.5
"""The delay before a retry for a pod whose volumes are being set up."""

Refresh: TypeAlias = Callable[[Manifest], Awaitable[bool]]
"""Updates a pod's volumes; returns False if they are not set up yet."""


class VolumeUpdater:
    def __init__(self, client: Client, refresh: Refresh) -> None:
        self._client = client
        self._refresh = refresh
        self._queue: Queue[str] = Queue(group=lambda uid: "")
        self._pods: dict[str, Manifest] = {}
        self._pods_by_reference: dict[tuple[str, Reference], set[str]] = defaultdict(set)
        """(namespace, object) → the UIDs of the pods that mount it."""

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for kind, resource in RESOURCES.items():
                handler = partial(self._object_changed, kind)
                tasks.create_task(Informer(self._client, resource, decode, handler, accept=_metadata).run())
            tasks.create_task(Workers(self._queue, self._sync, count=1, name="volumes").run())

    def add(self, pod: Manifest) -> None:
        """Watch the objects that the pod mounts. Call it before reading them, so that no change is missed."""
        if not any(projected.is_projected(volume) for volume in pod["spec"].get("volumes") or ()):
            return
        self._pods[pod["metadata"]["uid"]] = pod
        for key in _keys(pod):
            self._pods_by_reference[key].add(pod["metadata"]["uid"])

    def drop(self, pod: Manifest) -> None:
        uid = pod["metadata"]["uid"]
        if self._pods.pop(uid, None) is None:
            return
        for key in _keys(pod):
            self._pods_by_reference[key].discard(uid)
            if not self._pods_by_reference[key]:
                del self._pods_by_reference[key]

    def handle_pod(self, pod: Manifest) -> None:
        """Handle a pod that may have changed."""
        uid = pod["metadata"]["uid"]
        before = self._pods.get(uid)
        if before is not None and _downward_fields(before) != _downward_fields(pod):
            self._pods[uid] = {**before, "metadata": pod["metadata"]}
            self._queue.add(uid)

    def _object_changed(self, kind: str, before: Row | None, after: Row | None) -> None:
        row = after or before
        if row is not None:
            for uid in self._pods_by_reference.get((row.namespace, Reference(kind, row.name)), ()):
                self._queue.add(uid)

    async def _sync(self, uid: str) -> ReconcileResult:
        pod = self._pods.get(uid)
        if pod is None or await self._refresh(pod):
            return ReconcileResult()
        return ReconcileResult(RETRY_SECONDS)


def _keys(pod: Manifest) -> set[tuple[str, Reference]]:
    return {(pod["metadata"]["namespace"], reference) for reference in setup.references(pod)}


def _downward_fields(pod: Manifest) -> tuple[object, object]:
    """The mutable fields of a pod that the downward API exposes."""
    return pod["metadata"].get("labels"), pod["metadata"].get("annotations")


def _metadata(whole_list: bool) -> str:
    return METADATA_ONLY_LIST if whole_list else METADATA_ONLY
