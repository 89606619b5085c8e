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
        async with start_harness(crds=(kind,), clock=now) as on:
            batch = asyncio.create_task(Jobs(on.client, now=now).run())
            try:
                async with running_controller(on, replace(TEST_SETTINGS, enable_scheme=(kind.kind,))):
                    yield on
            finally:
                batch.cancel()
                await asyncio.gather(batch, return_exceptions=True)


async def submit(on: Harness, kind: Resource, flavor: str = "") -> dict[str, Any]:
    if kind == RESOURCE:
        return await on.submit(workers=WORKERS)
    roles = {
        "Launcher": {"template": {"spec": {"containers": [container()]}}},
        "Worker": {"replicas": WORKERS, "template": {"spec": {"containers": [container()]}}},
    }
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "train"}}
    return await on.create(kind, {**body, "spec": {"mpiReplicaSpecs": roles, "flavor": flavor}})


async def replace_held(on: Harness, kind: Resource, flavor: str, held: Resource) -> dict[str, Any]:
    """Replace a job whose ``held`` children remain by another of the same name; return the new job."""
    await submit(on, kind, flavor)
    await on.settle(5)
    for name in await on.names(held):
        await on.change(held, name, HELD)
    await on.delete(kind, "train")
    await on.settle(5)
    on.faults.calls.clear()
    return await submit(on, kind, flavor)


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
    async with controlled(kind) as on:
        await replace_held(on, kind, flavor, held)
        names = await on.names(held)
        for second in range(SECONDS):
            for name in names[:5]:
                await on.change(held, name, {"metadata": {"annotations": {"at": str(second)}}})
            await on.settle(1)
        calls = [call for call in on.calls if call.verb != "watch" and call.plural != "events"]

        assert set(names) <= set(await on.names(held))
        assert len(calls) <= 2 * WORKERS + 50


@pytest.mark.parametrize(("kind", "flavor", "held"), REMAINS)
async def test_a_freed_name_is_used_soon(kind: Resource, flavor: str, held: Resource) -> None:
    async with controlled(kind) as on:
        job = await replace_held(on, kind, flavor, held)
        await on.settle(SECONDS)
        remains = {
            item["metadata"]["name"]: item["metadata"]["uid"]
            for item in await on.items(held)
            if not is_owned_by(job)(item) and "deletionTimestamp" in item["metadata"]
        }
        for name in remains:
            await on.change(held, name, RELEASED)
        # A resource that is not watched is asked about, with pauses that have grown meanwhile.
        await on.settle(2 if held not in {SECRETS, ROLES} else SECONDS)
        left = {item["metadata"]["name"]: item["metadata"]["uid"] for item in await on.items(held)}

        assert remains
        assert set(left.values()).isdisjoint(remains.values())
        assert len(left) >= len(remains)


async def test_children_with_free_names_are_created_beside_remains() -> None:
    async with controlled(RESOURCE) as on:
        await submit(on, RESOURCE)
        await on.settle(5)
        await on.change(PODS, "train-worker-0", HELD)
        await on.delete(RESOURCE, "train")
        await on.settle(5)
        job = await submit(on, RESOURCE)
        await on.settle(1)

        own = [pod for pod in await on.items(PODS) if is_owned_by(job)(pod)]
        assert len(own) == WORKERS
        assert len(await on.items(SERVICES)) == WORKERS + 1


async def test_foreign_pods_in_the_cache_cost_no_calls() -> None:
    async with controlled(RESOURCE) as on:
        labels = {"training.kubeflow.org/job-name": "other"}
        for number in range(WORKERS):
            metadata = {"name": f"train-worker-{number}", "labels": labels}
            await on.create(PODS, {**template(), "metadata": metadata})
        await on.settle(1)
        on.faults.calls.clear()
        await submit(on, RESOURCE)
        await on.settle(SECONDS)

        assert [call.verb for call in on.calls if call.plural == "pods"] == ["create"]  # the master
        assert 'Error creating: pods "train-worker-0" already exists' in await on.events("FailedCreatePod")


async def test_a_name_that_is_freed_during_a_reconcile_is_used_by_the_next() -> None:
    """The old owner of the name is unrelated to the job, so its deletion triggers no reconcile."""
    slow = Rule(Delay(1), verb="create", plural=SERVICES.plural)
    async with start_harness(slow) as on, running_controller(on):
        foreign = {"metadata": {"name": "train-worker-0", "labels": {JOB_NAME: "other"}}, **template()}
        await on.create(PODS, {"apiVersion": "v1", "kind": "Pod", **foreign})
        await on.settle()
        await on.submit()
        await on.settle(0.5)
        await on.delete(PODS, "train-worker-0", grace_period_seconds=0)
        await on.settle(30)

        assert slow.met
        assert await on.names(PODS) == ["train-master-0", "train-worker-0"]
