"""The decision about limits: counts and timers."""

from datetime import timedelta

import pytest

from controller.policy.replacement import LONGEST_PAUSE_SECONDS
from rallypoint.testing.builders import NOON
from rallypoint.testing.in_memory_cluster import Step, run_policy, running


@pytest.mark.parametrize(
    ("limit", "tolerated"), [pytest.param(n, max(n - 1, 0), id=f"limit {n}") for n in range(4)]
)
@pytest.mark.parametrize("policy", ["OnFailure", "Always", "ExitCode"])
def test_backoff_limit_counts_replaced_pods(policy: str, limit: int, tolerated: int) -> None:
    life = running(policy, run_policy={"backoffLimit": limit})
    for _ in range(tolerated):
        life.become("Failed", "worker-0", code=137)
        life.settle()
        life.wait(LONGEST_PAUSE_SECONDS)
        life.settle()
        life.become("Running")
        life.settle()
    assert life.conditions == "Created T, Running T"

    life.become("Failed", "worker-1", code=137)
    life.settle()

    assert life.conditions == "Created T, Running F, Failed T"
    assert life.made.count("train-worker-0") == 1 + tolerated


def test_the_backoff_limit_counts_container_restarts_and_replaced_pods() -> None:
    life = running(run_policy={"backoffLimit": 4})
    life.become("Failed", "worker-0", code=1, restarts=2)
    life.settle()
    assert life.counters["Worker"] == {"active": 1, "restarts": 3}

    life.become("Running")
    life.become("Running", "worker-1", restarts=1)
    life.settle()

    assert life.conditions == "Created T, Running F, Failed T"


def test_backoff_limit_does_not_count_under_never() -> None:
    life = running("Never", run_policy={"backoffLimit": 0})
    life.become("Running", "worker-0", restarts=5)

    assert life.settle() == []


def test_without_a_backoff_limit_no_restarts_are_written() -> None:
    life = running()
    life.become("Failed", "worker-0", code=1)
    life.settle()

    assert "restarts" not in life.counters["Worker"]


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(lambda life: life.become("Running", "worker-0", restarts=1), id="out of tries"),
        pytest.param(lambda life: life.wait(60), id="out of time"),
    ],
)
@pytest.mark.parametrize("clean", ["None", "Running", "All"])
def test_an_exceeded_limit_deletes_all_pods_whatever_the_clean_policy(clean: str, end: Step) -> None:
    life = running(run_policy={"backoffLimit": 1, "activeDeadlineSeconds": 60, "cleanPodPolicy": clean})
    end(life)

    verdict, after = life.settle()

    assert (verdict.create, verdict.delete) == ((), ())
    assert len(after.delete) == 6
    assert (life.pods, life.services) == ({}, {})
    assert life.counters == {"Master": {"active": 1}, "Worker": {"active": 2}}
    assert life.status.completion_time is not None


@pytest.mark.parametrize(
    ("waited", "left"), [pytest.param(0, 60, id="at the start"), pytest.param(45, 15, id="later")]
)
def test_a_reconcile_requeues_the_job_at_its_deadline(waited: float, left: float) -> None:
    life = running(run_policy={"activeDeadlineSeconds": 60})
    life.wait(waited)

    assert life.decide().requeue_after_seconds == left


def test_the_deadline_starts_again_after_a_resume() -> None:
    life = running(run_policy={"activeDeadlineSeconds": 60})
    run_policy(activeDeadlineSeconds=60, suspend=True)(life)
    life.settle()
    life.wait(600)
    assert life.settle() == []

    run_policy(activeDeadlineSeconds=60)(life)
    life.settle()

    assert life.status.start_time == NOON + timedelta(seconds=600)
    assert life.decide().requeue_after_seconds == 60


def test_a_job_without_a_deadline_is_not_requeued() -> None:
    assert running().decide().requeue_after_seconds is None
