"""Jobs with a queue label on the embedded API server; the test plays Kueue's scheduler, the user and the kubelet."""

import itertools
import random
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

import looptime
import orjson
import pytest
from aiohttp import web
from structlog.testing import capture_logs
from typing_extensions import override

from api.labels import POD_SETS
from api.meta import PODS
from api.v1.pytorchjob import RESOURCE
from api.workloads import PREBUILT, PRIORITY_CLASS, QUEUE_NAME, WORKLOAD_PRIORITY_CLASSES, WORKLOADS
from controller.kueue.builtin import DETECTED, NOT_DETECTED
from rallypoint.local.apiserver.serving.interceptor import Call
from tests.support.builders import template
from tests.support.crash_injection import (
    CrashInjector,
    CrashPoint,
    Moment,
    crash_every,
    restarting_controller,
)
from tests.support.faults import Drop, Refuse, Reset, Rule
from tests.support.harness import (
    TEST_SETTINGS,
    UNLIMITED_SETTINGS,
    Harness,
    fake_clock,
    running_controller,
    start_harness,
)
from tests.support.invariants import has
from tests.support.kueue_api import KueueScheduler

WITH_KUEUE = replace(TEST_SETTINGS, kueue=True)
DENIED = Refuse(
    403,
    "Forbidden",
    f'admission webhook "vpytorchjob.kb.io" denied the request: metadata.labels[{PREBUILT}]: Invalid value',
)
"""What Kueue's own integration answers to the dry run."""


@asynccontextmanager
async def queueing(*rules: Rule) -> AsyncGenerator[tuple[Harness, KueueScheduler]]:
    """A harness with Kueue's API, and a controller on it."""
    with fake_clock() as now:
        async with start_harness(*rules, clock=now) as harness:
            scheduler = KueueScheduler(harness)
            await scheduler.install()
            async with running_controller(harness, WITH_KUEUE):
                yield harness, scheduler


async def submit(harness: Harness, *, queue: str = "main", labels: Mapping[str, str] | None = None) -> None:
    """Create a PyTorchJob with a queue label."""
    own = template()
    own["spec"]["nodeName"] = "node-0"  # so that deleted pods stay until the kubelet has ended them
    roles = {role: {"replicas": count, "template": own} for role, count in (("Master", 1), ("Worker", 1))}
    keys = {QUEUE_NAME: queue} if queue else {}
    body = {
        "apiVersion": RESOURCE.api_version,
        "kind": RESOURCE.kind,
        "metadata": {"name": "train", "labels": {**keys, **(labels or {})}},
        "spec": {"pytorchReplicaSpecs": roles},
    }
    await harness.create(RESOURCE, body)
    await harness.settle()


async def start(harness: Harness, scheduler: KueueScheduler) -> None:
    """Create a PyTorchJob, admit it, and let its pods run."""
    await submit(harness)
    await scheduler.admit()
    await harness.settle()
    await harness.set_phase("Running")
    await harness.settle()


async def is_suspended(harness: Harness) -> bool:
    return bool((await harness.job())["spec"].get("runPolicy", {}).get("suspend"))


async def test_a_job_is_held_until_it_is_admitted() -> None:
    async with queueing() as (harness, scheduler):
        await submit(harness)
        assert await is_suspended(harness)
        assert await harness.conditions() == "Created T, Suspended T"
        workload = await scheduler.workload()
        assert workload["spec"]["queueName"] == "main"
        assert await harness.names(PODS) == []

        await scheduler.admit()
        await harness.settle()

        assert not await is_suspended(harness)
        assert await harness.names(PODS) == ["train-master-0", "train-worker-0"]
        assert {pod["spec"]["nodeSelector"]["instance"] for pod in await harness.items(PODS)} == {"spot"}
        assert await harness.events("Started") == ["Admitted by clusterQueue cluster"]


