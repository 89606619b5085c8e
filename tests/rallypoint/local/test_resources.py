"""The resources of a local cluster: allocatable amounts, GPUs, labels, priorities and cordoning."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from api.meta import EVENTS, PODS
from rallypoint.local.cluster import NodeConfig
from rallypoint.local.node.scheduler.scheduler import NODES, PRIORITY_CLASSES
from tests.support.local_harness import LocalHarness, phase, start_local_harness
from tests.support.nvml import Nvml

pytestmark = pytest.mark.looptime(False)

GPUS = ("GPU-a", "GPU-b")
SHOW = ("sh", "-c", "echo $CUDA_VISIBLE_DEVICES $NVIDIA_VISIBLE_DEVICES; [ -z $STAY ] || sleep 1000")


@pytest.fixture
async def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LocalHarness]:
    """A site with two GPUs, for a person who may use them all."""
    monkeypatch.setattr("rallypoint.local.cluster.nvml", lambda: Nvml(*GPUS))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    async with start_local_harness(
        tmp_path, "loopback", node_config=NodeConfig(labels={"pool": "a"})
    ) as harness:
        yield harness


def gpus(count: int) -> dict[str, Any]:
    return {"limits": {"nvidia.com/gpu": str(count)}}


async def message(harness: LocalHarness, name: str) -> str:
    """Why a pod is not bound, once it is told."""
    pod = await harness.wait_for(name, lambda pod: pod["status"].get("conditions"))
    (condition,) = pod["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "False")
    return str(condition["message"])


async def test_the_node_says_what_it_has(harness: LocalHarness) -> None:
    node = orjson.loads(await harness.client.get(NODES, "", "local"))
    capacity = node["status"]["capacity"]

    assert capacity == node["status"]["allocatable"]
    assert capacity["nvidia.com/gpu"] == "2"
    assert capacity["memory"].endswith("Ki")
    assert capacity["ephemeral-storage"].endswith("Ki")
    assert node["metadata"]["labels"]["pool"] == "a"


async def test_each_pod_sees_its_own_gpus(harness: LocalHarness) -> None:
    stay = [{"name": "STAY", "value": "1"}]
    await harness.pod("first", *SHOW, resources=gpus(1), env=stay)
    await harness.wait_for_log("first", "GPU-a GPU-a")
    await harness.pod("second", *SHOW, resources=gpus(1), env=stay)
    await harness.wait_for_log("second", "GPU-b GPU-b")
    await harness.pod("none", *SHOW)
    await harness.wait_for_end("none")
    await harness.pod("third", *SHOW, resources=gpus(1), env=[{"name": "CUDA_VISIBLE_DEVICES", "value": "0"}])

    assert await harness.log("none") == "void\n"
    assert await message(harness, "third") == "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    await harness.client.delete(PODS, "default", "first", grace_period_seconds=1)
    await harness.wait_for_end("third")
    assert await harness.log("third") == "GPU-a GPU-a\n"


async def test_gpus_are_free_again_when_their_pod_is_over(harness: LocalHarness) -> None:
    for name in ("one", "two", "three"):
        await harness.pod(name, *SHOW, resources=gpus(2))
    for name in ("one", "two", "three"):
        await harness.wait_for_end(name)
        assert await harness.log(name) == "GPU-a,GPU-b GPU-a,GPU-b\n"


async def test_a_pod_that_names_the_node_and_does_not_fit_fails(harness: LocalHarness) -> None:
    await harness.pod("a", "true", resources=gpus(3), spec={"nodeName": "local"})
    pod = await harness.wait_for_end("a")

    assert (phase(pod), pod["status"]["reason"]) == ("Failed", "OutOfnvidia.com/gpu")
    assert pod["status"]["message"] == (
        "Pod was rejected: Node didn't have enough resource: nvidia.com/gpu, requested: 3, used: 0, capacity: 2"
    )


async def test_a_late_label(harness: LocalHarness) -> None:
    await harness.pod("here", "true", spec={"nodeSelector": {"pool": "a"}})
    await harness.pod("there", "true", spec={"nodeSelector": {"pool": "b"}})
    await harness.wait_for_end("here")

    words = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
    assert await message(harness, "there") == words
    label = {"metadata": {"labels": {"pool": "b"}}}
    await harness.client.patch(NODES, "", "local", orjson.dumps(label))
    assert phase(await harness.wait_for_end("there")) == "Succeeded"


async def test_a_cordoned_node_accepts_no_pod(harness: LocalHarness) -> None:
    await harness.client.patch(NODES, "", "local", orjson.dumps({"spec": {"unschedulable": True}}))
    await asyncio.sleep(0)
    await harness.pod("a", "true")

    assert await message(harness, "a") == "0/1 nodes are available: 1 node(s) were unschedulable."
    await harness.client.patch(NODES, "", "local", orjson.dumps({"spec": {"unschedulable": None}}))
    await harness.wait_for_end("a")


async def test_a_resource_that_is_added_to_the_node(harness: LocalHarness) -> None:
    """As in the Kubernetes documentation, with ``kubectl patch --subresource=status``."""
    await harness.pod("a", "true", resources={"limits": {"example.com/dongle": "1"}})
    assert await message(harness, "a") == "0/1 nodes are available: 1 Insufficient example.com/dongle."
    added = {"status": {"allocatable": {"example.com/dongle": "1"}}}
    await harness.client.patch(NODES, "", "local", orjson.dumps(added), subresource="status")

    assert phase(await harness.wait_for_end("a")) == "Succeeded"


async def test_the_higher_priority_class_goes_first(harness: LocalHarness) -> None:
    await harness.create(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 1000})
    await harness.pod("full", "sh", "-c", "sleep 1000", resources=gpus(2))
    await harness.wait_for("full", lambda pod: phase(pod) == "Running")
    await harness.pod("usual", "true", resources=gpus(2))
    await harness.pod("urgent", "true", resources=gpus(2), spec={"priorityClassName": "high"})
    await message(harness, "usual")
    urgent = await harness.wait_for("urgent", lambda pod: pod["status"].get("conditions"))
    await harness.client.delete(PODS, "default", "full", grace_period_seconds=0)
    usual = await harness.wait_for_end("usual")
    urgent = await harness.wait_for_end("urgent")

    assert urgent["spec"]["priority"] == 1000
    assert urgent["status"]["startTime"] <= usual["status"]["startTime"]
    assert await _bound(harness) == ["full", "urgent", "usual"]


async def _bound(harness: LocalHarness) -> list[str]:
    """Pods in the order in which they were bound."""
    events = orjson.loads(await harness.client.request("GET", EVENTS.path("default")))["items"]
    scheduled = [event for event in events if event["reason"] == "Scheduled"]
    scheduled.sort(key=lambda event: int(event["metadata"]["resourceVersion"]))
    return [event["involvedObject"]["name"] for event in scheduled]


async def test_a_pod_with_a_scheduling_gate_waits(harness: LocalHarness) -> None:
    await harness.pod("a", "true", spec={"schedulingGates": [{"name": "example.com/gate"}]})
    assert await message(harness, "a") == "Scheduling is blocked due to non-empty scheduling gates"
    await harness.client.patch(PODS, "default", "a", orjson.dumps({"spec": {"schedulingGates": []}}))

    assert phase(await harness.wait_for_end("a")) == "Succeeded"
