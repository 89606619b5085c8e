"""The NVIDIA GPUs of this machine by UUID: discovery, selection, and the environment variables of containers.

A GPU in MIG mode counts as its MIG devices.

``DeviceManager`` allocates GPUs to pods; the scheduler only counts them.

Source: NVML, and the CUDA programming guide on CUDA_VISIBLE_DEVICES.
"""

import asyncio
import ctypes
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

import structlog

from rallypoint.local.manifest import Manifest
from rallypoint.local.node.resources import read, requests

RESOURCE = "nvidia.com/gpu"
CUDA = "CUDA_VISIBLE_DEVICES"
NVIDIA = "NVIDIA_VISIBLE_DEVICES"
_LIBRARY = "libnvidia-ml.so.1"

log = structlog.get_logger()


class NoSuchGpu(Exception):
    """--gpus names a GPU that this machine does not have."""


def nvml() -> Any:
    """Return the binding of NVML; None on a machine without the driver's library."""
    try:
        ctypes.CDLL(_LIBRARY)
    except OSError:
        return None
    return import_module("pynvml")  # Imported late: it is large, and useless without the library.


def list_gpus(library: Any) -> tuple[str, ...]:
    """Return the UUIDs of all GPUs, in NVML's order; ``library`` is the result of ``nvml``. Blocks."""
    if library is None:
        return ()
    try:
        library.nvmlInit()
        try:
            return tuple(_uuids(library))
        finally:
            library.nvmlShutdown()
    except library.NVMLError as error:
        log.warning("listing GPUs failed", error=str(error))
        return ()


def _uuids(library: Any) -> Iterator[str]:
    for index in range(library.nvmlDeviceGetCount()):
        device = library.nvmlDeviceGetHandleByIndex(index)
        if _has_mig(library, device):
            yield from _mig_devices(library, device)
        else:
            yield library.nvmlDeviceGetUUID(device)


def _has_mig(library: Any, device: Any) -> bool:
    try:
        mode, _ = library.nvmlDeviceGetMigMode(device)
    except library.NVMLError:
        return False  # It has no MIG mode.
    return bool(mode)


def _mig_devices(library: Any, device: Any) -> Iterator[str]:
    for index in range(library.nvmlDeviceGetMaxMigDeviceCount(device)):
        try:
            mig_device = library.nvmlDeviceGetMigDeviceHandleByIndex(device, index)
        except library.NVMLError:
            continue  # No MIG device at this index.
        yield library.nvmlDeviceGetUUID(mig_device)


def usable(gpus: Sequence[str], visible: str | None, requested: str | None) -> tuple[str, ...]:
    """Return the GPUs that the cluster may use.

    Args:
        visible: the user's CUDA_VISIBLE_DEVICES, as a batch system sets it; None for no limit.
        requested: how many, or their UUIDs with commas between; None for all.

    Raises:
        NoSuchGpu: the machine has fewer GPUs, or not these.
    """
    allowed = gpus if visible is None else visible_gpus(gpus, visible)
    if requested is None:
        return tuple(allowed)
    if requested.isdecimal():
        if int(requested) > len(allowed):
            raise NoSuchGpu(f"--gpus {requested}: there are {len(allowed)}")
        return tuple(allowed[: int(requested)])
    names = [name.strip() for name in requested.split(",")]
    if missing := [name for name in names if name not in allowed]:
        raise NoSuchGpu(f"--gpus: there is no {', '.join(missing)}; there are {', '.join(allowed) or 'none'}")
    return tuple(dict.fromkeys(names))


def visible_gpus(gpus: Sequence[str], visible: str) -> tuple[str, ...]:
    """Return the GPUs that a value of CUDA_VISIBLE_DEVICES selects, by index or by UUID prefix.

    The first invalid entry ends the list, as in CUDA.
    """
    chosen: list[str] = []
    for entry in map(str.strip, visible.split(",")):
        if entry.isdecimal():
            named = gpus[int(entry) : int(entry) + 1]
        else:
            named = [gpu for gpu in gpus if entry and gpu.startswith(entry)]
        if len(named) != 1:
            break
        chosen.append(named[0])
    return tuple(chosen)


def variables(gpus: Sequence[str] | None, written: str | None) -> dict[str, str]:
    """Return the variables for a container's GPUs; none for None.

    ``written`` is the manifest's own CUDA_VISIBLE_DEVICES. It selects among the container's GPUs, as in a cluster.
    """
    if gpus is None:
        return {}
    chosen = gpus if written is None else visible_gpus(gpus, written)
    return {CUDA: ",".join(chosen), NVIDIA: ",".join(gpus) or "void"}


class DeviceManager:
    """Allocates GPUs. Processes of a finished pod may hold GPUs for a moment, so the next pod waits for their release."""

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

    def allocated(self, uid: str) -> tuple[str, ...]:
        """Return the GPUs of the pod with this UID."""
        return tuple(self._allocated.get(uid, ()))

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
