"""Suspensions that end before a pass has seen to them."""

from typing import Any

import orjson
import pytest

from api.meta import PODS
from api.v1.pytorchjob import RESOURCE
from controller.reconcile.jobs import JobRow, job_from_json
from controller.reconcile.suspensions import Suspensions
from rallypoint.testing.builders import pytorch_job
from rallypoint.testing.faults import Delay, Rule
from rallypoint.testing.stage import Stage, controlling, stage

SUSPENDED_ = {"conditions": [{"type": "Suspended", "status": "True"}]}


def row(*, suspend: bool) -> JobRow:
    return job_from_json(orjson.dumps(pytorch_job(run_policy={"suspend": suspend}).to_wire()))


def takes_effect(heard: Suspensions, *, has_pods: bool = True, **job: Any) -> bool | None:
    return heard.take_in(pytorch_job(**job), has_pods=has_pods).spec.policy.suspend


def heard() -> Suspensions:
    """Of a job that is suspended and resumed."""
    suspensions = Suspensions()
    suspensions.heard(row(suspend=False), row(suspend=True))
    suspensions.heard(row(suspend=True), row(suspend=False))
    return suspensions


def test_a_resumed_job_is_decided_for_as_suspended_until_its_status_says_so() -> None:
    suspensions = heard()

    assert takes_effect(suspensions)
    assert takes_effect(suspensions)
    assert not takes_effect(suspensions, status=SUSPENDED_)
    assert not takes_effect(suspensions)


def test_without_pods_of_before_there_is_nothing_to_see_to() -> None:
    suspensions = heard()

    assert not takes_effect(suspensions, has_pods=False)
    assert not takes_effect(suspensions)


def test_a_job_that_was_always_running_is_left_as_it_is() -> None:
    suspensions = Suspensions()
    suspensions.heard(None, row(suspend=False))

    assert not takes_effect(suspensions)


def test_what_was_read_of_a_suspended_job_alone_counts() -> None:
    """The event of the suspension itself may be missing: a list that came later told of it, or a read of ours."""
    suspensions = Suspensions()
    suspensions.heard(row(suspend=True), row(suspend=False))

    assert takes_effect(suspensions)


def test_a_job_that_is_gone_is_forgotten() -> None:
    suspensions = heard()
    suspensions.heard(row(suspend=False), None)

    assert not takes_effect(suspensions)


async def running(on: Stage, policy: str) -> set[str]:
    """A job whose pods run; their UIDs."""
    await on.submit("train", workers=2)
    roles = {role: {"restartPolicy": policy} for role in ("Master", "Worker")}
    await on.change(RESOURCE, "train", {"spec": {"pytorchReplicaSpecs": roles}})
    await on.settled(5)
    await on.become("Running")
    await on.settled(5)
    return {one["metadata"]["uid"] for one in await on.items(PODS)}


async def suspend(on: Stage) -> None:
    await on.change(RESOURCE, "train", {"spec": {"runPolicy": {"suspend": True}}})


async def resume(on: Stage) -> None:
    """As one who has changed the templates meanwhile."""
    roles = {role: {"template": {"metadata": {"labels": {"team": "new"}}}} for role in ("Master", "Worker")}
    await on.change(
        RESOURCE, "train", {"spec": {"pytorchReplicaSpecs": roles, "runPolicy": {"suspend": False}}}
    )


async def check_begun_anew(on: Stage, before: set[str]) -> None:
    pods = await on.items(PODS)
    assert await on.conditions() == "Created T, Running F, Suspended F"
    assert [one["metadata"]["labels"].get("team") for one in pods] == ["new"] * 3
    assert not before & {one["metadata"]["uid"] for one in pods}


@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
async def test_a_job_begins_anew_however_short_its_suspension(policy: str) -> None:
    async with stage() as on, controlling(on):
        before = await running(on, policy)
        await suspend(on)
        await resume(on)
        await on.settled(10)

        await check_begun_anew(on, before)


@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
async def test_a_suspension_that_ends_before_its_status_is_written_costs_no_job(policy: str) -> None:
    """The status is refused, since it was decided for a job that was suspended; pods that had gone by then would be failures."""
    slow = Rule(Delay(1), verb="patch", subresource="status")
    async with stage(slow) as on, controlling(on):
        before = await running(on, policy)
        await suspend(on)
        await on.settled(0.5)
        await resume(on)
        await on.settled(10)

        await check_begun_anew(on, before)