async def test_an_admitted_job_reports_that_it_runs_and_finishes_its_workload() -> None:
    async with queueing() as (harness, scheduler):
        await start(harness, scheduler)

        assert await scheduler.has("PodsReady")
        assert not await scheduler.has("Finished")
        await harness.set_phase("Succeeded", code=0)
        await harness.settle()

        workload = await scheduler.workload()
        (finished,) = (own for own in workload["status"]["conditions"] if own["type"] == "Finished")
        assert (finished["status"], finished["reason"]) == ("True", "Succeeded")
        assert not workload["metadata"].get("finalizers")


async def test_the_quota_of_a_finished_job_is_kept_until_its_pods_have_ended() -> None:
    async with queueing() as (harness, scheduler):
        await start(harness, scheduler)

        await harness.set_phase("Succeeded", "train-master-0", code=0)
        await harness.settle()
        assert "Succeeded T" in await harness.conditions()
        assert not await scheduler.has("Finished")

        await harness.set_phase("Succeeded", "train-worker-0", code=0)
        await harness.settle()
        assert await scheduler.has("Finished")


async def test_an_evicted_job_returns_its_quota_after_its_pods_and_starts_again() -> None:
    async with queueing() as (harness, scheduler):
        await start(harness, scheduler)

        await scheduler.evict()
        await harness.settle()

        assert await is_suspended(harness)
        template_after = (await harness.job())["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
        assert "nodeSelector" not in template_after["spec"]
        assert await scheduler.has("QuotaReserved"), "its pods are still there"
        for name in await harness.names(PODS):
            await harness.delete(PODS, name, grace_period_seconds=0)
        await harness.settle(2)
        workload = await scheduler.workload()
        assert not has(workload, "QuotaReserved")
        assert not has(workload, "Admitted")
        assert has(workload, "Requeued")
        assert workload["status"].get("admission") is None

        await scheduler.admit()
        await harness.settle()
        assert len(await harness.names(PODS)) == 2


async def test_a_job_without_a_queue_runs_at_once() -> None:
    async with queueing() as (harness, scheduler):
        await submit(harness, queue="")

        assert len(await harness.names(PODS)) == 2
        assert await scheduler.workloads() == []
        assert not [call for call in harness.calls if b"Not-A-Name" in call.body]


async def test_without_the_flag_a_queue_label_means_nothing() -> None:
    with fake_clock() as now:
        async with start_harness(clock=now) as harness, running_controller(harness):
            await submit(harness)

            assert len(await harness.names(PODS)) == 2
            assert not [call for call in harness.calls if call.plural == WORKLOADS.plural]


async def test_a_job_waits_in_a_cluster_without_kueue() -> None:
    with fake_clock() as now:
        async with start_harness(clock=now) as harness, running_controller(harness, WITH_KUEUE):
            await submit(harness)

            assert await harness.names(PODS) == []
            assert "Suspended T" in await harness.conditions()


async def test_where_kueue_manages_the_kind_itself_nothing_is_written_until_it_stops() -> None:
    rule = Rule(DENIED, verb="patch", plural="pytorchjobs", containing=b"Not-A-Name")
    async with queueing(rule) as (harness, scheduler):
        with capture_logs() as logs:
            await submit(harness)
            await harness.settle(50)
            assert await scheduler.workloads() == []
            assert not await is_suspended(harness)
            assert await harness.names(PODS) == []
            assert len([call for call in harness.calls if b"Not-A-Name" in call.body]) == 1

            harness.faults.rules.clear()
            await harness.settle(30)

        assert len(await scheduler.workloads()) == 1
        assert await is_suspended(harness)
        own = [line["event"] for line in logs if "built-in integration" in line["event"]]
        assert own == [DETECTED, NOT_DETECTED]


async def test_a_refusal_by_others_is_no_sign_of_kueue() -> None:
    rule = Rule(
        Refuse(403, "Forbidden", "no"), verb="patch", plural="pytorchjobs", containing=b"Not-A-Name", times=2
    )
    async with queueing(rule) as (harness, scheduler):
        await submit(harness)
        await harness.settle(10)

        assert len(await scheduler.workloads()) == 1


async def test_a_running_job_that_grows_is_queued_again() -> None:
    async with queueing() as (harness, scheduler):
        await submit(harness)
        await scheduler.admit()
        await harness.settle()

        await harness.change(
            RESOURCE, "train", {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 3}}}}
        )
        await harness.settle()
        assert await scheduler.has("QuotaReserved"), "its pods are still there"
        for name in await harness.names(PODS):
            await harness.delete(PODS, name, grace_period_seconds=0)
        await harness.settle()

        workload = await scheduler.workload()
        assert {item["name"]: item["count"] for item in workload["spec"]["podSets"]} == {
            "master": 1,
            "worker": 3,
        }
        assert not has(workload, "QuotaReserved")
        assert await harness.names(PODS) == []
        await scheduler.admit()
        await harness.settle()
        assert len(await harness.names(PODS)) == 4


