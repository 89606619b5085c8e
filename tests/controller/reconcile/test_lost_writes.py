"""Reconciles on the embedded API server: restarts are counted once and jobs end on time, whichever write fails."""

import asyncio
import copy
from typing import Any

import orjson
import pytest
from prometheus_client import CollectorRegistry

from api.children import pod_from_json, service_from_json
from api.meta import PODS, SERVICES, Resource
from api.v1.pytorchjob import RESOURCE
from controller.crds import all_crds
from controller.domain import Count, Key
from controller.kind import Options
from controller.kinds.pytorch import PYTORCH
from controller.kube.client import Client
from controller.reconcile.apply import Cache
from controller.reconcile.events import EventRecorder
from controller.reconcile.jobs import JobRow, job_from_json
from controller.reconcile.memory import JobMemories
from controller.reconcile.reconciler import Reconciler
from controller.runtime.recorder import Recorder
from controller.runtime.store import Store
from controller.telemetry.metrics.jobs import JobTotals
from tests.support.builders import template
from tests.support.faults import Delay, Refuse, Reset, Rule
from tests.support.harness import NAMESPACE, Harness, running_controller, start_harness

DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
)


ROLES = {
    role: {"replicas": 1, "restartPolicy": "OnFailure", "template": template()}
    for role in ("Master", "Worker")
}


async def run(harness: Harness) -> None:
    """A job that counts its restarts, up to the point where all its pods run."""
    await harness.submit(runPolicy={"backoffLimit": 50}, pytorchReplicaSpecs=ROLES)
    await harness.settle()
    await harness.set_phase("Running")
    await harness.settle()


async def restarts(harness: Harness) -> int | None:
    """What the status says of the worker."""
    used: int | None = (await harness.job())["status"]["replicaStatuses"]["Worker"].get("restarts")
    return used


@pytest.mark.parametrize(
    "fault", [Refuse(409, "Conflict"), Refuse(500, "InternalError"), Reset(), Reset(committed=True)]
)
async def test_a_restart_counts_once_when_the_status_write_fails(fault: Any) -> None:
    rule = Rule(
        fault, verb="patch", plural=RESOURCE.plural, subresource="status", containing=b'"restarts"', times=1
    )
    async with start_harness() as harness, running_controller(harness):
        await run(harness)
        harness.faults.rules.append(rule)
        await harness.set_phase("Failed", "train-worker-0", code=137)
        await harness.settle(60)

        assert rule.met == 1
        assert await restarts(harness) == 1


async def test_a_restart_counts_once_when_the_spec_changes_meanwhile() -> None:
    """There is no fault: a user changes the spec during the status patch."""
    rule = Rule(
        Delay(1),
        verb="patch",
        plural=RESOURCE.plural,
        subresource="status",
        containing=b'"restarts"',
        times=1,
    )
    async with start_harness() as harness, running_controller(harness):
        await run(harness)
        harness.faults.rules.append(rule)
        await harness.set_phase("Failed", "train-worker-0", code=137)
        await harness.settle(0.5)
        await harness.change(RESOURCE, "train", {"spec": {"runPolicy": {"ttlSecondsAfterFinished": 100}}})
        await harness.settle(60)

        assert rule.met == 1
        assert await restarts(harness) == 1


@pytest.mark.parametrize(
    "fault", [Refuse(500, "InternalError"), Refuse(403, "Forbidden"), Reset(), Reset(committed=True)]
)
async def test_a_restart_counts_once_when_the_delete_fails(fault: Any) -> None:
    rule = Rule(fault, verb="delete", plural="pods", times=1)
    async with start_harness() as harness, running_controller(harness):
        await run(harness)
        harness.faults.rules.append(rule)
        await harness.set_phase("Failed", "train-worker-0", code=137)
        await harness.settle(60)

        assert rule.met == 1
        assert await restarts(harness) == 1


async def test_a_job_that_cannot_start_fails_though_its_first_status_is_lost() -> None:
    refuse = Rule(
        Refuse(422, "Invalid", fields=(("spec.x", "bad"),)),
        verb="create",
        plural="pods",
        containing=b"train-worker-0",
    )
    once = Rule(
        Refuse(500, "InternalError"), verb="patch", plural=RESOURCE.plural, subresource="status", times=1
    )
    async with start_harness(refuse, once) as harness, running_controller(harness):
        await harness.submit(pytorchReplicaSpecs=ROLES)
        await harness.settle(600)
        assert "Failed T" in await harness.conditions()


async def test_success_is_recognized_though_a_worker_cannot_be_created() -> None:
    async with start_harness() as harness, running_controller(harness):
        await run(harness)
        harness.faults.rules.append(
            Rule(Refuse(422, "Invalid", fields=(("spec.x", "bad"),)), verb="create", plural="pods")
        )
        await harness.delete(PODS, "train-worker-0")
        await harness.settle(3000)
        await harness.set_phase("Succeeded", "train-master-0", code=0)
        await harness.settle(1)

        assert "Succeeded T" in await harness.conditions()


async def test_pods_are_replaced_though_the_crd_does_not_store_what_is_counted() -> None:
    """With the CRD of another operator the server drops our fields: nothing is counted then, and nothing loops."""
    name = "pytorchjobs.kubeflow.org"
    theirs = next(copy.deepcopy(crd) for crd in all_crds() if crd["metadata"]["name"] == name)
    schema = theirs["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    fields = schema["properties"]["replicaStatuses"]["additionalProperties"]["properties"]
    del fields["restarts"], fields["replacing"]
    async with start_harness() as harness, running_controller(harness):
        await harness.change(DEFINITIONS, name, {"spec": {"versions": theirs["spec"]["versions"]}})
        await run(harness)
        before = (await harness.get(PODS, "train-worker-0"))["metadata"]["uid"]
        harness.faults.calls.clear()
        await harness.set_phase("Failed", "train-worker-0", code=137)
        await harness.settle(60)

        assert (await harness.get(PODS, "train-worker-0"))["metadata"]["uid"] != before
        assert harness.faults.count("delete", "pods") == 1
        assert harness.faults.count("patch", RESOURCE.plural) < 10


async def test_a_canceled_status_write_is_counted_once() -> None:
    """The first reconcile ends during its status patch; the second finds the status written."""
    rule = Rule(Delay(10, committed=True), verb="patch", subresource="status", times=1)
    async with start_harness(rule) as harness, Client(harness.connection) as client:
        await harness.submit("train", runPolicy={"suspend": True})
        jobs, counted = Store[JobRow](), list[Count]()
        caches = {
            PODS: Cache(Store(), pod_from_json),
            SERVICES: Cache(Store(), service_from_json),
        }
        reconciler = Reconciler(
            PYTORCH,  # pyright: ignore[reportArgumentType] - as in ``kinds.ALL``
            client,
            jobs,
            caches,
            EventRecorder(Recorder(client)),
            Options(),
            lambda kind, namespace, count: counted.append(count),
            JobMemories(),
            JobTotals(CollectorRegistry()),
        )
        jobs.put(job_from_json(orjson.dumps(await harness.job())))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await reconciler.reconcile(Key(NAMESPACE, "train"))
        assert counted == []

        jobs.put(job_from_json(orjson.dumps(await harness.job())))
        for _ in range(2):
            await reconciler.reconcile(Key(NAMESPACE, "train"))
        assert counted == [Count.CREATED]
