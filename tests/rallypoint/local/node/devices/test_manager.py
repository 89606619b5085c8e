"""Which pod has which GPUs, and when the next one gets them."""

import asyncio
from typing import Any

import pytest

from rallypoint.local.node.devices.manager import DeviceManager, allocation

GPUS = ("GPU-a", "GPU-b", "GPU-c")


def container(name: str, gpus: int, **fields: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}, **fields}


def pod(name: str, *containers: dict[str, Any], inits: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    return {
        "metadata": {"uid": name},
        "spec": {"containers": list(containers), "initContainers": list(inits)},
    }


async def test_no_two_pods_have_the_same() -> None:
    allotment = DeviceManager(GPUS)
    first, second = pod("a", container("c", 1)), pod("b", container("c", 2))
    await allotment.allocate(first)
    await allotment.allocate(second)

    assert (allotment.of(first, "c"), allotment.of(second, "c")) == (GPUS[:1], GPUS[1:])


async def test_a_pod_waits_for_what_another_one_gives_back() -> None:
    allotment = DeviceManager(GPUS)
    first, second = pod("a", container("c", 2)), pod("b", container("c", 3))
    await allotment.allocate(first)
    waiting = asyncio.create_task(allotment.allocate(second))
    await asyncio.sleep(10)
    assert not waiting.done()
    allotment.release(first)
    await waiting

    assert allotment.of(second, "c") == GPUS
    assert allotment.of(first, "c") == ()


async def test_what_is_given_back_twice_is_there_once() -> None:
    allotment = DeviceManager(GPUS)
    one = pod("a", container("c", 2))
    await allotment.allocate(one)
    allotment.release(one)
    allotment.release(one)
    await allotment.allocate(pod("b", container("c", 3)))

    assert allotment.of(pod("b", container("c", 3)), "c") == GPUS


async def test_a_pod_that_names_the_node_itself_does_not_wait_for_what_there_is_none_of() -> None:
    allotment = DeviceManager((), hides=True)
    one = pod("a", container("c", 1))
    await allotment.allocate(one)

    assert allotment.of(one, "c") == ()


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
            {"i": GPUS, "c": ("GPU-a", "GPU-b")},
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
def test_the_containers_of_a_pod(manifest: dict[str, Any], expected: dict[str, tuple[str, ...]]) -> None:
    assert allocation(manifest, GPUS) == expected


async def test_without_gpus_there_is_nothing_to_say() -> None:
    """An empty variable is no absent one: Paddle looks for GPUs when it is there."""
    allotment = DeviceManager(())
    await allotment.allocate(one := pod("a"))

    assert allotment.of(one, "c") is None
