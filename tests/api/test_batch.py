"""Rows of batch Jobs, read from what the API server sends."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from api.batch import BatchJob, batch_job_from_json, placement_of

METADATA = {
    "name": "pi-launcher",
    "namespace": "hpc",
    "uid": "u",
    "resourceVersion": "42",
    "ownerReferences": [{"kind": "MPIJob", "name": "pi", "uid": "j", "controller": True}],
}
NOON = "2026-01-01T12:00:00Z"
TEMPLATE = {
    "metadata": {"labels": {"a": "b"}, "creationTimestamp": None},
    "spec": {"nodeSelector": {"zone": "a"}, "containers": [{"name": "mpi"}]},
}


def read(spec: dict[str, Any] | None = None, **status: Any) -> BatchJob:
    whole = {"metadata": METADATA, "spec": {"template": TEMPLATE, **(spec or {})}, "status": status}
    return batch_job_from_json(msgspec.json.encode(whole))


def ended(type_: str, **fields: Any) -> dict[str, Any]:
    return {"conditions": [{"type": type_, "status": "True", "lastTransitionTime": NOON, **fields}]}


def test_a_job_is_read_into_a_row() -> None:
    row = read({"suspend": False, "ttlSecondsAfterFinished": 5}, startTime=NOON, failed=2)

    assert row == BatchJob(
        namespace="hpc",
        name="pi-launcher",
        uid="u",
        resource_version=42,
        owner_kind="MPIJob",
        owner_name="pi",
        owner_uid="j",
        started=True,
        failures=2,
        ttl_seconds=5,
    )
    assert not row.is_finished


@pytest.mark.parametrize(
    ("status", "completed", "failure"),
    [
        pytest.param({}, False, None, id="not yet"),
        pytest.param(ended("Complete"), True, None, id="complete"),
        pytest.param(
            ended("Failed", reason="DeadlineExceeded", message="late"),
            False,
            ("DeadlineExceeded", "late"),
            id="failed",
        ),
        pytest.param(ended("Failed"), False, ("", ""), id="failed without a reason"),
        pytest.param(
            {"conditions": [{"type": "Failed", "status": "False"}]},
            False,
            None,
            id="a condition that does not hold",
        ),
        pytest.param(ended("Suspended"), False, None, id="another condition"),
    ],
)
def test_ends(status: dict[str, Any], completed: bool, failure: tuple[str, str] | None) -> None:
    row = read(**status)

    assert row.completed_at == (datetime(2026, 1, 1, 12, tzinfo=UTC) if completed else None)
    assert row.failure == failure
    assert row.is_finished is (completed or failure is not None)


def test_the_completion_time_is_read_from_the_status() -> None:
    row = read(completionTime="2026-01-01T11:00:00Z", **ended("Complete"))

    assert row.completed_at == datetime(2026, 1, 1, 11, tzinfo=UTC)


def test_a_suspended_job_has_the_placement_of_its_template() -> None:
    placement = msgspec.json.decode(read({"suspend": True}).placement)

    assert placement == placement_of(TEMPLATE)
    assert placement["spec"] == {"nodeSelector": {"zone": "a"}, "tolerations": None, "schedulingGates": None}
    assert placement["metadata"] == {"labels": {"a": "b"}, "annotations": None}


def test_a_job_that_is_not_suspended_has_no_placement() -> None:
    """All Jobs of a cluster are watched; of those that are not suspended nothing of the template is kept."""
    assert read().placement == b"{}"
