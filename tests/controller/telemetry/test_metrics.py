"""What dashboards find: names, labels, and where the figures start."""

import asyncio

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from controller.runtime.queue import Queue
from controller.telemetry.metrics import RECONCILE_BUCKETS, RESULTS, Metrics

NAME = "pytorchjob-controller"


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def metrics(registry: CollectorRegistry) -> Metrics:
    return Metrics(registry, ["pytorch"])


@pytest.mark.parametrize("count", ["created", "deleted", "successful", "failed", "restarted"])
def test_jobs_are_counted_by_namespace_and_framework(
    metrics: Metrics, registry: CollectorRegistry, count: str
) -> None:
    metrics.job("pytorch")("team", count)
    metrics.job("pytorch")("team", count)

    labels = {"job_namespace": "team", "framework": "pytorch"}
    assert registry.get_sample_value(f"training_operator_jobs_{count}_total", labels) == 2


def test_the_series_of_a_namespace_start_together_at_zero(
    metrics: Metrics, registry: CollectorRegistry
) -> None:
    metrics.job("pytorch")("team", "created")

    labels = {"job_namespace": "team", "framework": "pytorch"}
    assert registry.get_sample_value("training_operator_jobs_failed_total", labels) == 0


def test_passes(metrics: Metrics, registry: CollectorRegistry) -> None:
    controller = metrics.controller(NAME, workers=16)
    results = {
        result: registry.get_sample_value(
            "controller_runtime_reconcile_total", {"controller": NAME, "result": result}
        )
        for result in RESULTS
    }
    assert results == {"error": 0, "requeue": 0, "requeue_after": 0, "success": 0}

    controller.started(0.5)
    labels = {"controller": NAME}
    assert registry.get_sample_value("controller_runtime_active_workers", labels) == 1
    controller.ended("error", 0.02)
    controller.panicked()
    controller.started(0)
    controller.ended("success", 0.03)

    values = {
        name: registry.get_sample_value(f"controller_runtime_{name}", labels)
        for name in (
            "active_workers",
            "max_concurrent_reconciles",
            "reconcile_errors_total",
            "reconcile_panics_total",
            "reconcile_time_seconds_count",
            "reconcile_time_seconds_sum",
        )
    }
    assert values == {
        "active_workers": 0,
        "max_concurrent_reconciles": 16,
        "reconcile_errors_total": 1,
        "reconcile_panics_total": 1,
        "reconcile_time_seconds_count": 2,
        "reconcile_time_seconds_sum": pytest.approx(0.05),
    }
    assert registry.get_sample_value("workqueue_queue_duration_seconds_sum", {"name": NAME}) == 0.5
    assert registry.get_sample_value("workqueue_work_duration_seconds_count", {"name": NAME}) == 2


async def test_queues(metrics: Metrics, registry: CollectorRegistry) -> None:
    queue = Queue[str]()
    metrics.queue(NAME, queue)
    for key in ("a", "b", "c"):
        queue.add(key)
    await queue.get()
    await asyncio.sleep(4)
    await queue.get()
    await asyncio.sleep(2)
    queue.add_failed("b")

    figures = (
        "depth",
        "adds_total",
        "retries_total",
        "unfinished_work_seconds",
        "longest_running_processor_seconds",
    )
    values = [registry.get_sample_value(f"workqueue_{figure}", {"name": NAME}) for figure in figures]
    assert values == [1, 3, 1, 6 + 2, 6]


def test_requests(metrics: Metrics, registry: CollectorRegistry) -> None:
    observe = metrics.request("10.0.0.1:6443")
    observe("POST", "pods", "201", 0.1)
    observe("POST", "pods", "<error>", 30.0)

    for code in ("201", "<error>"):
        labels = {"code": code, "method": "POST", "host": "10.0.0.1:6443"}
        assert registry.get_sample_value("rest_client_requests_total", labels) == 1
    labels = {"verb": "POST", "host": "10.0.0.1:6443"}
    assert registry.get_sample_value("rest_client_request_duration_seconds_sum", labels) == 30.1


def test_how_long_watches_are_silent(metrics: Metrics, registry: CollectorRegistry) -> None:
    seconds = {"pods": 3.5, "services": 61.0}
    for resource in seconds:
        metrics.watch(resource, lambda resource=resource: seconds[resource])  # type: ignore[misc]
    seconds["pods"] = 300.0

    values = {
        one: registry.get_sample_value("rallypoint_watch_silence_seconds", {"resource": one})
        for one in seconds
    }
    assert values == {"pods": 300.0, "services": 61.0}


def test_lost_events(metrics: Metrics, registry: CollectorRegistry) -> None:
    assert registry.get_sample_value("rallypoint_events_dropped_total") == 0
    lost = [1, 2, 3]
    metrics.events(lambda: len(lost))

    assert registry.get_sample_value("rallypoint_events_dropped_total") == 3


def test_what_only_grows_is_a_counter(metrics: Metrics, registry: CollectorRegistry) -> None:
    """Prometheus treats a counter that says it is a gauge as one that never starts anew."""
    metrics.queue(NAME, Queue[str]())
    types = dict(
        line.removeprefix("# TYPE ").split()
        for line in generate_latest(registry).decode().splitlines()
        if line.startswith("# TYPE ")
    )

    assert {types[name] for name in types if name.endswith("_total")} == {"counter"}
    assert {
        "workqueue_adds_total",
        "workqueue_retries_total",
        "rallypoint_events_dropped_total",
    } <= types.keys()
    assert types["workqueue_depth"] == types["rallypoint_watch_silence_seconds"] == "gauge"


def test_buckets_are_those_of_the_dashboards() -> None:
    assert len(RECONCILE_BUCKETS) == 40
    assert list(RECONCILE_BUCKETS) == sorted(RECONCILE_BUCKETS)


def test_both_forms_of_exposition_are_sound(metrics: Metrics, registry: CollectorRegistry) -> None:
    metrics.queue(NAME, Queue[str]())
    metrics.controller(NAME, 1)
    metrics.job("pytorch")("team", "created")

    text = generate_openmetrics(registry).decode()  # type: ignore[no-untyped-call]
    families = {one.name for one in text_string_to_metric_families(text)}  # type: ignore[no-untyped-call]

    assert {"training_operator_jobs_created", "workqueue_adds", "workqueue_depth"} <= families
    assert b'workqueue_adds_total{name="pytorchjob-controller"} 0.0' in generate_latest(registry)
