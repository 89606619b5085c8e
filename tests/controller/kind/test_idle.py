"""The history of a job, read from the reason of its condition Running (False)."""

import pytest

from api.job import JobStatus
from controller.kind.idle import has_run, is_blocked


def status(text: str) -> JobStatus:
    """The conditions as ``Type Status Reason``, separated by commas."""
    conditions = [
        dict(zip(("type", "status", "reason"), words.split(), strict=True)) for words in text.split(", ")
    ]
    return JobStatus.model_validate({"conditions": conditions})


CREATED = "Created True PyTorchJobCreated"


@pytest.mark.parametrize(
    ("given", "ran"),
    [
        pytest.param(CREATED, False, id="no condition"),
        pytest.param("Running True PyTorchJobRunning", True, id="running"),
        pytest.param("Running True PyTorchJobBlocked", True, id="running and unreadable"),
        pytest.param("Restarting True PyTorchJobRestarting", True, id="restarting"),
        pytest.param("Running False PyTorchJobSuspended", True, id="suspended while running"),
        pytest.param("Running False PyTorchJobBlocked", False, id="blocked from the start"),
        pytest.param("Running False PyTorchJobWaitingForPods", False, id="pods not started"),
        pytest.param(
            "Running False PyTorchJobBlocked, Suspended False PyTorchJobResumed",
            False,
            id="suspended before it ran",
        ),
        pytest.param("Running False PyTorchJobBlockedAfterResume", True, id="blocked again"),
        pytest.param("Running False PyTorchJobWaitingForPodsAfterResume", True, id="waiting for pods again"),
        pytest.param("Running False PyTorchJobHeldUp", False, id="an older version: blocked"),
        pytest.param("Running False PyTorchJobWaitsForPods", False, id="an older version: waiting for pods"),
        pytest.param(
            "Running False PyTorchJobHeldUp, Suspended False PyTorchJobResumed",
            True,
            id="an older version: suspended",
        ),
    ],
)
def test_reasons_say_whether_a_job_has_run(given: str, ran: bool) -> None:
    assert has_run("PyTorchJob", status(given)) is ran


@pytest.mark.parametrize(("second", "ran"), [(0, False), (1, True)])
def test_an_mpijob_has_run_unless_it_is_suspended_since_its_creation(second: int, ran: bool) -> None:
    conditions = [
        {"type": "Created", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        {
            "type": "Running",
            "status": "False",
            "reason": "MPIJobSuspended",
            "lastTransitionTime": f"2026-01-01T00:00:0{second}Z",
        },
    ]

    assert has_run("MPIJob", JobStatus.model_validate({"conditions": conditions})) is ran


@pytest.mark.parametrize(
    ("reason", "blocked"),
    [
        ("PyTorchJobBlocked", True),
        ("PyTorchJobBlockedAfterResume", True),
        ("PyTorchJobHeldUp", True),
        ("PyTorchJobWaitingForPods", False),
        ("JAXJobBlocked", False),
    ],
)
def test_reasons_say_whether_a_job_is_blocked(reason: str, blocked: bool) -> None:
    assert is_blocked("PyTorchJob", status(f"Running False {reason}")) is blocked


def test_a_job_without_a_status_has_not_run_and_is_not_blocked() -> None:
    assert not has_run("PyTorchJob", None)
    assert not is_blocked("PyTorchJob", None)
