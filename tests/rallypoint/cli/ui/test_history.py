"""The files of ended jobs."""

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from api.v1.pytorchjob import RESOURCE
from controller.kube.client import Client
from controller.kube.errors import NotFound
from rallypoint.cli import cluster as clusters
from rallypoint.cli.cluster import Cluster
from rallypoint.cli.ui import history as histories
from rallypoint.cli.ui.history import WORKERS, History, record
from rallypoint.cli.ui.job_list import JobList, Key
from rallypoint.cli.ui.job_page import document as document_of
from rallypoint.diagnosis import JobSnapshot
from rallypoint.diagnosis.objects import Object
from tests.support.harness import Harness, start_harness
from tests.support.snapshots import NOW, RUNNING, at, container, ended, job, master, pod


def document(uid: str) -> dict[str, Any]:
    return {"uid": uid, "id": f"PyTorchJob/default/{uid}", "name": uid, "state": "Failed", "events": []}


def test_a_record_is_private_and_has_a_row(tmp_path: Path) -> None:
    history = History(tmp_path / "jobs")

    history.write(document("a"))

    assert (tmp_path / "jobs").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "jobs" / "a.json").stat().st_mode & 0o777 == 0o600
    assert history.read("a") == document("a")
    assert [(row["name"], row["state"], row.get("events")) for row in history.rows()] == [
        ("a", "Failed", None)
    ]


def test_the_oldest_records_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histories, "MAX_JOBS", 10)
    history = History(tmp_path / "jobs")
    counts = []
    for age in range(24):
        history.write(document(str(age)))
        os.utime(tmp_path / "jobs" / f"{age}.json", (1000 + age, 1000 + age))
        counts.append(len(history.rows()))

    assert max(counts) == 11
    assert [row["uid"] for row in history.rows()][:10] == [str(age) for age in range(23, 13, -1)]


def test_the_folder_is_listed_only_to_delete_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histories, "MAX_JOBS", 100)
    listings = 0
    history = History(tmp_path / "jobs")
    glob = Path.glob

    def counted(folder: Path, pattern: str) -> Any:
        nonlocal listings
        listings += 1
        return glob(folder, pattern)

    monkeypatch.setattr(Path, "glob", counted)
    for uid in range(109):
        history.write(document(str(uid)))
        history.write(document(str(uid)))

    assert listings == 1, "once, to count the records of earlier processes"


@pytest.mark.parametrize("uid", ["../a", "..", "a/b", "", "a" * 65, "a\n"])
def test_only_uids_are_read(tmp_path: Path, uid: str) -> None:
    (tmp_path / "a.json").write_text("{}")

    assert History(tmp_path / "jobs").read(uid) is None


def test_a_broken_record_is_left_out(tmp_path: Path) -> None:
    history = History(tmp_path / "jobs")
    history.write(document("a"))
    (tmp_path / "jobs" / "b.json").write_text("{")

    assert [row["uid"] for row in history.rows()] == ["a"]


