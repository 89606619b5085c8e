"""The metrics of workers, as the series of their controller."""

import pytest
from prometheus_client import CollectorRegistry

from controller.telemetry.metrics import Metrics
from controller.telemetry.metrics.families import RESULTS

NAME = "pytorchjob-controller"
LABELS = {"controller": NAME}


def values(registry: CollectorRegistry, *names: str) -> dict[str, float | None]:
    return {name: registry.get_sample_value(f"controller_runtime_{name}", LABELS) for name in names}


def test_all_series_start_at_zero() -> None:
    registry = CollectorRegistry()
    Metrics(registry).controller(NAME, workers=16)

    for result in RESULTS:
        labels = {**LABELS, "result": result}
        assert registry.get_sample_value("controller_runtime_reconcile_total", labels) == 0
    assert values(
        registry,
        "active_workers",
        "reconcile_errors_total",
        "terminal_reconcile_errors_total",
        "reconcile_panics_total",
        "reconcile_timeouts_total",
        "max_concurrent_reconciles",
    ) == {
        "active_workers": 0,
        "reconcile_errors_total": 0,
        "terminal_reconcile_errors_total": 0,
        "reconcile_panics_total": 0,
        "reconcile_timeouts_total": 0,
        "max_concurrent_reconciles": 16,
    }


def test_reconciles_are_counted_and_timed() -> None:
    registry = CollectorRegistry()
    controller = Metrics(registry).controller(NAME, workers=16)

    controller.started(0.5)
    assert values(registry, "active_workers") == {"active_workers": 1}
    controller.ended("error", 0.02)
    controller.panicked()
    controller.started(0)
    controller.ended("success", 0.03)
    controller.started(0)
    controller.timed_out()
    controller.ended("error", 0.05)
    controller.failed_for_good()

    assert values(
        registry,
        "active_workers",
        "reconcile_errors_total",
        "terminal_reconcile_errors_total",
        "reconcile_panics_total",
        "reconcile_timeouts_total",
        "reconcile_time_seconds_count",
        "reconcile_time_seconds_sum",
    ) == {
        "active_workers": 0,
        "reconcile_errors_total": 2,
        "terminal_reconcile_errors_total": 1,
        "reconcile_panics_total": 1,
        "reconcile_timeouts_total": 1,
        "reconcile_time_seconds_count": 3,
        "reconcile_time_seconds_sum": pytest.approx(0.1),
    }
    queue = {"name": NAME, **LABELS}
    assert registry.get_sample_value("workqueue_queue_duration_seconds_sum", queue) == 0.5
    assert registry.get_sample_value("workqueue_work_duration_seconds_count", queue) == 3
