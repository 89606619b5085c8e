"""The row of a job in the list."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from api.labels import JOB_NAME
from api.meta import EVENTS, PODS
from api.v1.pytorchjob import RESOURCE
from controller.kube.client import Client
from rallypoint.cli import cluster as clusters
from rallypoint.cli.cluster import Cluster
from rallypoint.cli.ui import job_list
from rallypoint.cli.ui.job_list import JobList, newest_warning, row_of
from tests.support.harness import NAMESPACE, Harness, start_harness
from tests.support.snapshots import Object, at, container, ended, event, false, job, pod, true


def row(*conditions: Object, warning: Object | None = None, **status: Any) -> dict[str, Any]:
    found = job(*conditions)
    found["status"] |= status
    return row_of(found, warning)


def test_replicas_are_summed_over_roles() -> None:
    statuses = {"Master": {"active": 1}, "Worker": {"succeeded": 1, "failed": 2}, "Other": None}

    assert row(replicaStatuses=statuses)["replicas"] == {
        "desired": 2,
        "active": 1,
        "succeeded": 1,
        "failed": 2,
    }


def test_a_failed_job_does_not_look_alive() -> None:
    """Its status keeps the active pods of before for ever, also if a limit has deleted them."""
    found = job(true("Failed"))
    found["status"]["replicaStatuses"] = {"Worker": {"active": 2, "failed": 1}}

    assert row_of(found)["replicas"] == {"desired": 2, "active": 0, "succeeded": 0, "failed": 1}


@pytest.mark.parametrize(
    ("condition", "shown"),
    [
        (
            "Job j has failed because it has reached the specified backoff limit; last failure: j-worker-0: no",
            "it has reached the specified backoff limit; last failure: j-worker-0: no",
        ),
        ("PyTorchJob j is failed because 1 Worker replica(s) failed.", "1 Worker replica(s) failed."),
        ("no luck", "no luck"),
    ],
)
def test_the_message_of_a_failed_job_begins_with_the_cause(condition: str, shown: str) -> None:
    assert row(true("Failed", message=condition))["message"] == shown


def test_requests_are_summed_over_replicas() -> None:
    found = job(workers=3)
    containers = [{"name": "pytorch", "resources": {"limits": {"nvidia.com/gpu": "8", "memory": "1Gi"}}}]
    found["spec"]["pytorchReplicaSpecs"]["Worker"]["template"] = {"spec": {"containers": containers}}

    assert row_of(found)["requests"] == {"nvidia.com/gpu": 24.0, "memory": 3 * 2.0**30}


def test_an_invalid_amount_counts_as_nothing() -> None:
    found = job()
    containers = [{"name": "pytorch", "resources": {"limits": {"cpu": "many"}}}]
    found["spec"]["pytorchReplicaSpecs"]["Worker"]["template"] = {"spec": {"containers": containers}}

    assert row_of(found)["requests"] == {}


def test_the_message_of_a_job_that_waits_is_its_newest_warning() -> None:
    created = true("Created", message="it is created", lastUpdateTime=at(50))
    warning = event(job(), "Unschedulable", "no room", kind="PyTorchJob")

    assert row(created, warning=warning)["message"] == "Unschedulable: no room"
    assert row(created)["message"] == "it is created"
    running = true("Running", message="it runs", lastUpdateTime=at(1))
    assert row(created, running, warning=warning)["message"] == "it runs"


def test_a_job_that_runs_says_that_pods_wait() -> None:
    running = true("Running", message="it runs", lastUpdateTime=at(50))
    statuses = {"Master": {"active": 1}}
    waits = pod(conditions=[false("PodScheduled", reason="Unschedulable", message="no room")])
    found = job(running)
    found["status"]["replicaStatuses"] = statuses

    assert (row(running)["waits"], row(running)["message"]) == (False, "it runs")
    assert row(running, replicaStatuses=statuses)["message"] == "1 of 2 pods waits"
    assert row_of(found, None, [waits])["message"] == "1 of 2 pods waits: Unschedulable: no room"
    assert row_of(found, None, [waits])["waits"]


def test_a_job_that_runs_shows_the_crash_loop_of_a_pod_since() -> None:
    running = true("Running", message="it runs", lastUpdateTime=at(50))
    statuses = {"Master": {"active": 1}, "Worker": {"active": 1}}
    text = "Error pod j-worker-0 container pytorch waiting message: back-off"
    crash, earlier = event(job(), "CrashLoopBackOff", text), event(job(), "CrashLoopBackOff", text, ago=51)

    found = row(running, warning=crash, replicaStatuses=statuses)
    text = "container pytorch of j-worker-0 fails again and again"
    assert found["message"] == f"CrashLoopBackOff: {text} (reported {at(5)})"
    assert found["waits"]
    assert row(running, warning=earlier, replicaStatuses=statuses)["message"] == "it runs"


def test_a_crash_loop_before_the_start_says_how_it_ends() -> None:
    report = event(
        job(), "CrashLoopBackOff", "Error pod j-worker-0 container init waiting message: back-off 10s"
    )
    waiting = {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container=init"}
    looping = dict(container(waiting=waiting, last=ended(3), restarts=1), name="init")
    waits = pod(initContainerStatuses=[looping])

    text = "CrashLoopBackOff: container init ended 2 times, last with exit code 3"
    assert row_of(job(), report, [waits])["message"] == text


def test_what_a_pod_waits_for_now_replaces_an_older_report() -> None:
    """The operator reports each kind of trouble once, whatever the scheduler writes later."""
    report = event(job(), "Unschedulable", "Error pod j-worker-0 condition message: no cpu, no gpu")
    waits = pod(conditions=[false("PodScheduled", reason="Unschedulable", message="no gpu")])

    assert row_of(job(), report, [waits])["message"] == "Unschedulable: no gpu"
    assert row_of(job(), report)["message"] == "Unschedulable: no cpu, no gpu"


def test_the_last_of_a_series_counts() -> None:
    repeated = event(job(), "Unschedulable", "again", ago=50) | {"series": {"lastObservedTime": at(1)}}
    other = event(job(), "Unschedulable", "before", ago=10)

    assert newest_warning([repeated, other]) is repeated


def test_the_pod_of_a_warning_is_left_out() -> None:
    for report in (
        "Error pod j-worker-0 condition message: ",
        "Error pod j-worker-0 container pytorch waiting message: ",
    ):
        warning = event(job(), "Unschedulable", f"{report}no room", kind="PyTorchJob")

        assert row(warning=warning)["message"] == "Unschedulable: no room"


def test_an_older_warning_does_not_hide_the_condition() -> None:
    created = true("Created", message="it is created", lastUpdateTime=at(5))
    warning = event(job(), "Unschedulable", "no room", ago=50, kind="PyTorchJob")

    assert row(created, warning=warning)["message"] == "it is created"


def test_the_end_is_the_completion_time() -> None:
    done = row(true("Succeeded", since=3), completionTime=at(4))

    assert done["ended"].isoformat() == at(4)
    assert row()["ended"] is None


def test_times_are_compared_as_times() -> None:
    created = true("Created", message="it is created", lastUpdateTime="2026-01-01T12:00:00Z")
    warning = event(job(), "Unschedulable", "no room") | {
        "lastTimestamp": None,
        "eventTime": "2026-01-01T12:00:00.900000Z",
    }

    assert row(created, warning=warning)["message"] == "Unschedulable: no room"


def test_a_failure_to_create_is_over_once_a_child_is_created() -> None:
    failure = event(job(), "FailedCreatePod", "exceeded quota", ago=50)
    created = event(job(), "SuccessfulCreatePod", "Created pod", "Normal", ago=40)
    service = event(job(), "SuccessfulCreateService", "Created service", "Normal", ago=40)
    again = event(job(), "FailedCreatePod", "exceeded quota", ago=30)
    other = event(job(), "Unschedulable", "no room", ago=60)

    assert newest_warning([failure, service]) is failure
    assert newest_warning([created, failure]) is None
    assert newest_warning([failure, created, other]) is other
    assert newest_warning([created, again, failure]) is again


@asynccontextmanager
async def listed(harness: Harness) -> AsyncGenerator[JobList]:
    async with Client(harness.connection, user_agent="rallypoint-ui") as client:
        jobs = JobList(Cluster(client, "", "", await clusters.discover(client)))
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(jobs.run())
            await jobs.filled()
            yield jobs
            running.cancel()


async def warn(
    harness: Harness, uid: str, name: str = "e", reason: str = "Unschedulable", **fields: Any
) -> None:
    involved = {"kind": "PyTorchJob", "namespace": NAMESPACE, "name": "train", "uid": uid}
    content = {
        "involvedObject": involved,
        "type": "Warning",
        "reason": reason,
        "message": "no room",
        **fields,
    }
    body = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": name}, **content}
    await harness.create(EVENTS, {"lastTimestamp": "2999-01-01T00:00:00Z", **body})


def message(jobs: JobList) -> str:
    found = jobs.row((RESOURCE.kind, NAMESPACE, "train"))
    assert found is not None
    return str(found["message"])


async def test_an_expired_warning_stays_with_its_time() -> None:
    """The operator reports most causes only once, and a job may wait for longer than events last."""
    async with start_harness() as harness, listed(harness) as jobs:
        uid = (await harness.submit())["metadata"]["uid"]
        await warn(harness, uid)
        await asyncio.sleep(1)
        before = message(jobs)
        await harness.delete(EVENTS, "e")
        await asyncio.sleep(1)
        expired = message(jobs)
        await warn(harness, uid, "new", message="no node", lastTimestamp="2999-01-01T01:00:00Z")
        await asyncio.sleep(1)
        newer = message(jobs)

    assert before == "Unschedulable: no room"
    assert expired == "Unschedulable: no room (reported 2999-01-01T00:00:00Z)"
    assert newer == "Unschedulable: no node"


async def test_an_expired_failure_that_was_over_does_not_return() -> None:
    async with start_harness() as harness, listed(harness) as jobs:
        uid = (await harness.submit())["metadata"]["uid"]
        await warn(harness, uid, "failed", "FailedCreatePod")
        await asyncio.sleep(1)
        await harness.delete(EVENTS, "failed")
        await warn(
            harness,
            uid,
            "created",
            "SuccessfulCreatePod",
            type="Normal",
            lastTimestamp="2999-01-01T00:01:00Z",
        )
        await asyncio.sleep(1)
        await harness.delete(EVENTS, "created")
        await asyncio.sleep(1)
        found = message(jobs)

    assert "no room" not in found


async def test_nothing_is_kept_of_jobs_that_are_gone() -> None:
    async with start_harness() as harness, listed(harness) as jobs:
        uid = (await harness.submit())["metadata"]["uid"]
        await warn(harness, uid)
        await warn(harness, "of another job", "other")
        await asyncio.sleep(1)
        for name in ("e", "other"):
            await harness.delete(EVENTS, name)
        await asyncio.sleep(1)
        await harness.delete(RESOURCE, "train")
        await asyncio.sleep(1)

    assert (jobs._expired, jobs._keys, jobs.manifests, len(jobs._events.store)) == ({}, {}, {}, 0)


async def test_a_reader_of_the_pods_knows_better_why_a_job_failed() -> None:
    key = (RESOURCE.kind, NAMESPACE, "train")
    async with start_harness() as harness, listed(harness) as jobs:
        uid = (await harness.submit())["metadata"]["uid"]
        failed = {"type": "Failed", "status": "True", "message": "it broke"}
        await harness.change(RESOURCE, "train", {"status": {"conditions": [failed]}}, subresource="status")
        await asyncio.sleep(1)
        jobs.set_failure(key, uid, "it broke: KeyError")
        jobs.set_failure(key, "another", "of an earlier job")
        found = message(jobs)
        await harness.delete(RESOURCE, "train")
        await asyncio.sleep(1)

    assert found == "it broke: KeyError"
    assert jobs._failures == {}


async def test_nothing_is_kept_of_a_job_that_was_replaced_unseen() -> None:
    async with start_harness() as harness, listed(harness) as jobs:
        first = (await harness.submit())["metadata"]["uid"]
        await warn(harness, first)
        await asyncio.sleep(1)
        await harness.delete(EVENTS, "e")
        await asyncio.sleep(1)
        informer = next(i for i in jobs._informers if i.resource == RESOURCE)
        found = informer.store.get(NAMESPACE, "train")
        assert found is not None
        informer.on_change(found, replace(found, uid="second"))

    assert (jobs._expired, list(jobs._keys)) == ({}, ["second"])


async def test_pods_that_wait_change_the_row_of_their_job() -> None:
    waits = pod(
        "train-worker-0", conditions=[false("PodScheduled", reason="Unschedulable", message="no gpu")]
    )
    async with start_harness() as harness, listed(harness) as jobs:
        owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "train", "controller": True}
        uid = (await harness.submit())["metadata"]["uid"]
        metadata = {
            "name": "train-worker-0",
            "labels": {JOB_NAME: "train"},
            "ownerReferences": [{**owner, "uid": uid}],
        }
        containers = [{"name": "pytorch", "image": "none"}]
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {"containers": containers},
        }
        await harness.create(PODS, body)
        await harness.change(PODS, "train-worker-0", {"status": waits["status"]}, subresource="status")
        await asyncio.sleep(1)
        before = message(jobs)
        await harness.delete(PODS, "train-worker-0")
        await asyncio.sleep(1)

    assert before == "Unschedulable: no gpu"
    assert "no gpu" not in message(jobs)


async def test_events_of_pods_and_nodes_are_left_to_the_server() -> None:
    async with start_harness() as harness, listed(harness) as jobs:
        involved = {"kind": "Pod", "namespace": NAMESPACE, "name": "p", "uid": "p"}
        await warn(harness, "p", involvedObject=involved)
        await asyncio.sleep(1)

        assert len(jobs._events.store) == 0


async def test_an_odd_job_does_not_end_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(found: Object, *related: Any) -> dict[str, Any]:
        if found["metadata"]["name"] == "train":
            raise OverflowError("cannot convert float infinity to integer")
        return row_of(found, *related)

    monkeypatch.setattr(job_list, "row_of", refuse)
    async with start_harness() as harness, listed(harness) as jobs:
        await harness.submit()
        await harness.submit("second")
        await asyncio.sleep(1)

        assert [found["name"] for found in jobs.rows()] == ["second"]
