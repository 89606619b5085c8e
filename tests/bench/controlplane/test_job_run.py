"""Times of a run from the observer's records."""

import pytest

from bench.controlplane.job_run import times
from bench.controlplane.observer import Observer


class RecordedObserver(Observer):
    """An observer with given times, without a watch."""

    def __init__(self) -> None:
        self.jobs = {}
        self.pods = {"a-master-0": 10.2, "a-worker-0": 10.3, "b-master-0": 10.5, "b-worker-0": 10.4}
        self.pods_running = {name: at + 0.1 for name, at in self.pods.items()}
        self.services = {name: at + 0.05 for name, at in self.pods.items()}
        self.conditions = {"Running": {"a": 10.6, "b": 11.0}, "Succeeded": {"a": 12.5, "b": 12.25}}


SUBMITTED = {"a": 10.0, "b": 10.25}


def test_spans_go_from_the_first_submission_to_the_last_arrival() -> None:
    figures = times(RecordedObserver(), SUBMITTED, ended=12.0)

    assert {name: round(value) for name, value in figures.items()} == {
        "create_to_first_pod_ms": 200,
        "create_to_last_pod_ms": 500,
        "create_to_last_service_ms": 550,
        "create_to_pods_running_ms": 600,
        "create_to_running_ms": 1000,
        "exit_to_succeeded_ms": 500,
        "job_create_to_pods_p50_ms": 250,
        "job_create_to_pods_p99_ms": 300,
        "job_create_to_running_p50_ms": 600,
        "job_create_to_running_p99_ms": 750,
    }


def test_jobs_that_end_by_themselves_are_timed_from_their_submission() -> None:
    figures = times(RecordedObserver(), SUBMITTED, ended=None)

    assert figures["create_to_succeeded_ms"] == pytest.approx(2500)
    assert "exit_to_succeeded_ms" not in figures


def test_a_single_job_has_no_percentiles() -> None:
    assert not [
        name for name in times(RecordedObserver(), {"a": 10.0}, ended=12.0) if name.startswith("job_")
    ]


def test_a_state_that_was_not_observed_has_no_time() -> None:
    observer = RecordedObserver()
    observer.conditions = {}

    assert "create_to_running_ms" not in times(observer, SUBMITTED, ended=None)
