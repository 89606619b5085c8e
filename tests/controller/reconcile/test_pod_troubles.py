"""Pods that have not failed and pods that do not start, with the whole controller, an embedded API server and fake time."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from api.meta import PODS
from tests.support.harness import Harness, fake_clock, running_controller, start_harness

WORKER = "train-worker-0"


@asynccontextmanager
async def job_with(**run_policy: Any) -> AsyncGenerator[Harness]:
    """A job whose master runs and whose worker is pending."""
    with fake_clock() as clock:
        async with start_harness(clock=clock) as harness, running_controller(harness):
            await harness.submit(runPolicy=run_policy)
            await harness.settle()
            await harness.set_phase("Running", "train-master-0")
            await harness.settle()
            yield harness


async def wait_for(harness: Harness, reason: str) -> None:
    """Report, as the kubelet does, why the worker's container waits."""
    waiting = {"waiting": {"reason": reason, "message": f'{reason}: image "img"'}}
    container = {"name": "pytorch", "image": "img", "imageID": "", "ready": False, "restartCount": 0}
    status = {"phase": "Pending", "containerStatuses": [{**container, "state": waiting}]}
    await harness.change(PODS, WORKER, {"status": status}, "status")


def rules(*given: Mapping[str, Any]) -> dict[str, Any]:
    return {"failurePolicy": {"rules": given}}


async def test_a_rule_about_a_waiting_pod_matches_in_time_without_an_event() -> None:
    rule = {"action": "RestartJob", "onReasons": ["ImagePullBackOff"], "forSeconds": 30}
    async with job_with(**rules(rule)) as harness:
        await wait_for(harness, "ErrImagePull")
        await harness.settle(15)
        await wait_for(harness, "ImagePullBackOff")
        await harness.settle(10)
        assert "restarts" not in (await harness.job())["status"]
        await harness.settle(6)

        status = (await harness.job())["status"]
        (attempt,) = status["attempts"]
        assert (attempt["pod"], attempt["reason"]) == (WORKER, "ImagePullBackOff")
        assert status["restarts"] == 1


async def test_pods_that_nobody_touches_are_late_without_an_event() -> None:
    """The operator's own creations trigger no reconcile."""
    with fake_clock() as clock:
        async with start_harness(clock=clock) as harness, running_controller(harness):
            await harness.submit(runPolicy={"pendingTimeoutSeconds": 30})
            await harness.settle(28)
            assert await harness.conditions() == "Created T"
            await harness.settle(6)

            assert "Failed T" in await harness.conditions()


async def test_a_replacement_that_nobody_touches_is_late_without_an_event() -> None:
    async with job_with(pendingTimeoutSeconds=30) as harness:
        await harness.set_phase("Running")
        await harness.settle(50)
        await harness.delete(PODS, WORKER, grace_period_seconds=0)
        await harness.settle(25)
        assert "Failed T" not in await harness.conditions()
        await harness.settle(10)

        assert "Failed T" in await harness.conditions()


async def test_a_job_that_does_not_start_ends_in_time_without_an_event() -> None:
    async with job_with(pendingTimeoutSeconds=60) as harness:
        await wait_for(harness, "ErrImagePull")
        await harness.settle(50)
        assert "Failed T" not in await harness.conditions()
        await harness.settle(12)

        last = (await harness.job())["status"]["conditions"][-1]
        assert last["reason"] == "PyTorchJobPendingTimeout"
        assert 'ErrImagePull: image "img"' in last["message"]
        assert await harness.names(PODS) == []
