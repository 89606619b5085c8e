"""How often the page reads a job, and what it reads. Times are loop time."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from api.labels import JOB_NAME
from api.meta import EVENTS, PODS
from api.v1.pytorchjob import RESOURCE
from controller.kube.client import Client
from rallypoint.cli import cluster as clusters
from rallypoint.cli.cluster import Cluster
from rallypoint.cli.ui import job_page
from rallypoint.cli.ui.job_list import JobList
from rallypoint.cli.ui.job_page import follow_job
from rallypoint.diagnosis import JobSnapshot, LastLines
from rallypoint.diagnosis.objects import Object
from rallypoint.local.log_archive import ArchivedPod
from tests.support.faults import Delay, Refuse, Rule
from tests.support.harness import NAMESPACE, Harness, start_harness
from tests.support.snapshots import NOW, container, ended, event, job, pod, true

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


def document(train: Object, pods: Sequence[Object] = (), archived: Sequence[ArchivedPod] = ()) -> Any:
    return job_page.document(
        JobSnapshot({**train, "apiVersion": RESOURCE.api_version}, NOW, pods), (), archived
    )


def test_which_containers_of_a_pod_have_ended() -> None:
    statuses = [
        dict(container(terminated=ended(0)), name="done"),
        dict(container(running={}), name="runs"),
        dict(container(waiting={}, last=ended(1)), name="crashes"),
    ]
    found = pod("j-worker-0", "Running", containerStatuses=statuses)
    found["spec"]["containers"] = [{"name": status["name"]} for status in statuses]
    shown = document(job(true("Running")), [found])

    assert [pod["ended"] for pod in shown["pods"]] == [["done"]]


@pytest.mark.parametrize("has_started", [True, False])
def test_whether_a_deleted_pod_had_started(tmp_path: Path, has_started: bool) -> None:
    gone = pod("j-worker-0")
    gone["spec"]["containers"] = [{"name": "pytorch"}]
    if has_started:
        (tmp_path / "pytorch").mkdir()
        (tmp_path / "pytorch" / "0.log").touch()
    shown = document(job(true("Failed")), archived=[ArchivedPod(gone, tmp_path)])

    assert [found["started"] for found in shown["deletedPods"]] == [has_started]


def test_a_job_that_ended_counts_the_pods_that_still_run() -> None:
    train = {**job(true("Failed")), "apiVersion": RESOURCE.api_version}
    train["status"]["replicaStatuses"] = {"Worker": {"active": 2, "failed": 1}}
    runs = pod("j-worker-0", "Running")
    runs["spec"]["containers"] = [{"name": "pytorch"}]

    assert job_page.document(JobSnapshot(train, NOW, pods=[runs]), ())["replicas"]["active"] == 1
    assert job_page.document(JobSnapshot(train, NOW), ())["replicas"]["active"] == 0


def test_the_message_of_a_failed_job_ends_with_what_it_said_last() -> None:
    train = {**job(true("Failed", message="Job j has failed because it is late")), "apiVersion": "v1"}
    broken = pod("j-worker-0", "Failed", containerStatuses=[container(terminated=ended(1, reason="Error"))])
    broken["spec"]["containers"] = [{"name": "pytorch"}]
    said = LastLines(NOW, ("Traceback (most recent call last):", "KeyError: 'loss'"))

    def message(snapshot: JobSnapshot) -> str:
        return str(job_page.document(snapshot, ())["message"])

    text = "it is late; j-worker-0: was the first to fail, on a: container pytorch ended with exit code 1"
    assert message(JobSnapshot(train, NOW, pods=[broken])) == text
    lines = {("j-worker-0", "pytorch"): said}
    assert message(JobSnapshot(train, NOW, pods=[broken], last_lines=lines)) == f"{text}: KeyError: 'loss'"

    limit = "it has reached its limit; last failure: j-worker-0: container pytorch ended with exit code 1"
    train["status"]["conditions"][0]["message"] = limit
    assert message(JobSnapshot(train, NOW)) == limit
    deleted = JobSnapshot(train, NOW, lines_of_deleted_pods=lines)
    assert message(deleted) == f"{limit}: KeyError: 'loss'"
    train["status"]["conditions"][0]["message"] = f"{limit}: KeyError: 'loss'"
    assert message(deleted) == f"{limit}: KeyError: 'loss'"


def test_the_message_of_a_limit_names_its_own_failure() -> None:
    limit = (
        "Job j has failed because it has reached the specified backoff limit; last failure: j-worker-1: no"
    )
    train = {**job(true("Failed", since=5, message=limit)), "apiVersion": "v1"}
    other = event(pod("j-worker-0"), "BackOff", "Back-off restarting failed container", ago=8)

    shown = job_page.document(JobSnapshot(train, NOW, events=[other]), ())

    assert any(cause["about"] == ("j-worker-0",) for cause in shown["why"]["causes"])
    assert shown["message"] == limit.removeprefix("Job j has failed because ")


async def test_the_list_gets_the_message_of_a_failed_job() -> None:
    async with start_harness() as harness:
        uid = (await harness.submit())["metadata"]["uid"]
        condition = {"type": "Failed", "status": "True", "message": "it broke"}
        await harness.change(RESOURCE, "train", {"status": {"conditions": [condition]}}, subresource="status")
        owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "train", "uid": uid}
        metadata = {
            "name": "train-worker-0",
            "labels": {JOB_NAME: "train"},
            "ownerReferences": [{**owner, "controller": True}],
        }
        spec = {"containers": [{"name": "pytorch", "image": "none"}]}
        await harness.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        broken = pod(phase="Failed", containerStatuses=[container(terminated=ended(7))])
        await harness.change(PODS, "train-worker-0", {"status": broken["status"]}, subresource="status")
        async with page(harness) as (cluster, jobs):
            await asyncio.sleep(1)
            found = await job_page.read_job(cluster, jobs, KEY)
            row = jobs.row(KEY)

    assert row
    assert row["message"] == found["message"]
    assert row["message"].endswith("container pytorch ended with exit code 7")
