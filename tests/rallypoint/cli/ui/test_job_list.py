"""The row of a job in the list."""

from typing import Any

from rallypoint.cli.ui.job_list import row_of
from tests.support.snapshots import Object, at, event, job, true


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
    assert row(created, true("Running", message="it runs"), warning=warning)["message"] == "it runs"


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
