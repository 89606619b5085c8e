"""Which pod has which GPUs. The scheduler counts them; here each gets a name.

A pod that is over for the API server may have processes for a moment longer, so the next one waits for what they hold.
"""

import asyncio
from collections.abc import Sequence

from rallypoint.local.manifest import Manifest
from rallypoint.local.node.capacity import read, requests
from rallypoint.local.node.devices.gpus import RESOURCE


class Allotment:
    def __init__(self, gpus: Sequence[str], *, hides: bool = False) -> None:
        """``hides``: the machine has GPUs that no pod is to see, also where the site uses none."""
        self._hides = hides or bool(gpus)
        self._free = list(gpus)
        self._order = {gpu: place for place, gpu in enumerate(gpus)}
        self._held: dict[str, list[str]] = {}
        self._freed = asyncio.Event()

    async def take(self, pod: Manifest) -> None:
        """Give the pod its GPUs, once they are free; what the node has none of is not waited for."""
        count = min(int(requests(pod).get(RESOURCE, 0)), len(self._order))
        while len(self._free) < count:
            self._freed.clear()
            await self._freed.wait()
        self._held[pod["metadata"]["uid"]] = self._free[:count]
        del self._free[:count]

    def give_back(self, pod: Manifest) -> None:
        """Nothing of the pod runs any more."""
        self._free += self._held.pop(pod["metadata"]["uid"], ())
        self._free.sort(key=self._order.__getitem__)
        self._freed.set()

    def of(self, pod: Manifest, container: str) -> tuple[str, ...] | None:
        """The GPUs of one container of the pod; None where there is nothing to give and nothing to hide.

        There a program finds no variable: some, such as Paddle, take an empty one for GPUs.
        """
        if not self._hides:
            return None
        return shares(pod, self._held.get(pod["metadata"]["uid"], ())).get(container, ())


def shares(pod: Manifest, gpus: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """A pod's GPUs by container. An init container has given its own back when the next one starts; a sidecar has not."""
    spec, given = pod["spec"], 0
    shared: dict[str, tuple[str, ...]] = {}
    for container in spec.get("initContainers") or ():
        count = _count(container)
        shared[container["name"]] = tuple(gpus[given : given + count])
        given += count if container.get("restartPolicy") == "Always" else 0
    for container in spec["containers"]:
        count = _count(container)
        shared[container["name"]] = tuple(gpus[given : given + count])
        given += count
    return shared


def _count(container: Manifest) -> int:
    return int(read((container.get("resources") or {}).get("limits")).get(RESOURCE, 0))
