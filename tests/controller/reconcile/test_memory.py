"""The memory of jobs: its content and when it is discarded."""

from typing import Any

import msgspec
import orjson

from controller.domain import Key
from controller.reconcile.job_history import JobHistory
from controller.reconcile.jobs import JobRow, job_from_json
from controller.reconcile.memory import JobMemories
from tests.support.builders import UID, pod, pytorch_job

KEY = Key("default", "train")


def row(uid: str = "uid", *, suspend: bool = False, **metadata: Any) -> JobRow:
    job = pytorch_job(run_policy={"suspend": suspend}).to_wire()
    loaded = job_from_json(orjson.dumps(job))
    return msgspec.structs.replace(loaded, namespace=KEY.namespace, name=KEY.name, uid=uid)


def test_a_job_has_a_single_memory_per_uid() -> None:
    memories = JobMemories()
    memory = memories.begin(KEY, "a")

    assert memories.begin(KEY, "a") is memory
    assert memories.current(KEY) is memory
    assert memories.current(Key("default", "other")) is None


def test_another_job_of_that_name_starts_without_memory() -> None:
    memories = JobMemories()
    memories.begin(KEY, "a").has_unknown_write = True

    assert not memories.begin(KEY, "b").has_unknown_write
    assert [memory.uid for memory in memories] == ["b"]


def test_a_discarded_job_leaves_nothing() -> None:
    memories = JobMemories()
    memories.observe(None, row("a", suspend=True))
    memories.begin(KEY, "a")
    memories.discard(KEY)
    memories.discard(KEY)

    assert memories.current(KEY) is None
    assert list(memories) == []


def test_a_suspension_is_remembered_until_the_job_is_reconciled() -> None:
    memories = JobMemories()
    memories.observe(row(suspend=False), row(suspend=True))
    memories.observe(row(suspend=True), row(suspend=False))

    assert memories.begin(KEY, "uid").is_suspension_pending


def test_a_suspension_with_a_missing_event_is_found_in_the_previous_version() -> None:
    memories = JobMemories()
    memories.observe(row(suspend=True), row(suspend=False))

    assert memories.begin(KEY, "uid").is_suspension_pending


def test_a_suspension_of_an_earlier_job_of_that_name_does_not_count() -> None:
    memories = JobMemories()
    memories.observe(row("a", suspend=True), row("b", suspend=False))

    assert not memories.begin(KEY, "b").is_suspension_pending


def test_a_job_that_is_deleted_before_its_first_reconcile_leaves_nothing() -> None:
    memories = JobMemories()
    memories.observe(None, row(suspend=True))
    memories.observe(row(suspend=True), None)

    assert list(memories) == []


def test_the_memory_of_a_deleted_job_stays_until_its_last_reconcile() -> None:
    """Rights that the job has given are taken away by what is remembered of it."""
    memories = JobMemories()
    memory = memories.begin(KEY, "uid")
    memories.observe(row(), None)

    assert memories.current(KEY) is memory


def test_discarding_a_job_is_reported_once() -> None:
    gone: list[str] = []
    memories = JobMemories(gone.append)
    memories.begin(KEY, "a")
    memories.begin(KEY, "b")
    memories.discard(KEY)
    memories.discard(KEY)

    assert gone == ["a", "b"]


def test_the_history_of_a_job_contains_pods_that_are_gone() -> None:
    memories = JobMemories()
    memories.begin(KEY, UID).history = history = JobHistory()
    memories.observe_pod(pod(disruption="DeletionByPodGC"), None)
    memories.observe_pod(pod(owner_uid="other"), None)

    assert history.count_restarts([pod(uid="second")], (), {"worker": 1}) == [("node_lost", 1)]
