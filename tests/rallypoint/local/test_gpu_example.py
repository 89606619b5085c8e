"""The example for GPUs, without GPUs and with two; the program prints the visible GPUs instead of training."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from api.v1.pytorchjob import RESOURCE
from controller import app
from controller.crds import all_crds
from rallypoint.cli.local_flags import SETTINGS
from rallypoint.local.cluster import local_cluster
from tests.support.local_harness import LocalHarness, phase
from tests.support.nvml import Nvml

pytestmark = pytest.mark.looptime(False)

EXAMPLE = Path(__file__).parents[3] / "examples" / "pytorch" / "gpu.yaml"
PODS = ("gpu-master-0", "gpu-worker-0")


@asynccontextmanager
async def with_gpus(folder: Path, monkeypatch: pytest.MonkeyPatch, *gpus: str) -> AsyncIterator[LocalHarness]:
    """A site on a machine with these GPUs, to which the example has been submitted."""
    monkeypatch.setattr("rallypoint.local.cluster.nvml", lambda: Nvml(*gpus) if gpus else None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    async with (
        local_cluster(all_crds(), folder, isolation="loopback") as cluster,
        asyncio.TaskGroup() as tasks,
    ):
        harness = LocalHarness(cluster)
        running = [
            tasks.create_task(work) for work in (harness.pods.run(), app.run(SETTINGS, cluster.connection))
        ]
        await cluster.client.create(RESOURCE, "default", orjson.dumps(shown()))
        yield harness
        for task in running:
            task.cancel()


def shown() -> Any:
    """The example with programs that show what they see of GPUs."""
    job = yaml.safe_load(EXAMPLE.read_text())
    for role in job["spec"]["pytorchReplicaSpecs"].values():
        (container,) = role["template"]["spec"]["containers"]
        assert container["command"] == ["python", "examples/pytorch/gpu.py"]
        container["command"] = ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES; sleep 0.5"]
    return job


async def test_without_gpus_its_pods_are_unschedulable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with with_gpus(tmp_path, monkeypatch) as harness:
        for name in PODS:
            pod = await harness.wait_for(name, lambda pod: pod["status"].get("conditions"))
            (condition,) = pod["status"]["conditions"]
            assert condition["message"] == "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."


async def test_with_two_gpus_each_pod_has_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with with_gpus(tmp_path, monkeypatch, "GPU-a", "GPU-b") as harness:
        printed = {
            (await harness.log(name)).strip()
            for name in PODS
            if phase(await harness.wait_for_end(name)) == "Succeeded"
        }

        assert printed == {"GPU-a", "GPU-b"}
