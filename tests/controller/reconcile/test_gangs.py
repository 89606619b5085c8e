"""Reconciles with gang scheduling on the embedded API server; the test acts as the gang scheduler."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from api.meta import COSCHEDULING_POD_GROUPS, EVENTS, PODS, SERVICES, VOLCANO_POD_GROUPS, Resource
from api.v1.pytorchjob import RESOURCE
from controller.settings import Settings
from tests.support.faults import Fault, Refuse, Reset, Rule
from tests.support.harness import (
    NAMESPACE,
    TEST_SETTINGS,
    Harness,
    is_owned_by,
    running_controller,
    start_harness,
)

POD_GROUPS = list(
    yaml.safe_load_all(
        (Path(__file__).parents[2] / "parity" / "golden" / "crds" / "podgroups.yaml").read_text()
    )
)
VOLCANO = replace(TEST_SETTINGS, gang_scheduler_name="Volcano")
OTHER = replace(TEST_SETTINGS, gang_scheduler_name="scheduler-plugins-scheduler")
BOTH = pytest.mark.parametrize(
    ("settings", "groups"),
    [
        pytest.param(VOLCANO, VOLCANO_POD_GROUPS, id="volcano"),
        pytest.param(OTHER, COSCHEDULING_POD_GROUPS, id="coscheduling"),
    ],
)


@asynccontextmanager
async def gangs(*rules: Rule, settings: Settings = VOLCANO) -> AsyncGenerator[Harness]:
    """A harness that knows PodGroups, and a controller on it."""
    async with start_harness(*rules) as on:
        await on.define(POD_GROUPS)
        async with running_controller(on, settings):
            yield on


async def admit(on: Harness, phase: str = "Inqueue") -> None:
    """Play Volcano."""
    await on.change(VOLCANO_POD_GROUPS, "train", {"status": {"phase": phase}}, "status")
    await on.settle()


def writes(on: Harness, plural: str) -> list[str]:
    return [
        call.verb for call in on.calls if call.plural == plural and call.verb not in {"get", "list", "watch"}
    ]


async def reasons(on: Harness) -> list[str]:
    return [event["reason"] for event in await on.items(EVENTS)]


async def test_pods_are_created_when_volcano_admits_the_group() -> None:
    async with gangs() as on:
        job = await on.submit(workers=2)
        await on.settle()
        (group,) = await on.items(VOLCANO_POD_GROUPS)
        assert is_owned_by(job)(group)
        assert group["spec"] == {"minMember": 3, "minResources": {}, "queue": "default"}
        assert await on.names(PODS) == []
        assert (await on.job())["status"].keys() == {"conditions", "lastReconcileTime"}

        await admit(on, "Pending")
        assert await on.names(PODS) == []
        await admit(on)
        assert len(await on.names(PODS)) == len(await on.names(SERVICES)) == 3
        assert {pod["spec"]["schedulerName"] for pod in await on.items(PODS)} == {"volcano"}
        assert writes(on, "podgroups") == ["create"]
        assert "get" not in [call.verb for call in on.calls]


@BOTH
async def test_a_pod_group_follows_the_lifecycle_of_its_job(settings: Settings, groups: Resource) -> None:
    """The group is created and deleted once, and each event is recorded once."""
    async with gangs(settings=settings) as on:
        await on.submit(workers=2, runPolicy={"cleanPodPolicy": "None"})
        await on.settle()
        await on.change(groups, "train", {"status": {"phase": "Running"}}, "status")
        await on.settle()
        await on.set_phase("Running")
        await on.settle()
        await on.set_phase("Succeeded", code=0)
        await on.settle(600)

        assert await on.names(groups) == []
        assert len(await on.names(PODS)) == 3
        assert writes(on, "podgroups") == ["create", "delete"]
        recorded = await reasons(on)
        assert (recorded.count("JobTerminated"), recorded.count("SuccessfulDeletePodGroup")) == (1, 1)
        assert [event for event in await on.items(EVENTS) if event["type"] == "Warning"] == []


@BOTH
async def test_a_pod_group_is_patched_only_when_the_job_changes(settings: Settings, groups: Resource) -> None:
    async with gangs(settings=settings) as on:
        await on.submit(workers=1)
        await on.settle()
        for phase in ("Inqueue", "Running"):
            await on.change(groups, "train", {"status": {"phase": phase}}, "status")
            await on.settle()
        await on.set_phase("Running")
        await on.settle(60)
        assert writes(on, "podgroups") == ["create"]

        job = (await on.job())["spec"]["pytorchReplicaSpecs"]
        patch: dict[str, Any] = {
            "spec": {"pytorchReplicaSpecs": {"Worker": {**job["Worker"], "replicas": 3}}}
        }
        await on.change(RESOURCE, "train", patch)
        await on.settle(60)
        assert (await on.get(groups, "train"))["spec"]["minMember"] == 4
        assert writes(on, "podgroups") == ["create", "patch"]


@BOTH
async def test_a_foreign_pod_group_is_left_alone(settings: Settings, groups: Resource) -> None:
    """No pod joins it, either; the job continues once the name is free."""
    async with start_harness() as on:
        await on.define(POD_GROUPS)
        foreign = await on.create(
            groups,
            {"apiVersion": groups.api_version, "kind": "PodGroup", "metadata": {"name": "train"}, "spec": {}},
        )
        async with running_controller(on, settings):
            await on.submit()
            await on.settle(30)
            assert await on.get(groups, "train") == foreign
            assert await on.names(PODS) == []
            assert await on.conditions() == "Created T"
            assert "FailedCreatePodGroup" in await reasons(on)

            await on.delete(groups, "train")
            await on.settle(200)
            assert (await on.get(groups, "train"))["metadata"].get("ownerReferences")


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Reset(committed=True), id="the connection breaks after the write"),
        pytest.param(Reset(), id="the connection breaks before the write"),
        pytest.param(Refuse(500, "InternalError"), id="500"),
        pytest.param(Refuse(400, "BadRequest", "the queue is closed"), id="its webhook refuses it for now"),
    ],
)
@pytest.mark.parametrize("verb", ["create", "patch", "delete"])
async def test_a_failed_write_of_the_pod_group_is_retried(fault: Fault, verb: str) -> None:
    async with gangs(Rule(fault, verb=verb, plural="podgroups", times=1)) as on:
        await on.submit()
        await on.settle(60)
        await admit(on)
        await on.change(
            RESOURCE, "train", {"spec": {"runPolicy": {"schedulingPolicy": {"priorityClass": "high"}}}}
        )
        await on.settle(60)
        assert (await on.get(VOLCANO_POD_GROUPS, "train"))["spec"]["priorityClassName"] == "high"
        await on.set_phase("Running")
        await on.set_phase("Succeeded", code=0)
        await on.settle(60)

        assert await on.conditions() == "Created T, Running F, Succeeded T"
        assert await on.names(VOLCANO_POD_GROUPS) == []


async def test_without_the_flag_pod_groups_are_not_requested() -> None:
    async with start_harness() as on, running_controller(on):
        await on.submit()
        await on.settle()

        assert len(await on.names(PODS, NAMESPACE)) == 2
        assert "podgroups" not in {call.plural for call in on.calls}
