"""What a site has for pods: amounts on its Node, GPUs that each pod has for itself, labels, priorities, a cordon."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from api.meta import EVENTS, PODS
from rallypoint.local.cluster import NodeConfig
from rallypoint.local.node.scheduler.scheduler import NODES, PRIORITY_CLASSES
from rallypoint.testing.local_harness import Bench, opened, phase
from rallypoint.testing.nvml import Nvml

pytestmark = pytest.mark.looptime(False)

GPUS = ("GPU-a", "GPU-b")
SHOW = ("sh", "-c", "echo $CUDA_VISIBLE_DEVICES $NVIDIA_VISIBLE_DEVICES; [ -z $STAY ] || sleep 1000")


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    """A site with two GPUs, for a person who may use them all."""
    monkeypatch.setattr("rallypoint.local.cluster.nvml", lambda: Nvml(*GPUS))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    async with opened(tmp_path, "loopback", node_config=NodeConfig(labels={"pool": "a"})) as bench:
        yield bench


def gpus(count: int) -> dict[str, Any]:
    return {"limits": {"nvidia.com/gpu": str(count)}}


async def message(bench: Bench, name: str) -> str:
    """Why a pod is not bound, once it is told."""
    pod = await bench.until(name, lambda pod: pod["status"].get("conditions"))
    (condition,) = pod["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "False")
    return str(condition["message"])


async def test_the_node_says_what_it_has(bench: Bench) -> None:
    node = orjson.loads(await bench.client.get(NODES, "", "local"))
    capacity = node["status"]["capacity"]

    assert capacity == node["status"]["allocatable"]
    assert capacity["nvidia.com/gpu"] == "2"
    assert capacity["memory"].endswith("Ki")
    assert capacity["ephemeral-storage"].endswith("Ki")
    assert node["metadata"]["labels"]["pool"] == "a"


async def test_each_pod_sees_its_own_gpus(bench: Bench) -> None:
    stay = [{"name": "STAY", "value": "1"}]
    await bench.pod("first", *SHOW, resources=gpus(1), env=stay)
    await bench.wrote("first", "GPU-a GPU-a")
    await bench.pod("second", *SHOW, resources=gpus(1), env=stay)
    await bench.wrote("second", "GPU-b GPU-b")
    await bench.pod("none", *SHOW)
    await bench.over("none")
    await bench.pod("third", *SHOW, resources=gpus(1), env=[{"name": "CUDA_VISIBLE_DEVICES", "value": "0"}])

    assert await bench.log("none") == "void\n"
    assert await message(bench, "third") == "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    await bench.client.delete(PODS, "default", "first", grace_period_seconds=1)
    await bench.over("third")
    assert await bench.log("third") == "GPU-a GPU-a\n"


async def test_gpus_are_free_again_when_their_pod_is_over(bench: Bench) -> None:
    for name in ("one", "two", "three"):
        await bench.pod(name, *SHOW, resources=gpus(2))
    for name in ("one", "two", "three"):
        await bench.over(name)
        assert await bench.log(name) == "GPU-a,GPU-b GPU-a,GPU-b\n"


async def test_a_pod_that_names_the_node_and_does_not_fit_fails(bench: Bench) -> None:
    await bench.pod("a", "true", resources=gpus(3), spec={"nodeName": "local"})
    pod = await bench.over("a")

    assert (phase(pod), pod["status"]["reason"]) == ("Failed", "OutOfnvidia.com/gpu")
    assert pod["status"]["message"] == (
        "Pod was rejected: Node didn't have enough resource: nvidia.com/gpu, requested: 3, used: 0, capacity: 2"
    )


async def test_a_label_that_comes_late(bench: Bench) -> None:
    await bench.pod("here", "true", spec={"nodeSelector": {"pool": "a"}})
    await bench.pod("there", "true", spec={"nodeSelector": {"pool": "b"}})
    await bench.over("here")

    words = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
    assert await message(bench, "there") == words
    label = {"metadata": {"labels": {"pool": "b"}}}
    await bench.client.patch(NODES, "", "local", orjson.dumps(label))
    assert phase(await bench.over("there")) == "Succeeded"


async def test_a_cordoned_node_takes_nobody(bench: Bench) -> None:
    await bench.client.patch(NODES, "", "local", orjson.dumps({"spec": {"unschedulable": True}}))
    await asyncio.sleep(0)
    await bench.pod("a", "true")

    assert await message(bench, "a") == "0/1 nodes are available: 1 node(s) were unschedulable."
    await bench.client.patch(NODES, "", "local", orjson.dumps({"spec": {"unschedulable": None}}))
    await bench.over("a")


async def test_an_amount_that_somebody_adds_to_the_node(bench: Bench) -> None:
    """As Kubernetes' own documentation has it, with ``kubectl patch --subresource=status``."""
    await bench.pod("a", "true", resources={"limits": {"example.com/dongle": "1"}})
    assert await message(bench, "a") == "0/1 nodes are available: 1 Insufficient example.com/dongle."
    added = {"status": {"allocatable": {"example.com/dongle": "1"}}}
    await bench.client.patch(NODES, "", "local", orjson.dumps(added), subresource="status")

    assert phase(await bench.over("a")) == "Succeeded"


async def test_the_more_urgent_class_goes_first(bench: Bench) -> None:
    await bench.create(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 1000})
    await bench.pod("full", "sh", "-c", "sleep 1000", resources=gpus(2))
    await bench.until("full", lambda pod: phase(pod) == "Running")
    await bench.pod("usual", "true", resources=gpus(2))
    await bench.pod("urgent", "true", resources=gpus(2), spec={"priorityClassName": "high"})
    await message(bench, "usual")
    urgent = await bench.until("urgent", lambda pod: pod["status"].get("conditions"))
    await bench.client.delete(PODS, "default", "full", grace_period_seconds=0)
    usual = await bench.over("usual")
    urgent = await bench.over("urgent")

    assert urgent["spec"]["priority"] == 1000
    assert urgent["status"]["startTime"] <= usual["status"]["startTime"]
    assert await _bound(bench) == ["full", "urgent", "usual"]


async def _bound(bench: Bench) -> list[str]:
    """Pods in the order in which they were bound."""
    events = orjson.loads(await bench.client.request("GET", EVENTS.path("default")))["items"]
    scheduled = [event for event in events if event["reason"] == "Scheduled"]
    scheduled.sort(key=lambda event: int(event["metadata"]["resourceVersion"]))
    return [event["involvedObject"]["name"] for event in scheduled]


async def test_a_gated_pod_waits_for_its_gate(bench: Bench) -> None:
    await bench.pod("a", "true", spec={"schedulingGates": [{"name": "example.com/gate"}]})
    assert await message(bench, "a") == "Scheduling is blocked due to non-empty scheduling gates"
    await bench.client.patch(PODS, "default", "a", orjson.dumps({"spec": {"schedulingGates": []}}))

    assert phase(await bench.over("a")) == "Succeeded"
