"""GPUs: which there are, which the cluster may use, what a process sees of them, and which pod has which; NVML is a double."""

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from rallypoint.local.node.gpus import (
    DeviceManager,
    NoSuchGpu,
    allocation,
    list_gpus,
    usable,
    variables,
    visible_gpus,
)
from tests.support.nvml import Nvml

GPUS = ("GPU-aa", "GPU-ab", "GPU-c")

NODE_GPUS = ("GPU-a", "GPU-b", "GPU-c")


def test_gpus_are_found_in_order() -> None:
    nvml = Nvml(*GPUS)

    assert list_gpus(nvml) == GPUS
    assert nvml.open == 0


def test_a_divided_gpu_counts_as_its_parts() -> None:
    nvml = Nvml("GPU-a", "GPU-b", parts={"GPU-a": ["MIG-1", None, "MIG-2"]})

    assert list_gpus(nvml) == ("MIG-1", "MIG-2", "GPU-b")


def test_a_machine_without_the_library_has_none_and_says_nothing() -> None:
    with capture_logs() as logs:
        assert list_gpus(None) == ()

    assert logs == []


def test_a_driver_error_is_logged() -> None:
    with capture_logs() as logs:
        assert list_gpus(Nvml(*GPUS, driver=False)) == ()

    assert [(entry["log_level"], entry["error"]) for entry in logs] == [("warning", "Driver Not Loaded")]


@pytest.mark.parametrize(
    ("visible", "wanted", "expected"),
    [
        pytest.param(None, None, GPUS, id="all"),
        pytest.param(None, "2", GPUS[:2], id="the first two"),
        pytest.param(None, "0", (), id="none"),
        pytest.param(None, "GPU-c,GPU-aa", ("GPU-c", "GPU-aa"), id="by name"),
        pytest.param("2,0", None, ("GPU-c", "GPU-aa"), id="limited by CUDA_VISIBLE_DEVICES"),
        pytest.param("1,2", "1", ("GPU-ab",), id="limited by both"),
        pytest.param("", None, (), id="limited to none"),
    ],
)
def test_usable_gpus(visible: str | None, wanted: str | None, expected: tuple[str, ...]) -> None:
    assert usable(GPUS, visible, wanted) == expected


@pytest.mark.parametrize(
    ("visible", "wanted", "words"),
    [
        pytest.param(None, "4", "there are 3", id="too many"),
        pytest.param("0", "2", "there are 1", id="more than the user is allowed to use"),
        pytest.param(None, "GPU-x", "there is no GPU-x; there are GPU-aa, GPU-ab, GPU-c", id="another one"),
    ],
)
def test_missing_gpus_are_rejected(visible: str | None, wanted: str, words: str) -> None:
    with pytest.raises(NoSuchGpu, match=words):
        usable(GPUS, visible, wanted)


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        pytest.param("GPU-c", ("GPU-c",), id="a name"),
        pytest.param("GPU-a", (), id="the beginning of two"),
        pytest.param("1,7,0", ("GPU-ab",), id="what is not there ends the list"),
        pytest.param("-1", (), id="the usual way to say none"),
    ],
)
def test_values_of_cuda_visible_devices(visible: str, expected: tuple[str, ...]) -> None:
    assert visible_gpus(GPUS, visible) == expected


@pytest.mark.parametrize(
    ("gpus", "written", "cuda", "nvidia"),
    [
        pytest.param(GPUS[:2], None, "GPU-aa,GPU-ab", "GPU-aa,GPU-ab", id="its own"),
        pytest.param((), None, "", "void", id="none"),
        pytest.param(GPUS[1:], "1", "GPU-c", "GPU-ab,GPU-c", id="a place among its own"),
        pytest.param((), "0,1", "", "void", id="a place among none"),
    ],
)
def test_the_environment_of_a_container(
    gpus: tuple[str, ...], written: str | None, cuda: str, nvidia: str
) -> None:
    assert variables(gpus, written) == {"CUDA_VISIBLE_DEVICES": cuda, "NVIDIA_VISIBLE_DEVICES": nvidia}


def container(name: str, gpus: int, **fields: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}, **fields}


def pod(name: str, *containers: dict[str, Any], inits: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    return {
        "metadata": {"uid": name},
        "spec": {"containers": list(containers), "initContainers": list(inits)},
    }


async def test_pods_get_different_gpus() -> None:
    device_manager = DeviceManager(NODE_GPUS)
    first, second = pod("a", container("c", 1)), pod("b", container("c", 2))
    await device_manager.allocate(first)
    await device_manager.allocate(second)

    assert (device_manager.of(first, "c"), device_manager.of(second, "c")) == (NODE_GPUS[:1], NODE_GPUS[1:])


async def test_a_pod_waits_for_released_gpus() -> None:
    device_manager = DeviceManager(NODE_GPUS)
    first, second = pod("a", container("c", 2)), pod("b", container("c", 3))
    await device_manager.allocate(first)
    waiting = asyncio.create_task(device_manager.allocate(second))
    await asyncio.sleep(10)
    assert not waiting.done()
    device_manager.release(first)
    await waiting

    assert device_manager.of(second, "c") == NODE_GPUS
    assert device_manager.of(first, "c") == ()


async def test_releasing_twice_frees_a_gpu_once() -> None:
    device_manager = DeviceManager(NODE_GPUS)
    holder = pod("a", container("c", 2))
    await device_manager.allocate(holder)
    device_manager.release(holder)
    device_manager.release(holder)
    await device_manager.allocate(pod("b", container("c", 3)))

    assert device_manager.of(pod("b", container("c", 3)), "c") == NODE_GPUS


async def test_a_bound_pod_does_not_wait_on_a_node_without_gpus() -> None:
    device_manager = DeviceManager((), hides=True)
    bound = pod("a", container("c", 1))
    await device_manager.allocate(bound)

    assert device_manager.of(bound, "c") == ()


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        pytest.param(
            pod("a", container("c", 1), container("d", 2)),
            {"c": ("GPU-a",), "d": ("GPU-b", "GPU-c")},
            id="containers run side by side",
        ),
        pytest.param(
            pod("a", container("c", 2), inits=(container("i", 3),)),
            {"i": NODE_GPUS, "c": ("GPU-a", "GPU-b")},
            id="an init container is over by then",
        ),
        pytest.param(
            pod("a", container("c", 1), inits=(container("s", 1, restartPolicy="Always"), container("i", 2))),
            {"s": ("GPU-a",), "i": ("GPU-b", "GPU-c"), "c": ("GPU-b",)},
            id="a sidecar is not",
        ),
        pytest.param(pod("a", {"name": "c"}), {"c": ()}, id="none asked for"),
    ],
)
def test_gpus_are_assigned_to_containers(
    manifest: dict[str, Any], expected: dict[str, tuple[str, ...]]
) -> None:
    assert allocation(manifest, NODE_GPUS) == expected


async def test_without_gpus_no_variable_is_set() -> None:
    """An empty variable differs from a missing variable: Paddle looks for GPUs if it is set."""
    device_manager = DeviceManager(())
    await device_manager.allocate(bound := pod("a"))

    assert device_manager.of(bound, "c") is None
