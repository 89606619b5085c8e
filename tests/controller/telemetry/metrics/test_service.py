"""The exposed metrics: exactly those of the table, with current values."""

import asyncio
import sys
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from controller.runtime.informer import Ending, Fill
from controller.runtime.queue import Queue
from controller.telemetry.metrics import Metrics
from controller.telemetry.metrics.families import GROUPS, PRIORITY_LEVELS
from controller.telemetry.metrics.jobs import JobSample
from controller.telemetry.metrics.shadow import RESULTS, ShadowMetrics

NAME = "pytorchjob-controller"
LEASE = "1ca428e5.training-operator.kubeflow.org"


class NarrowedLimiter:
    """A limiter with a reduced width."""

    width = 16
    in_flight = 16

    def waiting(self) -> Mapping[str, int]:
        return {"event": 40, "child": 3, "status": 0, "first": 0}


class Hearing:
    """A watch that received data a while ago."""

    def __init__(self) -> None:
        self.seconds = 3.5
        self.fills = Counter[str]()
        self.endings = Counter[str]()
        self.repaired = 0
        self.unserved = asyncio.Event()

    def silent_seconds(self) -> float:
        return self.seconds


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def metrics(registry: CollectorRegistry) -> Metrics:
    return Metrics(registry, "1.2.3")


def connect_all(metrics: Metrics) -> None:
    no_jobs = dict.fromkeys(RESULTS, 0)
    ShadowMetrics(metrics.registry, lambda: [("PyTorchJob", no_jobs, {"pod": 0})])
    metrics.job("pytorch")("team", "created")
    metrics.jobs.start("pytorch")
    metrics.jobs.put(
        "uid", JobSample("team", "pytorch", "running", requests=(("nvidia.com/gpu", (0, 0, 8, 0)),))
    )
    metrics.controller(NAME, 1)
    metrics.queue(NAME, Queue[str]())
    metrics.watch("pods", Hearing())
    metrics.events(lambda: 0, lambda: 0)
    metrics.limiter(NarrowedLimiter())
    metrics.requests("10.0.0.1:6443")
    metrics.election().leading(LEASE, False)
    metrics.launchers(lambda: [("pi-launcher", "team")])
    metrics.endpoint().certificate_read(datetime.now(UTC))
    metrics.loop()


@pytest.mark.skipif(sys.platform != "linux", reason="the process_* families are read from /proc")
async def test_the_exposed_families_are_those_of_the_table(
    metrics: Metrics, registry: CollectorRegistry
) -> None:
    connect_all(metrics)
    declared = {
        family.name: (family.type, family.help, sorted(family.label_names))
        for group in GROUPS
        for family in group.families
    }
    library = {name for name in declared if name.startswith(("process_", "python_"))}

    exposed = {}
    for metric in registry.collect():
        name = metric.name + ("_total" if metric.type == "counter" else "")
        labels = {label for sample in metric.samples for label in sample.labels} - {"le"}
        text = declared[name][1] if name in library else metric.documentation
        exposed[name] = (metric.type, text, sorted(labels))

    assert exposed == declared


async def test_the_exposed_label_values_are_those_of_the_table(
    metrics: Metrics, registry: CollectorRegistry
) -> None:
    connect_all(metrics)
    declared = {
        (family.name, label.name): set(label.values)
        for group in GROUPS
        for family in group.families
        for label in family.labels
        if label.values and label.name != "loop"
    }
    exposed: dict[tuple[str, str], set[str]] = {}
    for metric in registry.collect():
        name = metric.name + ("_total" if metric.type == "counter" else "")
        for sample in metric.samples:
            for label, value in sample.labels.items():
                exposed.setdefault((name, label), set()).add(value)

    assert {key: exposed[key] for key in declared} == declared


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


async def test_queues_have_their_series(metrics: Metrics, registry: CollectorRegistry) -> None:
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
    labels = {"name": NAME, "controller": NAME}
    values = [registry.get_sample_value(f"workqueue_{figure}", labels) for figure in figures]
    assert values == [1, 3, 1, 6 + 2, 6]


