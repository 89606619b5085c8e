"""Allocates GPUs to pods. The scheduler only counts them.

Processes of a finished pod may hold GPUs for a moment longer, so the next pod waits for their release.
"""

import asyncio
from collections.abc import Sequence

from rallypoint.local.manifest import Manifest
from rallypoint.local.node.devices.gpus import RESOURCE
from rallypoint.local.node.resources import read, requests


class DeviceManager:
    def __init__(self, gpus: Sequence[str], *, hides: bool = False) -> None:
        """``hides``: hide the machine's GPUs from pods even if the cluster uses none."""
        self._hides = hides or bool(gpus)
        self._free = list(gpus)
        self._order = {gpu: index for index, gpu in enumerate(gpus)}
        self._allocated: dict[str, list[str]] = {}
        self._released = asyncio.Event()

    async def allocate(self, pod: Manifest) -> None:
        """Allocate the pod's GPUs; wait until they are free. Requests beyond the node's total are capped."""
        count = min(int(requests(pod).get(RESOURCE, 0)), len(self._order))
        while len(self._free) < count:
            self._released.clear()
            await self._released.wait()
        self._allocated[pod["metadata"]["uid"]] = self._free[:count]
        del self._free[:count]

    def release(self, pod: Manifest) -> None:
        """Release the GPUs of a pod that no longer runs."""
        self._free += self._allocated.pop(pod["metadata"]["uid"], ())
        self._free.sort(key=self._order.__getitem__)
        self._released.set()

    def of(self, pod: Manifest, container: str) -> tuple[str, ...] | None:
        """Return the GPUs of one container; None if the node has no GPUs to allocate or hide.

        None means that no variable is set: some programs, such as Paddle, take an empty variable for GPUs.
        """
        if not self._hides:
            return None
        return allocation(pod, self._allocated.get(pod["metadata"]["uid"], ())).get(container, ())


def allocation(pod: Manifest, gpus: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return a pod's GPUs by container. Init containers share GPUs with later containers; sidecars do not."""
    spec, offset = pod["spec"], 0
    allocated: dict[str, tuple[str, ...]] = {}
    for container in spec.get("initContainers") or ():
        count = _count(container)
        allocated[container["name"]] = tuple(gpus[offset : offset + count])
        offset += count if container.get("restartPolicy") == "Always" else 0
    for container in spec["containers"]:
        count = _count(container)
        allocated[container["name"]] = tuple(gpus[offset : offset + count])
        offset += count
    return allocated


def _count(container: Manifest) -> int:
    return int(read((container.get("resources") or {}).get("limits")).get(RESOURCE, 0))