async def test_a_pending_job_that_changes_updates_its_workload() -> None:
    async with queueing() as (harness, scheduler):
        await submit(harness)
        before = await scheduler.workload()

        await harness.change(
            RESOURCE, "train", {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 3}}}}
        )
        await harness.settle()

        after = await scheduler.workload()
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        assert after["metadata"]["annotations"][POD_SETS] != before["metadata"]["annotations"][POD_SETS]
        assert [item["count"] for item in after["spec"]["podSets"]] == [1, 3]


async def test_a_priority_class_that_does_not_exist_is_reported_and_awaited() -> None:
    async with queueing() as (harness, scheduler):
        await submit(harness, labels={PRIORITY_CLASS: "high"})
        assert await scheduler.workloads() == []
        assert await harness.events("WorkloadBlocked") == ["WorkloadPriorityClass high does not exist"]

        await scheduler.create(WORKLOAD_PRIORITY_CLASSES, "high", value=7)
        await harness.settle(40)

        spec = (await scheduler.workload())["spec"]
        assert spec["priority"] == 7
        assert spec["priorityClassRef"] == {
            "group": "kueue.x-k8s.io",
            "kind": "WorkloadPriorityClass",
            "name": "high",
        }


async def test_a_job_that_contradicts_its_flavor_finishes_its_workload() -> None:
    async with queueing() as (harness, scheduler):
        await submit(harness)
        selector = {"spec": {"nodeSelector": {"instance": "reserved"}}}
        await harness.change(
            RESOURCE, "train", {"spec": {"pytorchReplicaSpecs": {"Worker": {"template": selector}}}}
        )
        await harness.settle()

        await scheduler.admit()
        await harness.settle()

        assert await scheduler.has("Finished")
        (message,) = await harness.events("WorkloadBlocked")
        assert "nodeSelector instance='spot' conflicts with 'reserved'" in message
        assert await harness.names(PODS) == []
        correct = {"spec": {"nodeSelector": None}}
        await harness.change(
            RESOURCE, "train", {"spec": {"pytorchReplicaSpecs": {"Worker": {"template": correct}}}}
        )
        await harness.settle()
        assert not await scheduler.has("Finished")


async def test_a_workload_with_its_name_that_belongs_to_another_is_reported() -> None:
    async with queueing() as (harness, scheduler):
        rule = Rule(Refuse(503), verb="create", plural="workloads")
        harness.faults.rules.append(rule)
        await submit(harness)
        body = next(
            call.body for call in harness.calls if (call.verb, call.plural) == ("create", "workloads")
        )
        other = orjson.loads(body)
        del other["metadata"]["ownerReferences"]
        await harness.create(WORKLOADS, other)
        harness.faults.rules.clear()
        await harness.settle(30)

        (message,) = await harness.events("WorkloadBlocked")
        assert "exists and belongs to another object" in message
        assert len(await scheduler.workloads()) == 1


async def test_a_suspension_that_no_watch_reports_is_noticed_nevertheless() -> None:
    """The reconciler reads a job whose status conflicts, and the watch then reports nothing that the cache does not have."""
    rule = Rule(Drop(), plural="pytorchjobs", containing=b'"suspend":true', times=1)
    lost = Rule(Refuse(500), verb="patch", plural="pytorchjobs", subresource="status", times=1)
    async with queueing(rule, lost) as (harness, scheduler):
        await submit(harness)
        await harness.settle(5)

        assert rule.met == 1
        assert len(await scheduler.workloads()) == 1


