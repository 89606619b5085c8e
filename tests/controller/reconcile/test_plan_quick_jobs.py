"""Plans for jobs that ended before the first reconcile; their pods show the history."""

from datetime import timedelta

import pytest

from tests.support.builders import NOON
from tests.support.in_memory_cluster import InMemoryCluster, pending_cluster, running_cluster

SUCCEEDED = "Created T, Running F, Succeeded T"


def since(cluster: InMemoryCluster) -> float:
    """Seconds after noon since when the job was Running."""
    (at,) = [
        condition.last_transition_time
        for condition in cluster.status.conditions or ()
        if condition.type == "Running"
    ]
    assert at is not None
    return (at - NOON).total_seconds()


def end(cluster: InMemoryCluster, phase: str, *pods: str, code: int = 0, started: float | None = 0) -> None:
    at = None if started is None else NOON + timedelta(seconds=started)
    cluster.set_phase(phase, *pods, code=code, started_at=at)


def test_a_quick_job_has_been_running() -> None:
    cluster = pending_cluster()
    end(cluster, "Succeeded", "master-0", started=3)
    cluster.wait(5)
    cluster.settle()

    assert cluster.conditions == SUCCEEDED
    assert since(cluster) == 3
    assert cluster.reasons.count("PyTorchJobSucceeded") == 1


def test_a_quickly_failed_job_has_been_running() -> None:
    cluster = pending_cluster("Never")
    end(cluster, "Failed", "master-0", code=1)
    cluster.settle()

    assert cluster.conditions == "Created T, Running F, Failed T"


def test_the_deciding_pods_set_the_start_of_running() -> None:
    """A worker that ran before the master made the job no Running one."""
    cluster = pending_cluster()
    end(cluster, "Succeeded", "worker-0", started=1)
    end(cluster, "Succeeded", "master-0", started=4)
    cluster.wait(5)
    cluster.settle()

    assert since(cluster) == 4


@pytest.mark.parametrize(
    ("started", "expected"),
    [pytest.param(-100, 0, id="a node's clock that is late"), pytest.param(100, 5, id="one that is early")],
)
def test_a_start_by_a_wrong_clock_is_moved_between_creation_and_now(started: float, expected: float) -> None:
    cluster = pending_cluster()
    end(cluster, "Succeeded", "master-0", started=started)
    cluster.wait(5)
    cluster.settle()

    assert since(cluster) == expected


def test_a_job_whose_pods_never_ran_was_never_running() -> None:
    """An image that could not be started, an eviction before the start."""
    cluster = pending_cluster("Never")
    end(cluster, "Failed", "master-0", code=128, started=None)
    cluster.settle()

    assert cluster.conditions == "Created T, Failed T"


def test_a_failed_pod_does_not_mark_a_restarting_job_as_running() -> None:
    cluster = running_cluster()
    end(cluster, "Failed", "master-0", code=1)
    cluster.step()

    assert cluster.conditions == "Created T, Restarting T"
