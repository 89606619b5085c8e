"""Jobs that are scaled up again while the pods that scaling down has removed still terminate."""

from typing import Any

import pytest

from api.meta import PODS
from api.v1.pytorchjob import RESOURCE
from tests.support.builders import pod_status
from tests.support.harness import Harness, running_controller, start_harness

RESTART_JOB = {"failurePolicy": {"rules": [{"action": "RestartJob"}]}}


async def scale(harness: Harness, workers: int) -> None:
    roles = {"pytorchReplicaSpecs": {"Worker": {"replicas": workers}}}
    await harness.change(RESOURCE, "train", {"spec": roles})
    await harness.settle(5)


async def running(harness: Harness, policy: str, run_policy: dict[str, Any]) -> dict[str, str]:
    """Start a job of two workers on nodes; return the UIDs of its running pods by name."""
    await harness.submit("train", workers=2, runPolicy=run_policy)
    roles = {role: {"restartPolicy": policy} for role in ("Master", "Worker")}
    await harness.change(RESOURCE, "train", {"spec": {"pytorchReplicaSpecs": roles}})
    await harness.settle(5)
    for pod in await harness.names(PODS):
        await harness.bind(pod, "node-0")
    await harness.set_phase("Running")
    await harness.settle(5)
    return await uids(harness)


async def uids(harness: Harness) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in await harness.items(PODS)}


@pytest.mark.parametrize("end", ["Running", "Failed"])
@pytest.mark.parametrize(
    ("policy", "run_policy"), [("Never", {}), ("OnFailure", {"backoffLimit": 1}), ("Never", RESTART_JOB)]
)
async def test_a_pod_that_scaling_down_removed_is_no_failure_of_a_job_that_grows_again(
    policy: str, run_policy: dict[str, Any], end: str
) -> None:
    async with start_harness() as harness, running_controller(harness):
        before = await running(harness, policy, run_policy)
        await scale(harness, 1)
        assert "deletionTimestamp" in (await harness.get(PODS, "train-worker-1"))["metadata"]

        await scale(harness, 2)
        status = pod_status(end, "pytorch", 143 if end == "Failed" else None)
        await harness.change(PODS, "train-worker-1", {"status": status}, "status")
        await harness.settle(5)
        assert await uids(harness) == before
        assert await harness.conditions() == "Created T, Running T"

        await harness.delete(PODS, "train-worker-1", grace_period_seconds=0)
        await harness.settle(5)
        after = await uids(harness)
        assert {name for name in before if after[name] != before[name]} == {"train-worker-1"}
        job = await harness.job()
        assert await harness.conditions() == "Created T, Running T"
        assert "restarts" not in job["status"]
        assert "restarts" not in job["status"]["replicaStatuses"]["Worker"]


async def test_a_pod_that_somebody_deletes_after_scaling_is_a_failure() -> None:
    async with start_harness() as harness, running_controller(harness):
        await running(harness, "Never", {})
        await scale(harness, 1)
        await scale(harness, 2)
        await harness.delete(PODS, "train-worker-0")
        await harness.settle(5)

        assert await harness.conditions() == "Created T, Running F, Failed T"
