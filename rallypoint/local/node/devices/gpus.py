"""The NVIDIA GPUs of this machine by UUID: discovery, selection, and the environment variables of containers.

A GPU in MIG mode counts as its MIG devices.

Source: NVML, and the CUDA programming guide on CUDA_VISIBLE_DEVICES.
"""

import ctypes
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

import structlog

RESOURCE = "nvidia.com/gpu"
CUDA = "CUDA_VISIBLE_DEVICES"
NVIDIA = "NVIDIA_VISIBLE_DEVICES"
_LIBRARY = "libnvidia-ml.so.1"

log = structlog.get_logger()


class NoSuchGpu(Exception):
    """--gpus names a GPU that this machine does not have."""


def nvml() -> Any:
    """The binding of NVML; None on a machine without the driver's library."""
    try:
        ctypes.CDLL(_LIBRARY)
    except OSError:
        return None
    return import_module("pynvml")  # Imported late: it is large, and useless without the library.


def list_gpus(library: Any) -> tuple[str, ...]:
    """The UUIDs of all GPUs, in NVML's order; ``library`` is the binding, None where there is none. Blocks."""
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


def usable(gpus: Sequence[str], visible: str | None, wanted: str | None) -> tuple[str, ...]:
    """Return the GPUs that the cluster may use.

    Args:
        visible: the user's CUDA_VISIBLE_DEVICES, as a batch system sets it; None for no limit.
        wanted: how many, or their UUIDs with commas between; None for all.

    Raises:
        NoSuchGpu: the machine has not so many, or not these.
    """
    allowed = gpus if visible is None else visible_gpus(gpus, visible)
    if wanted is None:
        return tuple(allowed)
    if wanted.isdecimal():
        if int(wanted) > len(allowed):
            raise NoSuchGpu(f"--gpus {wanted}: there are {len(allowed)}")
        return tuple(allowed[: int(wanted)])
    names = [name.strip() for name in wanted.split(",")]
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
    """What a container's environment says of its GPUs, nothing for None; ``written`` is the manifest's own CUDA_VISIBLE_DEVICES.

    In a cluster that counts among the container's GPUs, so it does here; the process would count the machine's.
    """
    if gpus is None:
        return {}
    chosen = gpus if written is None else visible_gpus(gpus, written)
    return {CUDA: ",".join(chosen), NVIDIA: ",".join(gpus) or "void"}
