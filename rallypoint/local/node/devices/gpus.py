"""The NVIDIA GPUs of this machine, by UUID: which there are, which of them the site may use, what a process sees of them.

A GPU that is divided (MIG) counts as its parts, which is all that programs can use of it.

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
    """The site is to use a GPU that this machine does not have."""


def nvml() -> Any:
    """The binding of NVML; None on a machine without the driver's library."""
    try:
        ctypes.CDLL(_LIBRARY)
    except OSError:
        return None
    return import_module("pynvml")  # Not before: it is large, and of no use elsewhere.


def found(library: Any) -> tuple[str, ...]:
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
        log.warning("GPUs cannot be asked for", error=str(error))
        return ()


def _uuids(library: Any) -> Iterator[str]:
    for index in range(library.nvmlDeviceGetCount()):
        device = library.nvmlDeviceGetHandleByIndex(index)
        if _is_divided(library, device):
            yield from _parts(library, device)
        else:
            yield library.nvmlDeviceGetUUID(device)


def _is_divided(library: Any, device: Any) -> bool:
    try:
        mode, _ = library.nvmlDeviceGetMigMode(device)
    except library.NVMLError:
        return False  # It cannot be divided.
    return bool(mode)


def _parts(library: Any, device: Any) -> Iterator[str]:
    for index in range(library.nvmlDeviceGetMaxMigDeviceCount(device)):
        try:
            part = library.nvmlDeviceGetMigDeviceHandleByIndex(device, index)
        except library.NVMLError:
            continue  # No part has this place.
        yield library.nvmlDeviceGetUUID(part)


def usable(there: Sequence[str], visible: str | None, wanted: str | None) -> tuple[str, ...]:
    """Those that the site may use.

    Args:
        visible: the person's own CUDA_VISIBLE_DEVICES, as a batch system sets it; None for no such limit.
        wanted: how many, or their UUIDs with commas between; None for all.

    Raises:
        NoSuchGpu: there are not so many, or not these.
    """
    ours = there if visible is None else seen(there, visible)
    if wanted is None:
        return tuple(ours)
    if wanted.isdecimal():
        if int(wanted) > len(ours):
            raise NoSuchGpu(f"--gpus {wanted}: there are {len(ours)}")
        return tuple(ours[: int(wanted)])
    names = [name.strip() for name in wanted.split(",")]
    if missing := [name for name in names if name not in ours]:
        raise NoSuchGpu(f"--gpus: there is no {', '.join(missing)}; there are {', '.join(ours) or 'none'}")
    return tuple(dict.fromkeys(names))


def seen(gpus: Sequence[str], visible: str) -> tuple[str, ...]:
    """Those among ``gpus`` that a value of CUDA_VISIBLE_DEVICES names, by place or by the beginning of the UUID.

    The first that names none ends the list, as in CUDA.
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
    chosen = gpus if written is None else seen(gpus, written)
    return {CUDA: ",".join(chosen), NVIDIA: ",".join(gpus) or "void"}
