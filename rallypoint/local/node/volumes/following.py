"""Filled volumes of running pods, kept up to date: with the objects that fill them and with the pod's own metadata.

One watch of ConfigMaps and one of Secrets, of their metadata alone, say what has changed; what some pod has mounted is
then asked for. A kubelet does the same, mostly within a minute; here it takes as long as the two requests.
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
from rallypoint.local.node.volumes import payload, volumes
from rallypoint.local.node.volumes.objects import Reference

CONFIG_MAPS = Resource("", "v1", "ConfigMap", "configmaps")
SECRETS = Resource("", "v1", "Secret", "secrets")
RESOURCES = {"configmap": CONFIG_MAPS, "secret": SECRETS}
AGAIN_SECONDS = 0.5
"""When a pod is looked at again whose volumes are being made."""

Refill: TypeAlias = Callable[[Manifest], Awaitable[bool]]
"""Bring a pod's volumes up to date; false when they are not there yet."""


class Following:
    def __init__(self, client: Client, refill: Refill) -> None:
        self._client = client
        self._refill = refill
        self._queue: Queue[str] = Queue(group=lambda uid: "")
        self._pods: dict[str, Manifest] = {}
        self._users: dict[tuple[str, Reference], set[str]] = defaultdict(set)
        """(namespace, object) → the uids of the pods that have it mounted."""

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for kind, resource in RESOURCES.items():
                seen = partial(self._object_changed, kind)
                tasks.create_task(Informer(self._client, resource, decode, seen, accept=_metadata).run())
            tasks.create_task(Workers(self._queue, self._look, count=1, name="volumes").run())

    def add(self, pod: Manifest) -> None:
        """Follow what fills the pod's volumes. To be called before that is read: no change is missed then."""
        if not any(payload.is_filled(volume) for volume in pod["spec"].get("volumes") or ()):
            return
        self._pods[pod["metadata"]["uid"]] = pod
        for key in _keys(pod):
            self._users[key].add(pod["metadata"]["uid"])

    def drop(self, pod: Manifest) -> None:
        uid = pod["metadata"]["uid"]
        if self._pods.pop(uid, None) is None:
            return
        for key in _keys(pod):
            self._users[key].discard(uid)
            if not self._users[key]:
                del self._users[key]

    def see_pod(self, pod: Manifest) -> None:
        """The pod may have changed."""
        uid = pod["metadata"]["uid"]
        before = self._pods.get(uid)
        if before is not None and _told(before) != _told(pod):
            self._pods[uid] = {**before, "metadata": pod["metadata"]}
            self._queue.add(uid)

    def _object_changed(self, kind: str, before: Row | None, after: Row | None) -> None:
        row = after or before
        if row is not None:
            for uid in self._users.get((row.namespace, Reference(kind, row.name)), ()):
                self._queue.add(uid)

    async def _look(self, uid: str) -> ReconcileResult:
        pod = self._pods.get(uid)
        if pod is None or await self._refill(pod):
            return ReconcileResult()
        return ReconcileResult(AGAIN_SECONDS)


def _keys(pod: Manifest) -> set[tuple[str, Reference]]:
    return {(pod["metadata"]["namespace"], reference) for reference in volumes.references(pod)}


def _told(pod: Manifest) -> tuple[object, object]:
    """What of a pod may change and be in its files."""
    return pod["metadata"].get("labels"), pod["metadata"].get("annotations")


def _metadata(whole_list: bool) -> str:
    return METADATA_ONLY_LIST if whole_list else METADATA_ONLY