def test_watches_have_their_series(metrics: Metrics, registry: CollectorRegistry) -> None:
    watches = {resource: Hearing() for resource in ("pods", "services")}
    for resource, watch in watches.items():
        metrics.watch(resource, watch)
    watches["pods"].seconds = 300.0
    watches["pods"].fills["list"] += 1
    watches["pods"].endings["lost"] += 2
    watches["pods"].repaired = 7
    watches["pods"].unserved.set()

    def values(figure: str, label: str, among: tuple[str, ...]) -> list[float | None]:
        name = f"rallypoint_watch_{figure}_total"
        return [registry.get_sample_value(name, {"resource": "pods", label: value}) for value in among]

    silence = [
        registry.get_sample_value("rallypoint_watch_silence_seconds", {"resource": resource})
        for resource in watches
    ]
    assert silence == [300.0, 3.5]
    assert values("fills", "by", tuple(Fill)) == [0, 1]
    assert values("endings", "ending", tuple(Ending)) == [0, 2, 0, 0]
    repairs = [
        registry.get_sample_value("rallypoint_watch_repairs_total", {"resource": resource})
        for resource in watches
    ]
    assert repairs == [7, 0]
    served = [
        registry.get_sample_value("rallypoint_resource_served", {"resource": resource})
        for resource in watches
    ]
    assert served == [0, 1]


@pytest.mark.parametrize("figure", ["dropped", "limited"])
def test_dropped_and_limited_events_are_counted(
    metrics: Metrics, registry: CollectorRegistry, figure: str
) -> None:
    events: dict[str, list[int]] = {"dropped": [], "limited": []}
    metrics.events(lambda: len(events["dropped"]), lambda: len(events["limited"]))
    assert registry.get_sample_value(f"rallypoint_events_{figure}_total") == 0
    events[figure].extend([1, 2, 3])

    assert registry.get_sample_value(f"rallypoint_events_{figure}_total") == 3


def test_the_concurrency_limiter_has_its_gauges(metrics: Metrics, registry: CollectorRegistry) -> None:
    metrics.limiter(NarrowedLimiter())

    assert registry.get_sample_value("rallypoint_request_limiter_width") == 16
    assert registry.get_sample_value("rallypoint_request_limiter_in_flight") == 16
    waiting = [
        registry.get_sample_value("rallypoint_request_limiter_waiting", {"level": level})
        for level in PRIORITY_LEVELS
    ]
    assert waiting == [40, 3, 0, 0]


def test_the_leader_election(metrics: Metrics, registry: CollectorRegistry) -> None:
    observer, labels = metrics.election(), {"name": LEASE}
    observer.leading(LEASE, False)
    names = ("leader_election_master_status", "leader_election_slowpath_total")
    assert [registry.get_sample_value(name, labels) for name in names] == [0, 0]

    observer.leading(LEASE, True)
    observer.slow_path(LEASE)
    assert [registry.get_sample_value(name, labels) for name in names] == [1, 1]

    observer.leading(LEASE, False)
    assert registry.get_sample_value(names[0], labels) == 0


async def test_the_build_has_a_series(metrics: Metrics, registry: CollectorRegistry) -> None:
    metrics.loop()

    (sample,) = next(
        metric for metric in registry.collect() if metric.name == "rallypoint_build_info"
    ).samples
    assert sample.value == 1
    assert sample.labels == {
        "version": "1.2.3",
        "python": sys.version.split()[0],
        "loop": "asyncio",
    }


async def test_both_exposition_formats_are_valid(metrics: Metrics, registry: CollectorRegistry) -> None:
    connect_all(metrics)

    text = generate_openmetrics(registry).decode()  # type: ignore[no-untyped-call]
    families = {metric.name for metric in text_string_to_metric_families(text)}  # type: ignore[no-untyped-call]

    assert {"training_operator_jobs_created", "workqueue_adds", "workqueue_depth"} <= families
    line = f'workqueue_adds_total{{controller="{NAME}",name="{NAME}"}} 0.0'
    assert line in generate_latest(registry).decode().splitlines()
