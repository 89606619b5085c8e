"""Writing the status of a job: one patch, only over the version that was planned for."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import aiohttp
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.job import Job, JobStatus
from api.v1.pytorchjob import RESOURCE
from controller.kube import errors
from controller.kube.client import Client
from controller.reconcile.jobs import JobRow, job_from_json, parse
from controller.reconcile.status import (
    LEDGER_RETRY_SECONDS,
    TRIES,
    StatusChange,
    StatusWriter,
    merge_patch,
    status_change,
)
from controller.runtime import clock
from controller.runtime.store import Store
from rallypoint.local.apiserver.patches import jsonpatch
from tests.support.faults import Delay, Refuse, Reset, Rule
from tests.support.harness import NAMESPACE, Harness, start_harness

RUNNING = JobStatus.model_validate(
    {
        "conditions": [
            {
                "type": "Running",
                "status": "True",
                "reason": "PyTorchJobRunning",
                "message": "it runs",
                "lastUpdateTime": "2026-01-01T12:00:00Z",
                "lastTransitionTime": "2026-01-01T12:00:00Z",
            }
        ],
        "replicaStatuses": {"Master": {"active": 1}},
        "startTime": "2026-01-01T12:00:00Z",
    }
)


class Writing:
    """A writer on a harness, and the job as it was decided for."""

    def __init__(self, harness: Harness, client: Client, row: JobRow) -> None:
        self.harness = harness
        self.row = row
        self.store = Store[JobRow]()
        self.store.put(row)
        self.writer = StatusWriter(client, RESOURCE, self.store)

    @property
    def job(self) -> Job:
        return parse(self.row, Job, RESOURCE.kind)[0]

    async def write(self, status: JobStatus = RUNNING) -> None:
        change = status_change(self.job, status)
        assert change
        await self.writer.write(self.row, change)

    async def live(self) -> dict[str, Any]:
        return await self.harness.job()


@asynccontextmanager
async def writing(*rules: Rule) -> AsyncIterator[Writing]:
    async with start_harness(*rules) as harness, Client(harness.connection) as client:
        row = job_from_json(orjson.dumps(await harness.submit()))
        yield Writing(harness, client, row)


async def test_a_status_is_written_by_a_single_patch() -> None:
    async with writing() as it:
        await it.write()

        assert (await it.live())["status"] == RUNNING.to_wire()
        (call,) = [call for call in it.harness.faults.calls if call.verb == "patch"]
        body = orjson.loads(call.body)
        assert call.subresource == "status"
        assert body["metadata"] == {"resourceVersion": str(it.row.resource_version)}
        assert it.harness.faults.count("get") == 1, "that is the test's own"


async def test_a_written_status_is_stored_at_once() -> None:
    """A later watch event of the write reports no change then."""
    async with writing() as it:
        await it.write()

        row = it.store.get(NAMESPACE, "train")
        assert row == job_from_json(orjson.dumps(await it.live()))


async def test_only_changed_fields_are_sent() -> None:
    async with writing() as it:
        await it.write()
        it.row = job_from_json(orjson.dumps(await it.live()))
        more = RUNNING.model_copy(update={"replica_statuses": None})
        await it.write(more)

        sent = [orjson.loads(call.body)["status"] for call in it.harness.faults.calls if call.verb == "patch"]
        assert sent[1] == {"replicaStatuses": None}
        assert "replicaStatuses" not in (await it.live())["status"]


async def test_a_concurrent_change_of_labels_does_not_prevent_the_write() -> None:
    async with writing() as it:
        await it.harness.change(RESOURCE, "train", {"metadata": {"labels": {"a": "b"}}})

        await it.write()
        live = await it.live()
        assert (live["metadata"]["labels"], live["status"]) == ({"a": "b"}, RUNNING.to_wire())


async def change_spec(harness: Harness) -> None:
    await harness.change(RESOURCE, "train", {"spec": {"runPolicy": {"suspend": True}}})


async def change_status(harness: Harness) -> None:
    await harness.change(RESOURCE, "train", {"status": {"startTime": "2025-01-01T00:00:00Z"}}, "status")


async def create_anew(harness: Harness) -> None:
    await harness.delete(RESOURCE, "train")
    await harness.submit()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(change_spec, id="the spec has changed"),
        pytest.param(change_status, id="another client has written the status"),
        pytest.param(create_anew, id="another job of that name is there"),
    ],
)
async def test_an_outdated_decision_is_not_written(
    change: Callable[[Harness], Awaitable[None]],
) -> None:
    async with writing() as it:
        await change(it.harness)
        before = await it.live()

        with pytest.raises(errors.Conflict, match="has been modified"):
            await it.write()
        assert await it.live() == before
        assert it.store.get(NAMESPACE, "train") == job_from_json(orjson.dumps(before)), (
            "the next reconcile sees it"
        )


async def test_the_status_of_a_deleted_job_is_not_written() -> None:
    async with writing() as it:
        await it.harness.delete(RESOURCE, "train")

        with pytest.raises(errors.NotFound):
            await it.write()


async def test_a_job_that_is_deleted_during_the_write_is_not_found() -> None:
    async with writing(Rule(Refuse(409, "Conflict"), verb="patch", plural=RESOURCE.plural, times=1)) as it:
        await it.harness.delete(RESOURCE, "train")

        with pytest.raises(errors.NotFound):
            await it.write()


async def test_conflict_retries_are_limited() -> None:
    async with writing(Rule(Refuse(409, "Conflict"), verb="patch", subresource="status")) as it:
        with pytest.raises(errors.Conflict):
            await it.write()

        assert it.harness.faults.count("patch", subresource="status") == TRIES


async def test_the_write_succeeds_beside_a_busy_writer_of_labels() -> None:
    """Each patch is under way for a while, and the labels change every 50 ms."""
    rule = Rule(Delay(0.02), verb="patch", subresource="status")
    async with writing(rule) as it:

        async def scribble() -> None:
            for number in range(1000):
                await it.harness.change(RESOURCE, "train", {"metadata": {"labels": {"n": str(number)}}})
                await asyncio.sleep(0.05)

        scribbling = asyncio.create_task(scribble())
        await asyncio.sleep(0.3)

        await it.write()
        scribbling.cancel()
        await asyncio.gather(scribbling, return_exceptions=True)


async def test_a_write_with_a_lost_response_is_found_done() -> None:
    async with writing(Rule(Reset(committed=True), verb="patch", subresource="status", times=1)) as it:
        with pytest.raises(aiohttp.ClientError):
            await it.write()
        it.row = job_from_json(orjson.dumps(await it.live()))

        assert status_change(it.job, RUNNING) is None


JSON_VALUES = st.recursive(
    st.booleans() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=3),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from("abc"), JSON_VALUES, max_size=3)


@given(before=OBJECTS, after=OBJECTS)
def test_a_merge_patch_turns_the_first_object_into_the_second(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    change = merge_patch(before, after)

    assert jsonpatch.merge(before, change) == after
    assert (change == {}) == (before == after)


@pytest.mark.parametrize("status", [None, JobStatus()], ids=["no status", "an empty one"])
def test_an_unchanged_status_is_no_change(status: JobStatus | None) -> None:
    assert status_change(Job(), status) is None


def test_unset_counters_are_no_change() -> None:
    job = Job.model_validate({"status": {"replicaStatuses": {"Master": {}}}})

    assert not status_change(job, JobStatus.model_validate({"replicaStatuses": {"Master": {"active": None}}}))
    assert status_change(job, JobStatus.model_validate({"replicaStatuses": {"Master": {"active": 1}}}))


class Dropping:
    """A client whose server drops ``replacing`` from statuses, until ``is_current``."""

    def __init__(self) -> None:
        self.is_current = False

    async def patch(
        self, resource: object, namespace: str, name: str, body: bytes, **options: object
    ) -> bytes:
        sent = orjson.loads(body)
        roles = sent["status"]["replicaStatuses"]
        if not self.is_current:
            roles = {name: role | {"replacing": []} for name, role in roles.items()}
        metadata = {"name": name, "namespace": namespace, "uid": "train-uid", "resourceVersion": "2"}
        return orjson.dumps({"metadata": metadata, "spec": {}, "status": {"replicaStatuses": roles}})


async def test_a_ledger_that_the_server_drops_is_tried_again_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, now = Dropping(), 0.0
    monkeypatch.setattr(clock, "uptime", lambda: now)
    writer = StatusWriter(cast(Client, server), RESOURCE, Store[JobRow]())
    row = job_from_json(
        await server.patch(RESOURCE, NAMESPACE, "train", b'{"status":{"replicaStatuses":{}}}')
    )
    change = StatusChange({}, {"replicaStatuses": {"Worker": {"replacing": ["uid"]}}})

    await writer.write(row, change)
    assert not writer.keeps_ledger

    now = LEDGER_RETRY_SECONDS
    assert writer.keeps_ledger
    await writer.write(row, change)
    assert not writer.keeps_ledger

    server.is_current = True
    await writer.write(row, change)
    assert writer.keeps_ledger
