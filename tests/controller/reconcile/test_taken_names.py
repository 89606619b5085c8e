"""The whole controller while names of children are taken: its calls, and how soon it uses a freed name."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from api.batch import BATCH_JOBS
from api.labels import JOB_NAME
from api.meta import CONFIG_MAPS, PODS, ROLES, SECRETS, SERVICES, Resource
from api.mpijob import RESOURCE as MPI_JOBS
from api.v1.pytorchjob import RESOURCE
from rallypoint.local.batch.jobs import Jobs
from tests.support.builders import template
from tests.support.faults import Delay, Rule
from tests.support.harness import (
    TEST_SETTINGS,
    Harness,
    fake_clock,
    is_owned_by,
    running_controller,
    start_harness,
)
from tests.support.mpi import container

HELD = {"metadata": {"finalizers": ["example.com/slow"]}}
RELEASED = {"metadata": {"finalizers": None}}
WORKERS = 50
SECONDS = 40


@asynccontextmanager
async def controlled(kind: Resource) -> AsyncGenerator[Harness]:
    """A controller of that kind, beside the controller of batch Jobs."""
    with fake_clock() as now:
        async with start_harness(crds=(kind,), clock=now) as harness:
            batch = asyncio.create_task(Jobs(harness.client, now=now).run())
            try:
                async with running_controller(harness, replace(TEST_SETTINGS, enable_scheme=(kind.kind,))):
                    yield harness
            finally:
                batch.cancel()
                await asyncio.gather(batch, return_exceptions=True)


async def submit(harness: Harness, kind: Resource, flavor: str = "") -> dict[str, Any]:
    if kind == RESOURCE:
        return await harness.submit(workers=WORKERS)
    roles = {
        "Launcher": {"template": {"spec": {"containers": [container()]}}},
        "Worker": {"replicas": WORKERS, "template": {"spec": {"containers": [container()]}}},
    }
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "train"}}
    return await harness.create(kind, {**body, "spec": {"mpiReplicaSpecs": roles, "flavor": flavor}})


async def replace_held(harness: Harness, kind: Resource, flavor: str, held: Resource) -> dict[str, Any]:
    """Replace a job whose ``held`` children remain by another of the same name; return the new job."""
    await submit(harness, kind, flavor)
    await harness.settle(5)
    for name in await harness.names(held):
        await harness.change(held, name, HELD)
    await harness.delete(kind, "train")
    await harness.settle(5)
    harness.faults.calls.clear()
    return await submit(harness, kind, flavor)


REMAINS = [
    pytest.param(RESOURCE, "", PODS, id="pods of a PyTorchJob"),
    pytest.param(RESOURCE, "", SERVICES, id="Services of a PyTorchJob"),
    pytest.param(MPI_JOBS, "v2beta1", PODS, id="pods of a v2beta1 MPIJob"),
    pytest.param(MPI_JOBS, "v2beta1", BATCH_JOBS, id="the launcher's Job of a v2beta1 MPIJob"),
    pytest.param(MPI_JOBS, "v2beta1", SERVICES, id="the Service of a v2beta1 MPIJob"),
    pytest.param(MPI_JOBS, "v2beta1", CONFIG_MAPS, id="the ConfigMap of a v2beta1 MPIJob"),
    pytest.param(MPI_JOBS, "v2beta1", SECRETS, id="the Secret of a v2beta1 MPIJob"),
    pytest.param(MPI_JOBS, "v1", PODS, id="pods of a v1 MPIJob"),
    pytest.param(MPI_JOBS, "v1", CONFIG_MAPS, id="the ConfigMap of a v1 MPIJob"),
    pytest.param(MPI_JOBS, "v1", ROLES, id="the Role of a v1 MPIJob"),
    pytest.param(MPI_JOBS, "v1alpha2", PODS, id="pods of a v1alpha2 MPIJob"),
]


@pytest.mark.parametrize(("kind", "flavor", "held"), REMAINS)
async def test_remains_with_a_finalizer_cost_few_calls(kind: Resource, flavor: str, held: Resource) -> None:
    """One call for each child that can be made, and growing pauses; also while what remains changes all the time."""
    async with controlled(kind) as harness:
        await replace_held(harness, kind, flavor, held)
        names = await harness.names(held)
        for second in range(SECONDS):
            for name in names[:5]:
                await harness.change(held, name, {"metadata": {"annotations": {"at": str(second)}}})
            await harness.settle(1)
        calls = [call for call in harness.calls if call.verb != "watch" and call.plural != "events"]

        assert set(names) <= set(await harness.names(held))
        assert len(calls) <= 2 * WORKERS + 50


@pytest.mark.parametrize(("kind", "flavor", "held"), REMAINS)
async def test_a_freed_name_is_used_soon(kind: Resource, flavor: str, held: Resource) -> None:
    async with controlled(kind) as harness:
        job = await replace_held(harness, kind, flavor, held)
        await harness.settle(SECONDS)
        remains = {
            item["metadata"]["name"]: item["metadata"]["uid"]
            for item in await harness.items(held)
            if not is_owned_by(job)(item) and "deletionTimestamp" in item["metadata"]
        }
        for name in remains:
            await harness.change(held, name, RELEASED)
        # A resource that is not watched is polled, with pauses that have grown meanwhile.
        await harness.settle(2 if held not in {SECRETS, ROLES} else SECONDS)
        left = {item["metadata"]["name"]: item["metadata"]["uid"] for item in await harness.items(held)}

        assert remains
        assert set(left.values()).isdisjoint(remains.values())
        assert len(left) >= len(remains)


async def test_children_with_free_names_are_created_beside_remains() -> None:
    async with controlled(RESOURCE) as harness:
        await submit(harness, RESOURCE)
        await harness.settle(5)
        await harness.change(PODS, "train-worker-0", HELD)
        await harness.delete(RESOURCE, "train")
        await harness.settle(5)
        job = await submit(harness, RESOURCE)
        await harness.settle(1)

        own = [pod for pod in await harness.items(PODS) if is_owned_by(job)(pod)]
        assert len(own) == WORKERS
        assert len(await harness.items(SERVICES)) == WORKERS + 1


async def test_foreign_pods_in_the_cache_cost_no_calls() -> None:
    async with controlled(RESOURCE) as harness:
        labels = {"training.kubeflow.org/job-name": "other"}
        for number in range(WORKERS):
            metadata = {"name": f"train-worker-{number}", "labels": labels}
            await harness.create(PODS, {**template(), "metadata": metadata})
        await harness.settle(1)
        harness.faults.calls.clear()
        await submit(harness, RESOURCE)
        await harness.settle(SECONDS)

        assert [call.verb for call in harness.calls if call.plural == "pods"] == ["create"]  # the master
        assert 'Error creating: pods "train-worker-0" already exists' in await harness.events(
            "FailedCreatePod"
        )


async def test_a_name_that_is_freed_during_a_reconcile_is_used_by_the_next() -> None:
    """The old owner of the name is unrelated to the job, so its deletion triggers no reconcile."""
    slow = Rule(Delay(1), verb="create", plural=SERVICES.plural)
    async with start_harness(slow) as harness, running_controller(harness):
        foreign = {"metadata": {"name": "train-worker-0", "labels": {JOB_NAME: "other"}}, **template()}
        await harness.create(PODS, {"apiVersion": "v1", "kind": "Pod", **foreign})
        await harness.settle()
        await harness.submit()
        await harness.settle(0.5)
        await harness.delete(PODS, "train-worker-0", grace_period_seconds=0)
        await harness.settle(30)

        assert slow.met
        assert await harness.names(PODS) == ["train-master-0", "train-worker-0"]


async def test_a_job_with_one_service_has_no_pod_while_its_name_is_taken() -> None:
    async with (
        start_harness() as harness,
        running_controller(harness, replace(TEST_SETTINGS, services="per-job")),
    ):
        foreign = {"metadata": {"name": "train"}, "spec": {"ports": [{"port": 80}]}}
        await harness.create(SERVICES, {"apiVersion": "v1", "kind": "Service", **foreign})
        await harness.submit()
        await harness.settle(5)

        assert await harness.names(PODS) == []
        assert 'services "train" already exists' in str(await harness.events("FailedCreateService"))

        await harness.delete(SERVICES, "train")
        await harness.settle(SECONDS)

        assert await harness.names(PODS) == ["train-master-0", "train-worker-0"]
        assert await harness.names(SERVICES) == ["train"]
        assert "Created service: train" in await harness.events("SuccessfulCreateService")