async def test_an_eviction_after_a_start_whose_response_was_lost_returns_no_quota_early() -> None:
    """The cache still has the suspended job, and the server has one that runs."""
    lost = Rule(Reset(committed=True), verb="patch", plural="pytorchjobs", containing=b'"suspend":false')
    unseen = Rule(Drop(), plural="pytorchjobs", containing=b'"suspend":false')
    async with queueing(lost, unseen) as (harness, scheduler):
        await submit(harness)
        await scheduler.admit()
        await harness.settle(0.02)
        assert lost.met
        await scheduler.evict()
        await harness.settle(3)

        assert unseen.met
        assert await harness.names(PODS) == []
        assert await is_suspended(harness)
        assert not await scheduler.has("QuotaReserved")


async def live(harness: Harness, scheduler: KueueScheduler) -> None:
    """One life: admitted, evicted while its pods run, admitted again, and succeeded."""

    async def runs() -> bool:
        pods = await harness.items(PODS)
        is_there = len(pods) == 2 and not any(pod["metadata"].get("deletionTimestamp") for pod in pods)
        return is_there and not await is_suspended(harness)

    async def has_workload() -> bool:
        return len(await scheduler.workloads()) == 1

    async def is_stopped() -> bool:
        return await is_suspended(harness)

    async def is_released() -> bool:
        reserved = await scheduler.has("QuotaReserved")
        assert reserved or not await harness.items(PODS), "quota was returned while pods were there"
        return not reserved

    await scheduler.until("its Workload", has_workload)
    assert await harness.names(PODS) == []
    await scheduler.admit()
    await scheduler.until("its pods", runs)
    await harness.set_phase("Running")
    await scheduler.evict()
    await scheduler.until("its suspension", is_stopped)
    await harness.settle(1)
    for name in await harness.names(PODS):
        assert await scheduler.has("QuotaReserved"), "quota was returned while pods were there"
        await harness.delete(PODS, name, grace_period_seconds=0)
    await scheduler.until("the return of its quota", is_released)
    await scheduler.admit()
    await scheduler.until("its pods again", runs)
    await harness.set_phase("Running")
    await harness.set_phase("Succeeded", code=0)

    async def is_over() -> bool:
        return await scheduler.has("Finished") and not (await scheduler.workload())["metadata"].get(
            "finalizers"
        )

    await scheduler.until("its end", is_over)
    assert "Succeeded T" in await harness.conditions()


def lived(injector: CrashInjector) -> None:
    """Run one life, with a controller that is started again when it crashes."""

    async def run() -> None:
        with fake_clock() as clock:
            async with start_harness(faults=injector, clock=clock) as harness:
                scheduler = KueueScheduler(harness)
                await scheduler.install()
                settings = replace(UNLIMITED_SETTINGS, kueue=True)
                async with restarting_controller(harness, injector, settings):
                    await submit(harness)
                    await live(harness, scheduler)

    loop = looptime.new_event_loop(start=0)
    try:
        loop.run_until_complete(run())
    finally:
        loop.close()


@crash_every(12, full=3)
@pytest.mark.parametrize("moment", Moment)
def test_a_killed_controller_loses_no_job_and_returns_no_quota_early(moment: Moment, every: int) -> None:
    for number in itertools.count(1 if moment is Moment.BEFORE else 2, every):
        injector = CrashInjector(CrashPoint(number, moment))
        lived(injector)
        if number > injector.call_count:
            break
    assert number > 30


@pytest.mark.parametrize("seed", range(10))
def test_a_tenth_of_the_calls_may_fail(seed: int) -> None:
    lived(Unreliable(seed))


class Unreliable(CrashInjector):
    """Breaks one in ten of the controller's writes and reads, before or after the server handles it."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._chance = random.Random(seed)

    @override
    async def before(self, call: Call) -> web.Response | None:
        self.rules = (
            [Rule(Reset(committed=self._chance.random() < 0.5))] if self._chance.random() < 0.1 else []
        )
        return await super().before(call)
