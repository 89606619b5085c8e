"""Suspensions that end before a reconcile handles them."""

from typing import Any

import pytest

from api.meta import PODS
from api.v1.pytorchjob import RESOURCE
from controller.reconcile.memory import JobMemory
from controller.reconcile.suspensions import settle_suspension
from tests.support.builders import pytorch_job
from tests.support.faults import Delay, Rule
from tests.support.harness import Harness, running_controller, start_harness

SUSPENDED_ = {"conditions": [{"type": "Suspended", "status": "True"}]}


def takes_effect(memory: JobMemory, *, has_pods: bool = True, **job: Any) -> bool | None:
    return settle_suspension(memory, pytorch_job(**job), has_pods=has_pods).spec.policy.suspend


def pending() -> JobMemory:
    """The memory of a job that was suspended and resumed."""
    return JobMemory("uid", is_suspension_pending=True)


def test_a_resumed_job_is_planned_as_suspended_until_its_status_says_so() -> None:
    memory = pending()

    assert takes_effect(memory)
    assert takes_effect(memory)
    assert not takes_effect(memory, status=SUSPENDED_)
    assert not takes_effect(memory)


def test_without_old_pods_a_pending_suspension_has_no_effect() -> None:
    memory = pending()

    assert not takes_effect(memory, has_pods=False)
    assert not takes_effect(memory)


def test_a_job_that_was_never_suspended_is_left_as_it_is() -> None:
    assert not takes_effect(JobMemory("uid"))


async def running(harness: Harness, policy: str) -> set[str]:
    """Start a job; return the UIDs of its running pods."""
    await harness.submit("train", workers=2)
    roles = {role: {"restartPolicy": policy} for role in ("Master", "Worker")}
    await harness.change(RESOURCE, "train", {"spec": {"pytorchReplicaSpecs": roles}})
    await harness.settle(5)
    await harness.set_phase("Running")
    await harness.settle(5)
    return {pod["metadata"]["uid"] for pod in await harness.items(PODS)}


async def suspend(harness: Harness) -> None:
    await harness.change(RESOURCE, "train", {"spec": {"runPolicy": {"suspend": True}}})


async def resume(harness: Harness) -> None:
    """As one who has changed the templates meanwhile."""
    roles = {role: {"template": {"metadata": {"labels": {"team": "new"}}}} for role in ("Master", "Worker")}
    await harness.change(
        RESOURCE, "train", {"spec": {"pytorchReplicaSpecs": roles, "runPolicy": {"suspend": False}}}
    )


async def check_begun_anew(harness: Harness, before: set[str]) -> None:
    pods = await harness.items(PODS)
    assert await harness.conditions() == "Created T, Running F, Suspended F"
    assert [pod["metadata"]["labels"].get("team") for pod in pods] == ["new"] * 3
    assert not before & {pod["metadata"]["uid"] for pod in pods}


@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
async def test_a_job_starts_again_however_short_its_suspension(policy: str) -> None:
    async with start_harness() as harness, running_controller(harness):
        before = await running(harness, policy)
        await suspend(harness)
        await resume(harness)
        await harness.settle(10)

        await check_begun_anew(harness, before)


@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
async def test_a_suspension_that_ends_before_its_status_write_does_not_break_the_job(policy: str) -> None:
    """The status is refused, since it was decided for a job that was suspended; pods that had gone by then would be failures."""
    slow = Rule(Delay(1), verb="patch", subresource="status")
    async with start_harness(slow) as harness, running_controller(harness):
        before = await running(harness, policy)
        await suspend(harness)
        await harness.settle(0.5)
        await resume(harness)
        await harness.settle(10)

        await check_begun_anew(harness, before)