class Reads:
    """Reads of jobs that last ``seconds``, or longer for the job ``slow``."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.began: list[str] = []
        self.current = self.most = 0

    async def __call__(self, key: Key, deleted: Object | None) -> dict[str, Any]:
        name = key[2]
        self.began.append(name)
        self.current += 1
        self.most = max(self.most, self.current)
        await asyncio.sleep(100 if name == "slow" else self.seconds)
        self.current -= 1
        raise NotFound(404, "NotFound", "gone")


class InThread(History):
    """A history that refuses to be written on the event loop."""

    @override
    def write(self, document: Mapping[str, Any]) -> None:
        assert threading.current_thread() is not threading.main_thread()
        super().write(dict(document))


@asynccontextmanager
async def recorded(folder: Path, read: Reads) -> AsyncGenerator[tuple[Harness, History]]:
    """Record the jobs of a cluster."""
    history = InThread(folder / "jobs")
    async with start_harness() as harness, Client(harness.connection, user_agent="rallypoint-ui") as client:
        jobs = JobList(Cluster(client, "", "", await clusters.discover(client)))
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(jobs.run()), tasks.create_task(record(history, jobs, read))]
            yield harness, history
            for task in running:
                task.cancel()


async def fail(harness: Harness, name: str) -> None:
    condition = {"type": "Failed", "status": "True", "message": "it broke"}
    await harness.change(RESOURCE, name, {"status": {"conditions": [condition]}}, subresource="status")


async def test_jobs_that_end_together_are_read_a_few_at_a_time(tmp_path: Path) -> None:
    read = Reads(0.5)
    names = [f"j{number}" for number in range(20)]
    async with recorded(tmp_path, read) as (harness, history):
        for name in names:
            await harness.submit(name)
            await fail(harness, name)
        await asyncio.sleep(60)

    assert {row["name"]: row["message"] for row in history.rows()} == dict.fromkeys(names, "it broke")
    assert read.most == WORKERS
    assert sorted(read.began) == sorted(names * 2), "each is read again when its pods have ended"
    assert sorted(read.began[:20]) == sorted(names), "jobs that may be deleted come first"


async def test_a_slow_read_does_not_delay_the_next_job(tmp_path: Path) -> None:
    async with recorded(tmp_path, Reads(0)) as (harness, history):
        for name in ("slow", "fast"):
            await harness.submit(name)
            await fail(harness, name)
            await asyncio.sleep(1)

        assert [row["name"] for row in history.rows()] == ["fast"]


async def test_a_job_that_another_one_replaced_is_recorded(tmp_path: Path) -> None:
    async with recorded(tmp_path, Reads(0)) as (harness, history):
        first = (await harness.submit("j"))["metadata"]["uid"]
        await asyncio.sleep(1)
        await harness.delete(RESOURCE, "j")
        await harness.submit("j")
        await asyncio.sleep(1)

        assert [(row["uid"], row["message"]) for row in history.rows()] == [
            (first, "deleted before it had finished")
        ]


def lost(found: dict[str, Any], **row: Any) -> dict[str, Any]:
    """Return the record of a job that was deleted 10 s ago, of which ``found`` was read now."""
    replicas = {"desired": 1, "active": 0, "succeeded": 0, "failed": 0}
    base = {"state": "Deleted", "ended": NOW - timedelta(seconds=10), "replicas": replicas, "waited_for": ""}
    return histories._deleted_document(found, {**found, **base, "message": "deleted", **row})


def found_of(*pods: Object, **known: Any) -> dict[str, Any]:
    train = {**job(RUNNING, workers=0), "apiVersion": RESOURCE.api_version}
    for found in pods:
        found["spec"]["containers"] = [{"name": "pytorch"}]
    return document_of(JobSnapshot(train, NOW, pods=pods, is_deleted=True, pods_known=False, **known), ())


def test_the_row_of_a_deleted_job_has_the_cause_that_its_page_shows() -> None:
    waiting = {"reason": "ErrImagePull", "message": "no such image"}
    waits = pod("j-master-0", containerStatuses=[container(waiting=waiting)])

    record = lost(found_of(waits))

    assert record["message"] == ("deleted before it had finished: j-master-0: ErrImagePull: no such image")
    assert record["why"]["causes"][0]["nextStep"] == (
        "correct the image or its imagePullSecrets and create the job again"
    )
    assert lost(found_of(waits), waited_for="1 pod waits")["message"] == record["message"]


def test_a_deleted_job_without_a_cause_has_none() -> None:
    record = lost(found_of(master()))
    assert (record["message"], record["why"]["blocked"]) == ("deleted", False)
    assert record["why"]["summary"].startswith("The job was deleted before it had finished.")
    assert lost(found_of(master()), waited_for="no room")["message"].endswith("had finished: no room")


def test_the_timeline_of_a_deleted_job_ends_with_its_deletion() -> None:
    """Its pods ended later."""
    runs = master()
    runs["status"]["containerStatuses"] = [
        container(running={"startedAt": at(5)}, last=ended(1, ago=8), restarts=1)
    ]

    timeline = lost(found_of(runs))["why"]["timeline"]

    spans = timeline["spans"]
    assert timeline["restarts"] == []
    assert spans[-1]["end"] == at(10)
    assert all(span["start"] < at(10) for span in spans)
