"""Which statuses wait to be written, and for how long."""

import asyncio
from typing import Any

import pytest

from api.job import JobStatus, ReplicaStatus
from controller.reconcile.debounce import (
    CREATED_SECONDS,
    LONGEST_SECONDS,
    UNCHANGED_SECONDS,
    StatusDebouncer,
    longest_wait_seconds,
)
from controller.reconcile.status import StatusChange


def status_dict(active: int | None = 1, **fields: Any) -> dict[str, Any]:
    """Build the status of a role; ``fields`` are further counters of the role or top-level keys of the status."""
    top: dict[str, Any] = {
        key: fields.pop(key) for key in ("conditions", "startTime", "completionTime") if key in fields
    }
    role = {"active": active, "selector": "a=b", **fields}
    return {
        "replicaStatuses": {"Worker": {key: value for key, value in role.items() if value is not None}},
        **top,
    }


@pytest.mark.parametrize(
    ("wanted", "waits"),
    [
        pytest.param(status_dict(2), True, id="one more active pod"),
        pytest.param(status_dict(3, succeeded=1), True, id="one more succeeded pod"),
        pytest.param(status_dict(1), True, id="one less active pod"),
        pytest.param(status_dict(None), False, id="no active pod"),
        pytest.param(status_dict(2, failed=1), False, id="one more failed pod"),
        pytest.param(status_dict(2, restarts=1), False, id="a restart is counted"),
        pytest.param(status_dict(2, replacing=["uid"]), False, id="a pod is being replaced"),
        pytest.param(status_dict(2, conditions=[{"type": "Running"}]), False, id="a condition"),
        pytest.param(status_dict(2, startTime="2026-01-01T12:00:00Z"), False, id="a time"),
        pytest.param(status_dict(2, selector="a=c"), False, id="a selector"),
        pytest.param({"replicaStatuses": {}}, False, id="a missing role"),
        pytest.param({}, False, id="nothing"),
    ],
)
def test_only_changes_of_counters_wait(wanted: dict[str, Any], waits: bool) -> None:
    stored = status_dict(2 if wanted != status_dict(2) else 1)
    change = StatusChange(stored, wanted)
    assert longest_wait_seconds(change, has_events=True, is_busy=False) == (UNCHANGED_SECONDS if waits else 0)
    assert longest_wait_seconds(change, has_events=True, is_busy=True) == (LONGEST_SECONDS if waits else 0)


@pytest.mark.parametrize(
    ("stored", "wanted", "waits"),
    [
        pytest.param([], ["Created"], True, id="created"),
        pytest.param([], ["Created", "Running"], False, id="created and running"),
        pytest.param([], ["Created", "Suspended"], False, id="created and suspended"),
        pytest.param([], ["Created", "Failed"], False, id="created and failed"),
        pytest.param(["Created"], ["Created"], False, id="created before"),
        pytest.param([], [], False, id="nothing"),
    ],
)
def test_a_first_status_waits_if_it_only_says_that_the_job_was_created(
    stored: list[str], wanted: list[str], waits: bool
) -> None:
    change = StatusChange(
        {"conditions": [{"type": type_} for type_ in stored]} if stored else {},
        status_dict(None, conditions=[{"type": type_} for type_ in wanted], startTime="2026-01-01T12:00:00Z"),
    )
    assert longest_wait_seconds(change, has_events=False, is_busy=False) == (CREATED_SECONDS if waits else 0)
    assert longest_wait_seconds(change, has_events=False, is_busy=True) == (LONGEST_SECONDS if waits else 0)
    assert longest_wait_seconds(change, has_events=True, is_busy=False) == 0, (
        "events follow the status that they report"
    )


def status(active: int) -> JobStatus:
    return JobStatus(replica_statuses={"Worker": ReplicaStatus(active=active)})


async def test_a_status_waits_until_it_stops_changing() -> None:
    debouncer = StatusDebouncer()
    assert debouncer.defer(b"{}", status(1), UNCHANGED_SECONDS) == UNCHANGED_SECONDS
    await asyncio.sleep(UNCHANGED_SECONDS / 2)
    assert debouncer.defer(b"{}", status(1), UNCHANGED_SECONDS) == pytest.approx(UNCHANGED_SECONDS / 2)
    assert debouncer.defer(b"{}", status(2), UNCHANGED_SECONDS) == pytest.approx(UNCHANGED_SECONDS), (
        "it has changed again"
    )
    await asyncio.sleep(UNCHANGED_SECONDS)
    assert debouncer.defer(b"{}", status(2), UNCHANGED_SECONDS) == 0


async def test_a_status_that_keeps_changing_is_written_after_the_longest_wait() -> None:
    debouncer, loop = StatusDebouncer(), asyncio.get_running_loop()
    started, number = loop.time(), 0
    while debouncer.defer(b"{}", status(number), UNCHANGED_SECONDS):
        await asyncio.sleep(UNCHANGED_SECONDS / 4)
        number += 1

    assert loop.time() - started == pytest.approx(LONGEST_SECONDS)


async def test_the_wait_begins_again_after_children_were_created() -> None:
    debouncer = StatusDebouncer()
    debouncer.restart()
    assert debouncer.pending(b"{}") is None, "nothing waits"

    debouncer.defer(b"{}", status(1), CREATED_SECONDS)
    await asyncio.sleep(LONGEST_SECONDS + 1)
    debouncer.restart()
    assert debouncer.defer(b"{}", status(1), CREATED_SECONDS) == pytest.approx(CREATED_SECONDS)
    await asyncio.sleep(CREATED_SECONDS)
    assert debouncer.defer(b"{}", status(1), CREATED_SECONDS) == 0


async def test_a_pending_status_is_known_until_the_stored_status_changes() -> None:
    debouncer = StatusDebouncer()
    debouncer.defer(b"{}", status(1), UNCHANGED_SECONDS)

    assert debouncer.pending(b"{}") == status(1)
    assert debouncer.pending(b'{"conditions":[]}') is None
    debouncer.clear()
    assert debouncer.pending(b"{}") is None
