"""How often the page reads a job, and what it reads. Times are loop time."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from api.meta import EVENTS
from api.v1.pytorchjob import RESOURCE
from controller.kube.client import Client
from rallypoint.cli import cluster as clusters
from rallypoint.cli.cluster import Cluster
from rallypoint.cli.ui import job_page
from rallypoint.cli.ui.job_list import JobList
from rallypoint.cli.ui.job_page import follow_job
from rallypoint.diagnosis import JobSnapshot
from tests.support.faults import Delay, Refuse, Rule
from tests.support.harness import NAMESPACE, Harness, start_harness
from tests.support.snapshots import NOW, container, ended, job, pod, true

KEY = (RESOURCE.kind, NAMESPACE, "train")


@asynccontextmanager
async def page(harness: Harness) -> AsyncGenerator[tuple[Cluster, JobList]]:
    """Yield the cluster of a page and its list of jobs."""
    async with Client(harness.connection, user_agent="rallypoint-ui") as client:
        cluster = Cluster(client, "", "", await clusters.discover(client))
        jobs = JobList(cluster)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(jobs.run())
            await jobs.filled()
            yield cluster, jobs
            running.cancel()


@asynccontextmanager
async def followed(cluster: Cluster, jobs: JobList) -> AsyncGenerator[list[Any]]:
    """Follow the job in the background, and yield the documents so far."""
    found: list[Any] = []

    async def follow() -> None:
        async with aclosing(follow_job(cluster, jobs, KEY)) as documents:
            async for document in documents:
                found.append(document)  # noqa: PERF401 - one at a time

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(follow())
        yield found
        task.cancel()


async def set_active(harness: Harness, count: int) -> None:
    status = {"replicaStatuses": {"Master": {"active": count}}}
    await harness.change(RESOURCE, "train", {"status": status}, subresource="status")


def lists(harness: Harness, plural: str) -> int:
    return sum((call.verb, call.plural) == ("list", plural) for call in harness.calls)


async def test_a_job_that_changes_all_the_time_is_read_a_tenth_of_the_time() -> None:
    async with start_harness(Rule(Delay(0.1), verb="list", plural="pods")) as harness:
        await harness.submit()
        async with page(harness) as (cluster, jobs), followed(cluster, jobs):
            for count in range(200):
                await set_active(harness, count)
                await asyncio.sleep(0.05)

    assert 5 <= lists(harness, "pods") <= 10


async def test_a_small_job_that_changes_is_read_soon() -> None:
    async with start_harness() as harness:
        await harness.submit()
        async with page(harness) as (cluster, jobs), followed(cluster, jobs) as documents:
            await asyncio.sleep(1)
            await set_active(harness, 1)
            await asyncio.sleep(job_page.SHORTEST_PAUSE_SECONDS + 0.1)

    assert [document["replicas"]["active"] for document in documents] == [0, 1]


async def test_a_change_during_a_read_is_not_missed() -> None:
    async with start_harness(Rule(Delay(0.1), verb="list", plural="pods")) as harness:
        await harness.submit()
        async with page(harness) as (cluster, jobs), followed(cluster, jobs) as documents:
            while not lists(harness, "pods"):  # noqa: ASYNC110 - loop time
                await asyncio.sleep(0.01)
            await set_active(harness, 1)
            await asyncio.sleep(1.3)

    assert [document["replicas"]["active"] for document in documents] == [0, 1]


@pytest.mark.parametrize("workers", [1, 100])
async def test_events_are_watched_while_a_job_is_followed(workers: int) -> None:
    async with start_harness() as harness:
        train = await harness.submit(workers=workers)
        async with page(harness) as (cluster, jobs), followed(cluster, jobs) as documents:
            await asyncio.sleep(3)
            for about, uid in (
                ("train", train["metadata"]["uid"]),
                ("train-worker-0", "deleted"),
                ("trainer", "other"),
            ):
                involved = {"kind": "Pod", "namespace": NAMESPACE, "name": about, "uid": uid}
                event = {"metadata": {"name": f"{about}.1"}, "involvedObject": involved, "reason": about}
                await harness.create(EVENTS, {"apiVersion": "v1", "kind": "Event", **event})
            await asyncio.sleep(5)
        calls = [call for call in harness.calls if call.plural == "events"]

    assert {event["reason"] for event in documents[-1]["events"]} == {"train", "train-worker-0"}
    assert [call.verb for call in calls] == ["watch", "watch"], "one of the list, one of the page"


async def test_events_are_listed_if_they_cannot_be_watched() -> None:
    async with start_harness(Rule(Refuse(403, "Forbidden"), verb="watch", plural="events")) as harness:
        train = await harness.submit()
        async with page(harness) as (cluster, jobs), followed(cluster, jobs) as documents:
            await asyncio.sleep(1)
            involved = {
                "kind": "PyTorchJob",
                "namespace": NAMESPACE,
                "name": "train",
                "uid": train["metadata"]["uid"],
            }
            event = {"metadata": {"name": "train.1"}, "involvedObject": involved, "reason": "late"}
            await harness.create(EVENTS, {"apiVersion": "v1", "kind": "Event", **event})
            await asyncio.sleep(3)

    assert [[event["reason"] for event in document["events"]] for document in documents] == [[], ["late"]]


async def test_watches_end_with_their_readers() -> None:
    async with start_harness() as harness, page(harness) as (_, jobs):
        async with jobs.event_watches.open(NAMESPACE) as first, jobs.event_watches.open(NAMESPACE) as second:
            assert first is second
        async with jobs.event_watches.open("") as whole, jobs.event_watches.open(NAMESPACE) as inner:
            assert inner is whole is not first
        assert jobs.event_watches._watches == {}
        assert first._task is not None
        assert first._task.cancelled()


def test_the_state_of_a_pod_is_that_of_kubectl() -> None:
    waits = pod(
        "j-master-0",
        initContainerStatuses=[dict(container(waiting={"reason": "ErrImagePull"}), name="prepare")],
    )
    failed = pod("j-worker-0", "Failed", containerStatuses=[container(terminated=ended(1, reason="Error"))])
    for found in (waits, failed):
        found["spec"] |= {"containers": [{"name": "pytorch"}], "initContainers": [{"name": "prepare"}]}
    train = {**job(), "apiVersion": RESOURCE.api_version}
    train["metadata"] = {**train["metadata"], "namespace": NAMESPACE}
    shown = job_page.document(JobSnapshot(train, NOW, pods=[waits, failed]), ())

    assert [found["state"] for found in shown["pods"]] == ["Init:ErrImagePull", "Error"]


def test_a_job_that_ended_counts_the_pods_that_still_run() -> None:
    train = {**job(true("Failed")), "apiVersion": RESOURCE.api_version}
    train["status"]["replicaStatuses"] = {"Worker": {"active": 2, "failed": 1}}
    runs = pod("j-worker-0", "Running")
    runs["spec"]["containers"] = [{"name": "pytorch"}]

    assert job_page.document(JobSnapshot(train, NOW, pods=[runs]), ())["replicas"]["active"] == 1
    assert job_page.document(JobSnapshot(train, NOW), ())["replicas"]["active"] == 0
