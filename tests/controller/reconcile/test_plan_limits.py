"""Plans for limits: counts and timers."""

from datetime import timedelta

import pytest

from api.children import Exit
from controller.policy.replacement import LONGEST_PAUSE_SECONDS
from tests.support.builders import NOON
from tests.support.in_memory_cluster import Step, run_policy, running_cluster


@pytest.mark.parametrize(
    ("limit", "tolerated"), [pytest.param(n, max(n - 1, 0), id=f"limit {n}") for n in range(4)]
)
@pytest.mark.parametrize("policy", ["OnFailure", "Always", "ExitCode"])
def test_backoff_limit_counts_replaced_pods(policy: str, limit: int, tolerated: int) -> None:
    cluster = running_cluster(policy, run_policy={"backoffLimit": limit})
    for _ in range(tolerated):
        cluster.set_phase("Failed", "worker-0", code=137)
        cluster.settle()
        cluster.wait(LONGEST_PAUSE_SECONDS)
        cluster.settle()
        cluster.set_phase("Running")
        cluster.settle()
    assert cluster.conditions == "Created T, Running T"

    cluster.set_phase("Failed", "worker-1", code=137)
    cluster.settle()

    assert cluster.conditions == "Created T, Running F, Failed T"
    assert cluster.created_pods.count("train-worker-0") == 1 + tolerated


def test_the_backoff_limit_counts_container_restarts_and_replaced_pods() -> None:
    cluster = running_cluster(run_policy={"backoffLimit": 4})
    cluster.set_phase("Failed", "worker-0", code=1, restarts=2)
    cluster.settle()
    assert cluster.counters["Worker"] == {"active": 1, "restarts": 3}

    cluster.set_phase("Running")
    cluster.set_phase("Running", "worker-1", restarts=1)
    cluster.settle()

    assert cluster.conditions == "Created T, Running F, Failed T"


def test_backoff_limit_does_not_count_under_never() -> None:
    cluster = running_cluster("Never", run_policy={"backoffLimit": 0})
    cluster.set_phase("Running", "worker-0", restarts=5)

    assert cluster.settle() == []


def test_without_a_backoff_limit_no_restarts_are_written() -> None:
    cluster = running_cluster()
    cluster.set_phase("Failed", "worker-0", code=1)
    cluster.settle()

    assert "restarts" not in cluster.counters["Worker"]


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(lambda cluster: cluster.set_phase("Running", "worker-0", restarts=1), id="out of tries"),
        pytest.param(lambda cluster: cluster.wait(60), id="out of time"),
    ],
)
@pytest.mark.parametrize("clean", ["None", "Running", "All"])
def test_an_exceeded_limit_deletes_all_pods_whatever_the_clean_policy(clean: str, end: Step) -> None:
    cluster = running_cluster(
        run_policy={"backoffLimit": 1, "activeDeadlineSeconds": 60, "cleanPodPolicy": clean}
    )
    end(cluster)

    verdict, after = cluster.settle()

    assert (verdict.create, verdict.delete) == ((), ())
    assert len(after.delete) == 6
    assert (cluster.pods, cluster.services) == ({}, {})
    assert cluster.counters == {"Master": {"active": 1}, "Worker": {"active": 2}}
    assert cluster.status.completion_time is not None


def test_the_end_at_a_limit_keeps_the_last_failure_and_deletes_all_pods() -> None:
    cluster = running_cluster(run_policy={"backoffLimit": 1, "cleanPodPolicy": "None"})
    failure = Exit("pytorch", 3, "Error", "no luck")
    cluster.set_phase("Running", "worker-0", restarts=1, previous_failure=failure)
    cluster.settle()

    text = (
        "Job train has failed because it has reached the specified backoff limit; "
        "last failure: train-worker-0: container pytorch ended with exit code 3: no luck"
    )
    assert (cluster.status.conditions or [])[-1].message == text
    assert [event.message for event in cluster.events if event.reason == "PyTorchJobFailed"] == [text]
    assert cluster.pods == {}


@pytest.mark.parametrize(
    ("waited", "left"), [pytest.param(0, 60, id="at the start"), pytest.param(45, 15, id="later")]
)
def test_a_reconcile_requeues_the_job_at_its_deadline(waited: float, left: float) -> None:
    cluster = running_cluster(run_policy={"activeDeadlineSeconds": 60})
    cluster.wait(waited)

    assert cluster.decide().requeue_after_seconds == left


def test_the_deadline_starts_again_after_a_resume() -> None:
    cluster = running_cluster(run_policy={"activeDeadlineSeconds": 60})
    run_policy(activeDeadlineSeconds=60, suspend=True)(cluster)
    cluster.settle()
    cluster.wait(600)
    assert cluster.settle() == []

    run_policy(activeDeadlineSeconds=60)(cluster)
    cluster.settle()

    assert cluster.status.start_time == NOON + timedelta(seconds=600)
    assert cluster.decide().requeue_after_seconds == 60


def test_a_job_without_a_deadline_is_not_requeued() -> None:
    assert running_cluster().decide().requeue_after_seconds is None
