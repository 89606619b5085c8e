"""Reconciles with gang scheduling on the embedded API server; the test acts as the gang scheduler."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from structlog.testing import capture_logs

from api.meta import (
    COSCHEDULING_POD_GROUPS,
    EVENTS,
    NATIVE_POD_GROUPS,
    PODS,
    SERVICES,
    VOLCANO_POD_GROUPS,
    Resource,
)
from api.queues import VOLCANO_QUEUES
from api.v1.pytorchjob import RESOURCE
from controller.settings import Settings
from tests.support.definitions import open_definition
from tests.support.faults import Delay, Fault, Refuse, Reset, Rule
from tests.support.harness import (
    NAMESPACE,
    TEST_SETTINGS,
    Harness,
    fake_clock,
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
    with fake_clock() as now:
        async with start_harness(*rules, clock=now) as harness:
            await harness.define(POD_GROUPS)
            async with running_controller(harness, settings):
                yield harness


async def admit(harness: Harness, phase: str = "Inqueue") -> None:
    """Play Volcano."""
    await harness.change(VOLCANO_POD_GROUPS, "train", {"status": {"phase": phase}}, "status")
    await harness.settle()


def writes(harness: Harness, plural: str) -> list[str]:
    return [
        call.verb
        for call in harness.calls
        if call.plural == plural and call.verb not in {"get", "list", "watch"}
    ]


async def reasons(harness: Harness) -> list[str]:
    return [event["reason"] for event in await harness.items(EVENTS)]


async def test_pods_are_created_when_volcano_admits_the_group() -> None:
    async with gangs() as harness:
        job = await harness.submit(workers=2)
        await harness.settle()
        (group,) = await harness.items(VOLCANO_POD_GROUPS)
        assert is_owned_by(job)(group)
        assert group["spec"] == {"minMember": 3, "minResources": {}, "queue": "default"}
        assert await harness.names(PODS) == []
        assert (await harness.job())["status"].keys() == {"conditions", "lastReconcileTime"}

        await admit(harness, "Pending")
        assert await harness.names(PODS) == []
        await admit(harness)
        assert len(await harness.names(PODS)) == len(await harness.names(SERVICES)) == 3
        assert {pod["spec"]["schedulerName"] for pod in await harness.items(PODS)} == {"volcano"}
        assert writes(harness, "podgroups") == ["create"]
        assert "get" not in [call.verb for call in harness.calls]


@BOTH
async def test_a_pod_group_follows_the_lifecycle_of_its_job(settings: Settings, groups: Resource) -> None:
    """The group is created and deleted once, and each event is recorded once."""
    async with gangs(settings=settings) as harness:
        await harness.submit(workers=2, runPolicy={"cleanPodPolicy": "None"})
        await harness.settle()
        await harness.change(groups, "train", {"status": {"phase": "Running"}}, "status")
        await harness.settle()
        await harness.set_phase("Running")
        await harness.settle()
        await harness.set_phase("Succeeded", code=0)
        await harness.settle(600)

        assert await harness.names(groups) == []
        assert len(await harness.names(PODS)) == 3
        assert writes(harness, "podgroups") == ["create", "delete"]
        recorded = await reasons(harness)
        assert (recorded.count("JobTerminated"), recorded.count("SuccessfulDeletePodGroup")) == (1, 1)
        assert [event for event in await harness.items(EVENTS) if event["type"] == "Warning"] == []


@BOTH
async def test_a_pod_group_is_patched_only_when_the_job_changes(settings: Settings, groups: Resource) -> None:
    async with gangs(settings=settings) as harness:
        await harness.submit(workers=1)
        await harness.settle()
        for phase in ("Inqueue", "Running"):
            await harness.change(groups, "train", {"status": {"phase": phase}}, "status")
            await harness.settle()
        await harness.set_phase("Running")
        await harness.settle(60)
        assert writes(harness, "podgroups") == ["create"]

        job = (await harness.job())["spec"]["pytorchReplicaSpecs"]
        patch: dict[str, Any] = {
            "spec": {"pytorchReplicaSpecs": {"Worker": {**job["Worker"], "replicas": 3}}}
        }
        await harness.change(RESOURCE, "train", patch)
        await harness.settle(60)
        assert (await harness.get(groups, "train"))["spec"]["minMember"] == 4
        assert writes(harness, "podgroups") == ["create", "patch"]


@BOTH
async def test_a_foreign_pod_group_is_left_alone(settings: Settings, groups: Resource) -> None:
    """No pod joins it, either; the job continues once the name is free."""
    async with start_harness() as harness:
        await harness.define(POD_GROUPS)
        foreign = await harness.create(
            groups,
            {"apiVersion": groups.api_version, "kind": "PodGroup", "metadata": {"name": "train"}, "spec": {}},
        )
        async with running_controller(harness, settings):
            await harness.submit()
            await harness.settle(30)
            assert await harness.get(groups, "train") == foreign
            assert await harness.names(PODS) == []
            assert await harness.conditions() == "Created T"
            assert "FailedCreatePodGroup" in await reasons(harness)

            await harness.delete(groups, "train")
            await harness.settle(200)
            assert (await harness.get(groups, "train"))["metadata"].get("ownerReferences")


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
    async with gangs(Rule(fault, verb=verb, plural="podgroups", times=1)) as harness:
        await harness.submit()
        await harness.settle(60)
        await admit(harness)
        await harness.change(
            RESOURCE, "train", {"spec": {"runPolicy": {"schedulingPolicy": {"priorityClass": "high"}}}}
        )
        await harness.settle(60)
        assert (await harness.get(VOLCANO_POD_GROUPS, "train"))["spec"]["priorityClassName"] == "high"
        await harness.set_phase("Running")
        await harness.set_phase("Succeeded", code=0)
        await harness.settle(60)

        assert await harness.conditions() == "Created T, Running F, Succeeded T"
        assert await harness.names(VOLCANO_POD_GROUPS) == []


QUEUES = open_definition(VOLCANO_QUEUES, has_status=False)


async def wait_in_queue(harness: Harness, *names: str) -> str:
    """Return the message about a gang that Volcano does not admit, and submit further jobs of these names."""
    for name in ("train", *names):
        await harness.submit(name, runPolicy={"schedulingPolicy": {"queue": "research"}})
    await harness.settle(120)
    conditions = (await harness.job())["status"]["conditions"]
    return next(str(condition["message"]) for condition in conditions if condition["type"] == "Running")


@pytest.mark.parametrize(
    ("queue", "text"),
    [
        pytest.param(None, "queue research does not exist", id="no queue"),
        pytest.param({"status": {"state": "Closed"}}, "queue research is Closed", id="a closed queue"),
    ],
)
async def test_the_status_of_a_waiting_job_names_its_queue(queue: dict[str, Any] | None, text: str) -> None:
    async with gangs() as harness:
        await harness.define([QUEUES])
        if queue is not None:
            body = {
                "apiVersion": VOLCANO_QUEUES.api_version,
                "kind": "Queue",
                "metadata": {"name": "research"},
            }
            await harness.create(VOLCANO_QUEUES, {**body, **queue})

        assert (await wait_in_queue(harness)).endswith(text)


async def test_jobs_that_wait_in_the_same_queue_share_one_read_of_it() -> None:
    async with gangs() as harness:
        await harness.define([QUEUES])
        await wait_in_queue(harness, "second", "third")

        reads = [call for call in harness.calls if (call.verb, call.plural) == ("get", "queues")]
        messages = [
            condition["message"]
            for job in await harness.items(RESOURCE)
            for condition in job["status"]["conditions"]
            if condition["type"] == "Running"
        ]
        assert len(reads) == 1
        assert [message.endswith("queue research does not exist") for message in messages] == [True] * 3


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param([], id="a server without queues"),
        pytest.param([Rule(Refuse(403, "Forbidden"), verb="get", plural="queues")], id="no permission"),
    ],
)
async def test_an_unreadable_queue_is_not_reported_as_missing(rules: list[Rule]) -> None:
    async with gangs(*rules) as harness:
        if rules:
            await harness.define([QUEUES])
        with capture_logs() as lines:
            text = await wait_in_queue(harness)

        assert text.endswith("the scheduler volcano does not say why; see the events of the PodGroup")
        failures = [line["queue"] for line in lines if line["event"] == "queue of a waiting group not read"]
        assert failures == ["research"] * len(rules)


async def test_a_queue_that_does_not_answer_delays_no_report() -> None:
    async with gangs(Rule(Delay(3600), verb="get", plural="queues")) as harness:
        await harness.define([QUEUES])

        text = await wait_in_queue(harness, "second")

        assert text.endswith("the scheduler volcano does not say why; see the events of the PodGroup")


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param({"suspend": True}, id="suspended"),
        pytest.param({"managedBy": "kueue.x-k8s.io/multikueue"}, id="managed elsewhere"),
    ],
)
async def test_the_queue_of_a_job_that_does_not_run_here_is_not_read(policy: dict[str, Any]) -> None:
    async with gangs() as harness:
        await harness.define([QUEUES])
        job = await harness.submit(runPolicy=policy)
        started = {"status": {"startTime": "2020-01-01T00:00:00Z"}}
        await harness.change(RESOURCE, "train", started, "status")
        await harness.create(VOLCANO_POD_GROUPS, group_of(job))
        await harness.settle(120)

        assert "queues" not in {call.plural for call in harness.calls if call.verb == "get"}


def group_of(job: dict[str, Any]) -> dict[str, Any]:
    """The group of another operator of that job."""
    owner = {"apiVersion": RESOURCE.api_version, "kind": RESOURCE.kind, "controller": True}
    owner |= {key: job["metadata"][key] for key in ("name", "uid")}
    return {
        "apiVersion": VOLCANO_POD_GROUPS.api_version,
        "kind": "PodGroup",
        "metadata": {"name": "train", "ownerReferences": [owner]},
        "spec": {"queue": "research"},
    }


async def test_a_missing_pod_group_definition_is_reported() -> None:
    async with start_harness() as harness, running_controller(harness, VOLCANO):
        await harness.submit()
        await harness.settle(10)

        assert await harness.conditions() == "Running F, Created T"
        conditions = (await harness.job())["status"]["conditions"]
        assert conditions[0]["reason"] == "PyTorchJobBlocked"
        assert conditions[0]["message"] == (
            "the API server serves no podgroups.scheduling.volcano.sh: install the definitions of the scheduler volcano"
        )


NATIVE = replace(TEST_SETTINGS, gang_scheduler_name="kubernetes")


async def test_a_resumed_job_waits_until_its_earlier_group_of_kubernetes_is_gone() -> None:
    """The finalizer is what Kubernetes adds, and removes when the pods are gone."""
    with fake_clock() as now:
        async with start_harness(clock=now) as harness:
            await harness.define([open_definition(NATIVE_POD_GROUPS)])
            async with running_controller(harness, NATIVE):
                await harness.submit(workers=2)
                await harness.settle()
                assert len(await harness.names(PODS)) == 3
                group = await harness.get(NATIVE_POD_GROUPS, "train")
                await harness.change(
                    NATIVE_POD_GROUPS, "train", {"metadata": {"finalizers": ["scheduling.k8s.io/pods"]}}
                )
                await harness.change(RESOURCE, "train", {"spec": {"runPolicy": {"suspend": True}}})
                await harness.settle(60)
                await harness.change(RESOURCE, "train", {"spec": {"runPolicy": {"suspend": False}}})
                # The wait is reported after 30 s without a change of the status, the first of which follows the resumption.
                await harness.settle(90)
                assert await harness.names(PODS) == []
                running = (await harness.job())["status"]["conditions"]
                assert "PyTorchJobWaitingForGang" in {condition["reason"] for condition in running}

                await harness.change(NATIVE_POD_GROUPS, "train", {"metadata": {"finalizers": None}})
                await harness.settle(60)

                assert len(await harness.names(PODS)) == 3
                again = await harness.get(NATIVE_POD_GROUPS, "train")
                assert again["metadata"]["uid"] != group["metadata"]["uid"]
                assert writes(harness, "podgroups") == ["create", "delete", "create"]


async def test_a_job_says_how_to_enable_the_groups_of_kubernetes() -> None:
    async with start_harness() as harness, running_controller(harness, NATIVE):
        await harness.submit()
        await harness.settle(10)

        conditions = (await harness.job())["status"]["conditions"]
        assert conditions[0]["reason"] == "PyTorchJobBlocked"
        assert conditions[0]["message"] == (
            "the API server serves no podgroups.scheduling.k8s.io: "
            "enable scheduling.k8s.io/v1beta1 and the feature gate GenericWorkload, in Kubernetes 1.37 or newer"
        )


async def test_without_the_flag_pod_groups_are_not_requested() -> None:
    async with start_harness() as harness, running_controller(harness):
        await harness.submit()
        await harness.settle()

        assert len(await harness.names(PODS, NAMESPACE)) == 2
        assert "podgroups" not in {call.plural for call in harness.calls}
