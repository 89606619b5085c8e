"""Gangs on a local cluster, with the controller: jobs that each need the whole machine run in sequence, never partially."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from api.meta import COSCHEDULING_POD_GROUPS, EVENTS, PODS, VOLCANO_POD_GROUPS, Resource
from api.v1.pytorchjob import RESOURCE
from controller import app
from controller.crds import all_crds
from controller.runtime.informer import Informer
from rallypoint.cli.local_flags import SETTINGS
from rallypoint.local.cluster import LocalCluster, NodeConfig, local_cluster
from rallypoint.local.manifest import Manifest, Row, decode

pytestmark = pytest.mark.looptime(False)

TIMEOUT_SECONDS = 60.0
SCHEDULERS = {"volcano": VOLCANO_POD_GROUPS, "scheduler-plugins": COSCHEDULING_POD_GROUPS}


class Watched:
    """A site with jobs, and what was ever seen of some resources."""

    def __init__(self, cluster: LocalCluster, groups: Resource) -> None:
        self.client = cluster.client
        self.cores = int(cluster.node.machine.capacity["cpu"])
        self.observed: list[Row] = []
        self.informers = {
            resource: Informer(cluster.client, resource, decode, self._changed)
            for resource in (RESOURCE, PODS, groups)
        }
        self._change = asyncio.Event()

    def _changed(self, before: Row | None, after: Row | None) -> None:
        if after is not None:
            self.observed.append(after)
        self._change.set()
        self._change = asyncio.Event()

    async def until(self, resource: Resource, name: str, holds: Callable[[Manifest], Any]) -> Manifest:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while True:
                change, row = self._change, self.informers[resource].store.get("default", name)
                if row is not None and holds(row.manifest):
                    return row.manifest
                await change.wait()

    async def submit(
        self, name: str, *, cpu: str, policy: dict[str, Any] | None = None, script: str = "true"
    ) -> None:
        """A job of two workers."""
        container = {
            "name": "pytorch",
            "image": "none",
            "command": ["sh", "-c", script],
            "resources": {"requests": {"cpu": cpu}},
        }
        worker = {"replicas": 2, "restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}
        spec = {"pytorchReplicaSpecs": {"Worker": worker}, "runPolicy": {"schedulingPolicy": policy}}
        body = {
            "apiVersion": RESOURCE.api_version,
            "kind": RESOURCE.kind,
            "metadata": {"name": name},
            "spec": spec,
        }
        await self.client.create(RESOURCE, "default", orjson.dumps(body))

    async def succeeded(self, name: str) -> Manifest:
        return await self.until(RESOURCE, name, lambda job: "Succeeded" in conditions(job))

    def phases(self, name: str) -> list[str]:
        """The phases of the PodGroup of a job, in order."""
        recorded = [
            phase(row.manifest)
            for row in self.observed
            if row.manifest["kind"] == "PodGroup" and row.name == name
        ]
        return [
            phase
            for phase, before in zip(recorded, ["", *recorded], strict=False)
            if phase and phase != before
        ]


def conditions(job: Manifest) -> set[str]:
    return {
        condition["type"]
        for condition in (job.get("status") or {}).get("conditions") or ()
        if condition["status"] == "True"
    }


def phase(manifest: Manifest) -> str:
    return str((manifest.get("status") or {}).get("phase") or "")


def words(pod: Manifest) -> str:
    return str((pod["status"].get("conditions") or [{}])[0].get("message") or "")


@pytest.fixture(params=SCHEDULERS)
async def watched(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Watched]:
    name = str(request.param)
    async with (
        local_cluster(
            all_crds(), tmp_path, isolation="loopback", node_config=NodeConfig(gang_scheduler=name)
        ) as cluster,
        asyncio.TaskGroup() as tasks,
    ):
        watched = Watched(cluster, SCHEDULERS[name])
        settings = replace(SETTINGS, gang_scheduler_name=name)
        running = [tasks.create_task(app.run(settings, cluster.connection))]
        running += [tasks.create_task(informer.run()) for informer in watched.informers.values()]
        yield watched
        for task in running:
            task.cancel()


async def test_two_gangs_that_need_the_whole_machine_run_in_sequence(watched: Watched) -> None:
    half = str(watched.cores / 2)
    for name in ("one", "two"):
        await watched.submit(name, cpu=half, script="sleep 0.3")
    for name in ("one", "two"):
        await watched.succeeded(name)
    running: dict[str, set[str]] = {"one": set(), "two": set()}
    for row in watched.observed:
        if row.manifest["kind"] == "Pod":
            job = row.name.partition("-")[0]
            (running[job].add if phase(row.manifest) == "Running" else running[job].discard)(row.name)
            assert not (running["one"] and running["two"])
    assert "Running" in watched.phases("one")
    assert "Running" in watched.phases("two")


async def test_no_pod_of_a_gang_that_never_fits_is_bound(watched: Watched) -> None:
    policy = {"minResources": {"cpu": "100m"}}
    await watched.submit("large", cpu=str(watched.cores * 0.75), policy=policy)
    await watched.submit("small", cpu="100m")
    await watched.succeeded("small")
    first, second = [await watched.until(PODS, f"large-worker-{i}", words) for i in (0, 1)]

    assert not first["spec"].get("nodeName")
    assert not second["spec"].get("nodeName")
    said = {words(first), words(second)}
    assert any("Insufficient cpu" in message for message in said)
    assert any("possibly be assigned" in message or "optimistic rejection" in message for message in said)
    assert "Running" not in watched.phases("large")


async def test_a_gang_waits_for_min_available_pods(watched: Watched) -> None:
    """As the training SDK's own test has it."""
    await watched.submit("patient", cpu="100m", policy={"minAvailable": 10})
    pod = await watched.until(PODS, "patient-worker-1", words)
    assert not pod["spec"].get("nodeName")
    change = {"spec": {"runPolicy": {"schedulingPolicy": {"minAvailable": 2}}}}
    await watched.client.patch(RESOURCE, "default", "patient", orjson.dumps(change))

    await watched.succeeded("patient")


async def test_events_come_from_the_gangs_scheduler(watched: Watched) -> None:
    await watched.submit("one", cpu="100m")
    await watched.succeeded("one")
    events = orjson.loads(await watched.client.list(EVENTS, "default"))["items"]
    sources = {event["source"].get("component") for event in events if event["reason"] == "Scheduled"}

    assert len(sources) == 1
    assert sources < set(SCHEDULERS)
