"""What pods do while they terminate: those that the operator deletes, and those that somebody else deletes."""

from typing import Any

import pytest

from api.meta import PODS
from api.v1.pytorchjob import RESOURCE
from tests.support.builders import pod_status
from tests.support.harness import Harness, running_controller, start_harness

RESTART_JOB: dict[str, Any] = {"action": "RestartJob"}


def failure_policy(*rules: dict[str, Any]) -> dict[str, Any]:
    return {"failurePolicy": {"rules": list(rules)}}


async def scale(harness: Harness, workers: int) -> None:
    roles = {"pytorchReplicaSpecs": {"Worker": {"replicas": workers}}}
    await harness.change(RESOURCE, "train", {"spec": roles})
    await harness.settle(5)


async def placed(harness: Harness, policy: str, run_policy: dict[str, Any]) -> dict[str, str]:
    """Start a job of two workers on nodes; return the UIDs of its pods by name."""
    await harness.submit("train", workers=2, runPolicy=run_policy)
    roles = {role: {"restartPolicy": policy} for role in ("Master", "Worker")}
    await harness.change(RESOURCE, "train", {"spec": {"pytorchReplicaSpecs": roles}})
    await harness.settle(5)
    for pod in await harness.names(PODS):
        await harness.bind(pod, "node-0")
    return await uids(harness)


async def running(harness: Harness, policy: str, run_policy: dict[str, Any]) -> dict[str, str]:
    """The same once its pods run."""
    placed_pods = await placed(harness, policy, run_policy)
    await harness.set_phase("Running")
    await harness.settle(5)
    return placed_pods


async def uids(harness: Harness) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in await harness.items(PODS)}


@pytest.mark.parametrize("end", ["Running", "Failed"])
@pytest.mark.parametrize(
    ("policy", "run_policy"),
    [("Never", {}), ("OnFailure", {"backoffLimit": 1}), ("Never", failure_policy(RESTART_JOB))],
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


async def report(harness: Harness, phase: str, **state: Any) -> None:
    """Report the phase of a worker and the state of its container, as the kubelet does."""
    container = {"name": "pytorch", "ready": False, "restartCount": 0, "state": state}
    status = {"phase": phase, "containerStatuses": [container]}
    await harness.change(PODS, "train-worker-1", {"status": status}, "status")
    await harness.settle(5)


async def check_only_one_pod_is_replaced(harness: Harness, before: dict[str, str]) -> None:
    assert "Failed T" not in await harness.conditions()
    assert "restarts" not in (await harness.job())["status"]
    await harness.delete(PODS, "train-worker-1", grace_period_seconds=0)
    await harness.settle(5)
    after = await uids(harness)
    assert after.keys() == before.keys()
    assert {name for name in before if after[name] != before[name]} == {"train-worker-1"}


@pytest.mark.parametrize("rest", [[RESTART_JOB], []])
async def test_the_end_of_a_pod_that_a_rule_replaces_is_no_second_failure(rest: list[dict[str, Any]]) -> None:
    """The kubelet ends a deleted pod that never ran as Failed, with exit code 137."""
    rule = {"action": "RestartPod", "onReasons": ["ImagePullBackOff"], "forSeconds": 0}
    async with start_harness() as harness, running_controller(harness):
        before = await placed(harness, "Never", failure_policy(rule, *rest))
        await harness.set_phase("Running", "train-master-0", "train-worker-0")
        await report(harness, "Pending", waiting={"reason": "ImagePullBackOff", "message": "no"})
        assert "deletionTimestamp" in (await harness.get(PODS, "train-worker-1"))["metadata"]
        await report(harness, "Failed", terminated={"exitCode": 137, "reason": "ContainerStatusUnknown"})

        await check_only_one_pod_is_replaced(harness, before)


@pytest.mark.parametrize("action", ["RestartPod", "Ignore"])
@pytest.mark.parametrize("rest", [[RESTART_JOB], []])
async def test_a_rule_about_deleted_pods_holds_until_the_pod_is_gone(
    rest: list[dict[str, Any]], action: str
) -> None:
    """A program that handles SIGTERM ends before its pod is gone."""
    rule = {"action": action, "onReasons": ["Deleted"]}
    async with start_harness() as harness, running_controller(harness):
        before = await running(harness, "Never", failure_policy(rule, *rest))
        await harness.delete(PODS, "train-worker-1")
        await harness.settle(5)
        await report(harness, "Failed", terminated={"exitCode": 143, "reason": "Error"})

        await check_only_one_pod_is_replaced(harness, before)


async def test_a_new_process_counts_a_terminating_pod_as_deleted() -> None:
    rule = {"action": "RestartPod", "onReasons": ["Deleted"]}
    async with start_harness() as harness:
        async with running_controller(harness):
            before = await running(harness, "Never", failure_policy(rule, RESTART_JOB))
        await harness.delete(PODS, "train-worker-1")
        async with running_controller(harness):
            await harness.settle(5)
            await report(harness, "Failed", terminated={"exitCode": 143, "reason": "Error"})

            await check_only_one_pod_is_replaced(harness, before)
